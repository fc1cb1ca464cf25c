// The ops of one machine: AVX2, FMA and F16C. See lanes.h.
#if defined(__x86_64__)

#define KVRM_LANES_AVX2
#define KVRM_LANES_NS lanes_avx2
#include "ops/attention_kernel.h"
#include "ops/gated_linear_kernel.h"
#include "ops/linear_op.h"
#include "ops/row_kernels.h"

namespace kvrm::ops {
namespace {

constexpr KernelTable kTable = {"avx2",
                                lanes_avx2::Embed,
                                lanes_avx2::Norm,
                                lanes_avx2::HeadNorm,
                                lanes_avx2::Linear,
                                lanes_avx2::GatedLinear,
                                lanes_avx2::RopeWrite,
                                lanes_avx2::Attention};

}  // namespace

const KernelTable* Avx2Kernels() {
  static const bool offered = __builtin_cpu_supports("avx2") != 0 &&
                              __builtin_cpu_supports("fma") != 0 &&
                              __builtin_cpu_supports("f16c") != 0;
  return offered ? &kTable : nullptr;
}

}  // namespace kvrm::ops

#else

#include "ops/op_args.h"

namespace kvrm::ops {
const KernelTable* Avx2Kernels() { return nullptr; }
}  // namespace kvrm::ops

#endif
