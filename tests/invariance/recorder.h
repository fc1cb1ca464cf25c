// What a request leaves behind, bit for bit: tokens, logits of every sampled row, and the K and V
// bytes of every token place. Test code.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/engine.h"
#include "model/config.h"

namespace kvrm::testing {

struct Recording {
  std::vector<TokenId> tokens;
  std::vector<float> logits;        // [tokens, vocab]
  std::vector<std::byte> kv_bytes;  // [token places that are held, layers, heads, 2 * head_dim]
  StopReason reason = StopReason::kNone;
  std::string message;
  bool finished = false;
};

// Tokens, logits and page bytes by memcmp, and that there is something to compare.
void ExpectSame(const Recording& a, const Recording& b, const char* what);

// Bytes of K and V of one token place in every layer that holds it: a column of each K tile, a row
// of each V tile.
// Of `num_tokens` that are computed; a slot run reserves more.
void AppendTokenBytes(const ModelConfig& config, const Pager& pager, const FrameView& frame,
                      uint32_t slot, uint32_t token, uint32_t num_tokens,
                      std::vector<std::byte>& out);

// Observer and sink of all requests of one engine. The K and V of a request are copied at its last
// step: `final_tokens` = prompt + output - 1 places are then in the cache.
class Recorder final : public StepObserver, public EventSink {
 public:
  Recorder(const ModelConfig& config, Engine& engine) : config_(config), engine_(engine) {}

  void Watch(RequestId id, uint32_t final_tokens) { final_tokens_[id.value] = final_tokens; }
  Recording& of(RequestId id) { return recordings_[id.value]; }

  // What the schedule really was, so that a test can tell a crowd from a queue.
  struct Seen {
    uint32_t most_slots = 0;   // sequences with rows in one step
    uint32_t mixed_steps = 0;  // steps with prompt rows and decode rows
    uint32_t most_runs = 0;    // segments of one sequence
    uint32_t pages_of_most_runs = 0;
    uint32_t most_pages = 0;  // of one sequence, in group 0
    uint32_t preempted = 0;
  };
  const Seen& seen() const { return seen_; }

  void OnStep(const StepPlan& plan, const FrameView& frame, const StepResult& result) override;
  void OnToken(RequestId id, const TokenEvent& event) override;
  void OnFinish(RequestId id, const FinishEvent& event) override;

 private:
  const ModelConfig& config_;
  Engine& engine_;
  Seen seen_;
  std::map<uint64_t, uint32_t> final_tokens_;
  std::map<uint64_t, Recording> recordings_;
};

}  // namespace kvrm::testing
