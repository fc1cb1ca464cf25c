// The one way from the engine thread to the server's I/O thread: events of all answers, in order,
// in a vector under a mutex. Appending wakes the reader only when the vector was empty, so a step
// of 32 tokens costs one wake, not 32. Thread-safe.
//
// Bounded by what the engine can make: the reader takes everything at once, and a step adds at most
// one token for each running request, or a score for each of its rows with logits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace kvrm {

class Generation;

struct MailboxEvent {
  Generation* generation = nullptr;  // alive until its last finish event was dispatched
  uint32_t choice = 0;
  TokenId token = -1;         // a token event, when `finish` is null
  int64_t made_us = 0;        // of a token: when it was made
  uint32_t prompt_index = 0;  // not 0: no token made, but the score of this one of the prompt
  uint32_t rank = 0;          // of a score
  float logprob = 0;
  std::vector<TokenLogprob> top;
  std::unique_ptr<FinishEvent> finish;
  std::optional<PromptProgress> progress;  // then neither a token nor an end
};

class Mailbox {
 public:
  // `wake` is called on the thread that appends, under no lock; it must neither block nor throw.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // Throws std::bad_alloc; then nothing was appended, and `event` is as it was.
  void Append(MailboxEvent&& event) {
    bool was_empty = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      was_empty = events_.empty();
      events_.push_back(std::move(event));
    }
    if (was_empty) wake_();
  }

  // Exchanges `batch` (emptied first; its capacity is reused) for what has come in.
  void Take(std::vector<MailboxEvent>& batch) {
    batch.clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    batch.swap(events_);
  }

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<MailboxEvent> events_;
};

}  // namespace kvrm
