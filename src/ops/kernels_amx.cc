// The ops of one machine: AVX-512 with VNNI, and its matrix unit for linears of many rows and for
// prompts over int8 pages. All else is that of kernels_avx512.cc. See lanes.h.
#if defined(__x86_64__)

#include <sys/syscall.h>
#include <unistd.h>

#define KVRM_LANES_AVX512
#define KVRM_LANES_AMX
#define KVRM_LANES_NS lanes_amx
#include "ops/attention_amx.h"
#include "ops/gated_linear_kernel.h"
#include "ops/linear_op.h"

namespace kvrm::ops {
namespace {

void AttentionAmx(const AttentionArgs& args, uint32_t task, Scratch scratch) {
  if (lanes_amx::SuitsMatrixUnit(args, args.tasks[task])) {
    return lanes_amx::MatrixTask(args, args.tasks[task], scratch);
  }
  Avx512Kernels()->attention(args, task, scratch);
}

// A process asks once for the state that tiles need; a kernel that does not know them refuses.
bool MayUseTiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

KernelTable MakeTable(const KernelTable& avx512) {
  KernelTable table = avx512;
  table.name = "amx";
  table.linear = lanes_amx::Linear;
  table.gated_linear = lanes_amx::GatedLinear;
  table.attention = AttentionAmx;
  table.int8_task_rows = kMaxTaskRows;
  return table;
}

}  // namespace

const KernelTable* AmxKernels() {
  static const KernelTable* const avx512 = Avx512Kernels();
  static const bool offered = avx512 != nullptr && __builtin_cpu_supports("amx-tile") != 0 &&
                              __builtin_cpu_supports("amx-int8") != 0 && MayUseTiles();
  if (!offered) return nullptr;
  static const KernelTable table = MakeTable(*avx512);
  return &table;
}

}  // namespace kvrm::ops

#else

#include "ops/op_args.h"

namespace kvrm::ops {
const KernelTable* AmxKernels() { return nullptr; }
}  // namespace kvrm::ops

#endif
