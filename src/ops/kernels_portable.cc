// The ops of one machine: any, in plain C++. See lanes.h.
#define KVRM_LANES_NS lanes_portable
#include "ops/attention_kernel.h"
#include "ops/gated_linear_kernel.h"
#include "ops/linear_op.h"
#include "ops/row_kernels.h"

namespace kvrm::ops {
namespace {

constexpr KernelTable kTable = {"portable",
                                lanes_portable::Embed,
                                lanes_portable::Norm,
                                lanes_portable::HeadNorm,
                                lanes_portable::Linear,
                                lanes_portable::GatedLinear,
                                lanes_portable::RopeWrite,
                                lanes_portable::Attention};

}  // namespace

const KernelTable& PortableKernels() { return kTable; }

}  // namespace kvrm::ops
