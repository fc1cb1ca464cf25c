// Random schedules for law I5: some requests are watched, others crowd around them. Test code.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "engine/loader.h"
#include "model/gguf.h"
#include "tests/invariance/recorder.h"

namespace kvrm::testing {

// Tokens of the random models that prompts are for.
inline constexpr uint32_t kVocab = 320;

struct WorkItem {
  std::vector<TokenId> prompt;
  uint32_t max_new_tokens = 8;
  uint32_t arrival_step = 0;
  int64_t cancel_step = -1;  // -1 = never
  float temperature = 0;
  uint64_t seed = 0;
};

inline std::vector<TokenId> RandomPrompt(std::mt19937_64& random, uint32_t vocab, uint32_t length) {
  std::vector<TokenId> prompt(length);
  for (TokenId& id : prompt) id = static_cast<TokenId>(random() % vocab);
  return prompt;
}

inline WorkItem RandomItem(std::mt19937_64& random, uint32_t vocab, uint32_t max_prompt,
                           uint32_t max_new, uint32_t max_arrival) {
  WorkItem item;
  item.prompt = RandomPrompt(random, vocab, 1 + static_cast<uint32_t>(random() % max_prompt));
  item.max_new_tokens = 1 + static_cast<uint32_t>(random() % max_new);
  item.arrival_step = static_cast<uint32_t>(random() % (max_arrival + 1));
  if (random() % 5 == 0) item.cancel_step = item.arrival_step + static_cast<int64_t>(random() % 6);
  item.temperature = random() % 2 == 0 ? 0.0f : 1.0f;
  item.seed = random();
  return item;
}

// Runs all items over one engine, on this thread, and returns their recordings in order; `seen`
// receives what the schedule was.
std::vector<Recording> RunWorkload(Runtime& runtime, const std::vector<WorkItem>& items,
                                   Recorder::Seen* seen = nullptr);

}  // namespace kvrm::testing
