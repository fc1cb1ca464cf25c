// The ops of one machine: AVX-512 with VNNI. See lanes.h.
#if defined(__x86_64__)

#define KVRM_LANES_AVX512
#define KVRM_LANES_NS lanes_avx512
#include "ops/attention_kernel.h"
#include "ops/gated_linear_kernel.h"
#include "ops/linear_op.h"
#include "ops/row_kernels.h"

namespace kvrm::ops {
namespace {

constexpr KernelTable kTable = {"avx512",
                                lanes_avx512::Embed,
                                lanes_avx512::Norm,
                                lanes_avx512::HeadNorm,
                                lanes_avx512::Linear,
                                lanes_avx512::GatedLinear,
                                lanes_avx512::RopeWrite,
                                lanes_avx512::Attention};

}  // namespace

const KernelTable* Avx512Kernels() {
  static const bool offered =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("f16c") != 0;
  return offered ? &kTable : nullptr;
}

}  // namespace kvrm::ops

#else

#include "ops/op_args.h"

namespace kvrm::ops {
const KernelTable* Avx512Kernels() { return nullptr; }
}  // namespace kvrm::ops

#endif
