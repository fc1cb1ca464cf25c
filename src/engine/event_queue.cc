#include "engine/event_queue.h"

#include <new>
#include <string>
#include <utility>

#include "base/retry_memory.h"

namespace kvrm {

Result<RequestId> EventQueue::PushSubmit(GenerateRequest request, int64_t now_us) {
  RequestId id;
  {
    const std::lock_guard lock(mutex_);
    if (stop_) return Unavailable("the engine is stopping and takes no further requests");
    if (waiting_ >= max_waiting_) {
      return NoRoom("the queue holds " + std::to_string(waiting_) +
                    " waiting requests, and max_queued is " + std::to_string(max_waiting_));
    }
    id = RequestId{last_id_ + 1};
    events_.push_back({Event::Kind::kSubmit, id, std::move(request), now_us});
    ++last_id_;
    ++waiting_;
  }
  arrived_.notify_one();
  return id;
}

void EventQueue::PushCancel(RequestId id) {
  RetryUntilMemory([&] {
    const std::lock_guard lock(mutex_);
    events_.push_back({.kind = Event::Kind::kCancel, .id = id});
  });
  arrived_.notify_one();
}

void EventQueue::PushIdle() {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back({.kind = Event::Kind::kIdle});
  }
  arrived_.notify_one();
}

void EventQueue::PushStop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  arrived_.notify_one();
}

bool EventQueue::Drain(std::vector<Event>* events) {
  events->clear();
  const std::lock_guard lock(mutex_);
  events->swap(events_);
  return stop_;
}

void EventQueue::NoLongerWaiting(uint32_t count) {
  if (count == 0) return;
  const std::lock_guard lock(mutex_);
  waiting_ -= count;
}

void EventQueue::Wait() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return stop_ || !events_.empty(); });
}

void EventQueue::WaitOrIdle(std::chrono::microseconds timeout) {
  std::unique_lock lock(mutex_);
  if (arrived_.wait_for(lock, timeout, [this] { return stop_ || !events_.empty(); })) return;
  try {
    events_.push_back({.kind = Event::Kind::kIdle});
  } catch (const std::bad_alloc&) {
    return;  // the next wait asks again
  }
}

}  // namespace kvrm
