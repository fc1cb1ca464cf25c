// The linear op whose outputs are gates and what they gate, and the activation of both. Included
// once per machine after linear_op.h and row_kernels.h.
//
// Panels alternate gate, up; four of them are one encoded group of 32 outputs. They are computed
// for up to kGatedRows rows into 12 KiB that stay in the first-level cache, gated and encoded from
// there: the 8 bytes an output that a buffer between two ops would write and read again are never
// moved, and a step has a barrier less a layer. An output costs 4 k operations of the linear and
// one exp, one division.
#pragma once

#include "ops/linear_op.h"
#include "ops/op_args.h"
#include "ops/row_kernels.h"

namespace kvrm::ops::KVRM_LANES_NS {

inline constexpr uint32_t kGatedRows = 8 * kTileRows;

template <GateFunction kFunction>
inline void GateBlock(const GatedLinearArgs& args, const float* y, uint32_t row, uint32_t panel,
                      uint32_t num_panels) {
  std::byte* out = args.out + row * args.out_stride;
  const F first = Gated<kFunction>(Load(y), Load(y + kLanes));
  if (args.kind == ActivationKind::kFloat) {
    float* at = reinterpret_cast<float*>(out) + size_t{panel / 2} * kLanes;
    Store(at, first);
    if (num_panels < kGatedPanels) return;
    Store(at + kLanes, Gated<kFunction>(Load(y + 2 * kLanes), Load(y + 3 * kLanes)));
    return;
  }
  const F second = Gated<kFunction>(Load(y + 2 * kLanes), Load(y + 3 * kLanes));
  EncodeGroup(first, second, out, args.linear.n / 2, panel / kGatedPanels);
}

template <GateFunction kFunction>
inline void GatedPanels(const GatedLinearArgs& args, uint32_t panel, uint32_t num_panels,
                        Scratch scratch) {
  alignas(64) float y[kGatedRows][kGatedPanels * kLanes];
  LinearArgs part = args.linear;
  part.out = y[0];
  part.out_stride = kGatedPanels * kLanes;
  part.panels += panel * PanelBytesOf(part.encoding, part.k);
  if (part.bias != nullptr) part.bias += size_t{panel} * kLanes;
  for (uint32_t row = 0; row < args.linear.num_rows; row += kGatedRows) {
    const uint32_t left = args.linear.num_rows - row;
    part.in = args.linear.in + row * part.in_stride;
    part.num_rows = left < kGatedRows ? left : kGatedRows;
    LinearPanels(part, 0, num_panels, /*near=*/row != 0, scratch);
    for (uint32_t r = 0; r < part.num_rows; ++r) {
      GateBlock<kFunction>(args, y[r], row + r, panel, num_panels);
    }
  }
}

inline void GatedLinear(const GatedLinearArgs& args, uint32_t panel, uint32_t num_panels,
                        Scratch scratch) {
  const uint32_t end = panel + num_panels;
  for (; panel < end; panel += kGatedPanels) {
    const uint32_t panels = end - panel < kGatedPanels ? end - panel : kGatedPanels;
    if (args.function == GateFunction::kSilu) {
      GatedPanels<GateFunction::kSilu>(args, panel, panels, scratch);
    } else {
      GatedPanels<GateFunction::kGeluTanh>(args, panel, panels, scratch);
    }
  }
}

}  // namespace kvrm::ops::KVRM_LANES_NS
