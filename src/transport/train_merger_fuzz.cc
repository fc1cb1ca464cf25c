// Arbitrary descriptors, cancels and collects: TRAIN-1 to TRAIN-5 hold. Eight bytes an operation;
// the first byte of the input is tau.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "transport/train_merger_testing.h"

namespace kvrm {
namespace {

using testing::CheckedMerger;

void RunOne(CheckedMerger& checked, const uint8_t* op) {
  constexpr uint64_t kBytes = CheckedMerger::kSpaceBytes;
  const uint64_t offset = op[1] % kBytes;
  const CopySpace space = CheckedMerger::Space(op[4] % 4);
  switch (op[0] % 8) {
    case 0:
      checked.Collect();
      return;
    case 1:
      checked.CancelSource(space, offset, 1 + op[3]);
      return;
    case 2:
      checked.Hurry(space, offset, 1 + op[3]);
      return;
    case 3:
      if (op[7] == 0) checked.Flush();
      return;
    default:
      break;
  }
  const uint64_t other = op[2] % kBytes;
  checked.Add({.source_offset = offset,
               .destination_offset = other,
               .bytes = 1 + op[3] % (kBytes - (offset > other ? offset : other)),
               .source = space,
               .destination = CheckedMerger::Space(op[5] % 4),
               .cause = static_cast<CopyCause>(op[6] % kNumCopyCauses),
               .max_age_steps = op[7]},
              1 + op[0] / 64);
}

}  // namespace
}  // namespace kvrm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kOpBytes = 8, kMaxOps = 96;
  if (size == 0) return 0;
  kvrm::testing::CheckedMerger checked(1 + data[0] % 48);
  const size_t ops = (size - 1) / kOpBytes;
  for (size_t i = 0; i < ops && i < kMaxOps; ++i) kvrm::RunOne(checked, data + 1 + i * kOpBytes);
  checked.Flush();
  KVRM_CHECK(checked.violations().empty(), "TRAIN-1..5 hold");
  return 0;
}
