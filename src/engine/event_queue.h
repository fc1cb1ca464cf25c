// The engine's only entrance: submits and cancels in the order in which they came, and the wish to
// stop. Drained once at the start of each step.
//
// Thread class: thread-safe; Drain, NoLongerWaiting and Wait from the engine thread only. A lock is
// held for a push, a swap or a count, never during a step.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"

namespace kvrm {

struct Event {
  // kIdle: nothing has come for a while; one piece of tidying is due. It is an event like the
  // others, so that a record of events tells when cached pages were given up.
  enum class Kind : uint8_t { kSubmit, kCancel, kIdle } kind = Kind::kSubmit;
  RequestId id;
  GenerateRequest request;  // of kSubmit
  int64_t submit_us = 0;    // of kSubmit
};

class EventQueue {
 public:
  explicit EventQueue(uint32_t max_waiting) : max_waiting_(max_waiting) {}

  // Error kNoRoom: `max_waiting` requests wait already. kUnavailable: the engine is stopping.
  Result<RequestId> PushSubmit(GenerateRequest request, int64_t now_us);
  void PushCancel(RequestId id);  // is never lost, whatever memory there is
  void PushIdle();
  void PushStop();

  // Moves all events into `events` (cleared first; its capacity is reused). Returns whether to
  // stop.
  bool Drain(std::vector<Event>* events);
  // `count` requests were admitted, or ended without having been: that many may be pushed anew.
  void NoLongerWaiting(uint32_t count);
  // Sleeps until there is an event or the wish to stop.
  void Wait();
  // The same, but after `timeout` without one it puts a kIdle event in.
  void WaitOrIdle(std::chrono::microseconds timeout);

 private:
  const uint32_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  // Guarded by mutex_.
  std::vector<Event> events_;
  uint64_t last_id_ = 0;
  uint32_t waiting_ = 0;  // submitted, not yet admitted or ended
  bool stop_ = false;
};

}  // namespace kvrm
