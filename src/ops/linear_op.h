// The linear op: its tiles over a run of panels, and what is made of the outputs. Included once per
// machine after linear_kernel.h.
#pragma once

#include "ops/linear_kernel.h"
#if defined(KVRM_LANES_AMX)
#include "ops/linear_amx.h"
#endif

namespace kvrm::ops::KVRM_LANES_NS {

// cap * tanh(x / cap) of the outputs of panels [panel, end). An infinity becomes NaN, not the cap:
// it ends its request (num-1, rule 8).
inline void CapOutputs(const LinearArgs& args, uint32_t panel, uint32_t end) {
  for (uint32_t row = 0; row < args.num_rows; ++row) {
    float* y = args.out + row * args.out_stride;
    for (uint32_t i = panel * kLanes; i < end * kLanes; i += kLanes) {
      const F x = Load(y + i);
      Store(y + i, Add(SoftCap(x, args.soft_cap), Sub(x, x)));
    }
  }
}

// Maxima of blocks of 256 outputs, a hint for the sampler; NaN where any output of the block is not
// finite, so that one look at the maxima finds it (num-1, rule 8). x - x is 0 for finite values and
// NaN for all others. Adding 0 gives a zero its one sign.
inline void PanelMaxima(const LinearArgs& args, uint32_t panel, uint32_t end) {
  const F low = Set(-__builtin_inff());
  for (uint32_t row = 0; row < args.num_rows; ++row) {
    const float* y = args.out + row * args.out_stride;
    for (uint32_t begin = panel * kLanes; begin < end * kLanes; begin += 256) {
      const uint32_t stop = begin + 256 < args.n_live ? begin + 256 : args.n_live;
      F m = low;
      F fault = Zero();
      for (uint32_t i = begin; i < stop; i += kLanes) {
        const uint32_t live = stop - i < kLanes ? stop - i : kLanes;
        const F x = Load(y + i);
        m = Max(SelectFirst(live, x, low), m);
        fault = Add(fault, SelectFirst(live, Sub(x, x), Zero()));
      }
      args.panel_max[row * args.panel_max_stride + begin / 256] =
          TreeSum(fault) == 0.0f ? MaxLane(m) + 0.0f : __builtin_nanf("");
    }
  }
}

template <Encoding kEncoding>
inline void LinearOf(const LinearArgs& args, uint32_t panel, uint32_t end, bool near,
                     [[maybe_unused]] Scratch scratch) {
#if defined(KVRM_LANES_AMX)
  if (args.num_rows >= kMatrixRows) return LinearMatrix<kEncoding>(args, panel, end, near, scratch);
#endif
  LinearInt8<kEncoding>(args, panel, end, near);
}

// The product alone, of panels [panel, end). `near`: the call before this one was for the same
// panels, with this scratch, which no one has touched since.
inline void LinearPanels(const LinearArgs& args, uint32_t panel, uint32_t end, bool near,
                         Scratch scratch) {
  switch (args.encoding) {
    case Encoding::kF32:
      return LinearFloat(args, panel, end);
    case Encoding::kQ4:
      return LinearOf<Encoding::kQ4>(args, panel, end, near, scratch);
    case Encoding::kQ8:
      return LinearOf<Encoding::kQ8>(args, panel, end, near, scratch);
  }
}

inline void Linear(const LinearArgs& args, uint32_t panel, uint32_t num_panels, Scratch scratch) {
  const uint32_t end = panel + num_panels;
  LinearPanels(args, panel, end, /*near=*/false, scratch);
  if (args.soft_cap != 0.0f) CapOutputs(args, panel, end);
  if (args.panel_max != nullptr) PanelMaxima(args, panel, end);
}

}  // namespace kvrm::ops::KVRM_LANES_NS
