// One model, loaded in each mode. Test code.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/loader.h"
#include "model/gguf.h"
#include "model/random_model.h"
#include "tests/invariance/workload.h"

namespace kvrm::testing {

class ModeModel {
 public:
  static constexpr uint32_t kSlots = 6;

  explicit ModeModel(std::vector<std::byte> bytes, KvFormat kv);
  // A random model of context `kRandomContext`; layers but every n-th have the window, if any.
  explicit ModeModel(KvFormat kv, uint32_t window = 0, uint32_t full_every = 0)
      : ModeModel(RandomBytes(window, full_every), kv) {}
  // More than two chunks of attention, no multiple of one.
  static constexpr uint32_t kRandomContext = 600;

  uint32_t vocab() const { return vocab_; }
  uint32_t context() const { return context_; }
  // With all checks on, what nobody has written NaN, and no cache, which static modes cannot have.
  RuntimeOptions Options(Mode mode) const;
  Result<std::unique_ptr<Runtime>> TryLoad(const RuntimeOptions& options) const {
    return LoadRuntime(*file_, options);
  }
  std::unique_ptr<Runtime> Load(const RuntimeOptions& options) const;

 private:
  static std::vector<std::byte> RandomBytes(uint32_t window, uint32_t full_every);

  const KvFormat kv_;
  const std::vector<std::byte> bytes_;
  std::unique_ptr<const GgufFile> file_;
  uint32_t vocab_ = 0, context_ = 0;
};

// Long and short, early and late, some given up; more than there are slots.
std::vector<WorkItem> ModeSchedule(const ModeModel& model, uint64_t seed);

// Law I5: runs `items` in every mode, with and without strict shapes, under `view`, and holds all
// of them to the first by memcmp. Returns what the first left.
std::vector<Recording> ExpectSameInAllModes(const ModeModel& model,
                                            const std::vector<WorkItem>& items,
                                            const std::string& view = "dense");

}  // namespace kvrm::testing
