// The one way from the engine thread to the server's I/O thread: events of all answers, in order.
// They are collected while the engine tells of a step and handed over together when it has, so that
// the reader never sees half a step: at most one write per step and stream (GenerationListener),
// and one lock and one wake for a step of 32 tokens, not 32.
//
// Threads: Append and Flush are the engine thread's, Take is the reader's.
//
// Bounded by what the engine can make: the reader takes everything at once, and a step adds at most
// one token for each running request, or a score for each of its rows with logits.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/retry_memory.h"
#include "engine/engine.h"

namespace kvrm {

class Generation;

struct MailboxEvent {
  Generation* generation = nullptr;  // alive until its last finish event was dispatched
  uint32_t choice = 0;
  TokenId token = -1;         // a token event, when `finish` is null
  int64_t made_us = 0;        // of a token: when it was made
  RequestTimings timings;     // of a token: as if its request ended with it
  uint32_t prompt_index = 0;  // not 0: no token made, but the score of this one of the prompt
  uint32_t rank = 0;          // of a score
  float logprob = 0;
  std::vector<TokenLogprob> top;
  std::unique_ptr<FinishEvent> finish;
  std::optional<PromptProgress> progress;  // then neither a token nor an end
};

class Mailbox {
 public:
  // `wake` is called on the engine thread, under no lock; it must neither block nor throw.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // To be handed over by the next Flush. Throws std::bad_alloc; then nothing was appended, and
  // `event` is as it was.
  void Append(MailboxEvent&& event) { collected_.push_back(std::move(event)); }

  // Hands over what was appended, and wakes the reader unless it has been woken and not yet taken.
  // Only behind what the reader has not taken memory may be needed: then it waits for one of both.
  void Flush() noexcept {
    if (collected_.empty()) return;
    bool was_empty = false;
    RetryUntilMemory([&] {
      const std::lock_guard<std::mutex> lock(mutex_);
      was_empty = events_.empty();
      if (was_empty) return events_.swap(collected_);
      events_.insert(events_.end(), std::make_move_iterator(collected_.begin()),
                     std::make_move_iterator(collected_.end()));
    });
    collected_.clear();
    if (was_empty) wake_();
  }

  // Exchanges `batch` (emptied first; its capacity is reused) for what was handed over.
  void Take(std::vector<MailboxEvent>& batch) {
    batch.clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    batch.swap(events_);
  }

 private:
  const std::function<void()> wake_;
  std::vector<MailboxEvent> collected_;  // engine thread
  std::mutex mutex_;
  std::vector<MailboxEvent> events_;  // guarded by mutex_
};

}  // namespace kvrm
