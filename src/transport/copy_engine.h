// The seam for what carries trains out: a CPU here; a DMA queue or a device stream elsewhere.
//
// Thread class: engine-thread-only. Errors: an offset outside its space is a bug (KVRM_CHECK).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/kv_view.h"
#include "transport/descriptor.h"

namespace kvrm {

class CopyEngine {
 public:
  virtual ~CopyEngine() = default;
  // Where a space lies. Requires: before the first Run that names it.
  virtual void Bind(CopySpace space, std::byte* base, uint64_t bytes) = 0;
  // Carries out `trains` in order. Returns when they are done (a CPU) or queued before everything
  // that the executor is given later (a device).
  virtual void Run(std::span<const Train> trains) = 0;
};

// memcpy, with non-temporal stores for trains above kNonTemporalBytes: such a copy would push the
// weights out of the cache, and its destination is not read by the copier. Portable where the
// instruction set has none.
class CpuCopyEngine final : public CopyEngine {
 public:
  static constexpr uint64_t kNonTemporalBytes = 4096;
  void Bind(CopySpace space, std::byte* base, uint64_t bytes) override;
  void Run(std::span<const Train> trains) override;

 private:
  struct Space {
    std::byte* base = nullptr;
    uint64_t bytes = 0;
  };
  static constexpr uint32_t kKinds = 3;
  std::byte* At(CopySpace space, uint64_t offset, uint64_t bytes) const;
  Space spaces_[kKinds][kMaxKvGroups];
};

// tau of a copy engine: the smallest power of two from 16 KiB to 1 MiB that reaches 90 % of the
// fastest. Copies within 96 MiB of scratch of its own; about 0.1 s. Called lazily, off the step
// path.
struct TauCalibration {
  static constexpr uint32_t kSizes = 7;  // 16 KiB << i
  static constexpr uint64_t kSmallestBytes = 16 * 1024;
  static constexpr double kShareOfPlateau = 0.9;
  uint64_t tau_bytes = 0;
  double bytes_per_second[kSizes] = {};
};
TauCalibration CalibrateTau();
// The choice alone, from the rates of sizes 16 KiB << i. Requires: at least one rate. Pure.
uint64_t ChooseTau(std::span<const double> bytes_per_second);

}  // namespace kvrm
