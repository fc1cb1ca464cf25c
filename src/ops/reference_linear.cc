// The linear op of the reference: one chain per output. See reference.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/op_args.h"
#include "ops/reference.h"
#include "tensor/dtype.h"

namespace kvrm::ops::reference {
namespace {

// Rule 4: one fma chain in ascending k.
float FloatDot(const std::byte* panel, uint32_t lane, const std::byte* x, uint32_t k) {
  float acc = 0.0f;
  for (uint32_t i = 0; i < k; ++i) {
    acc = std::fma(Read<float>(x, i), Read<float>(panel, size_t{i} * kPanel + lane), acc);
  }
  return acc;
}

// Rule 3: per group of 32 an exact integer dot, then one fma for the scales and one for the
// minimum.
float Q4Dot(const std::byte* panel, uint32_t lane, const std::byte* x, uint32_t k) {
  const ActivationLayout layout{k};
  float acc = 0.0f;
  for (uint32_t g = 0; g < layout.groups(); ++g) {
    const std::byte* group = panel + size_t{g} * kQ4GroupBytes;
    int32_t sum = 0;
    for (uint32_t i = 0; i < kGroup; ++i) {
      const auto byte = Read<uint8_t>(group, i / 8 * 64 + lane * 4 + i % 4);
      sum += (i % 8 < 4 ? byte & 15 : byte >> 4) * Read<int8_t>(x, size_t{g} * kGroup + i);
    }
    const float d = HalfToFloat(Read<uint16_t>(group + 256, lane));
    const float m = HalfToFloat(Read<uint16_t>(group + 288, lane));
    const float scale = Read<float>(x + layout.scale_offset(), g);
    acc = std::fma(d * scale, static_cast<float>(sum), acc);
    acc = std::fma(m, Read<float>(x + layout.scaled_sum_offset(), g), acc);
  }
  return acc;
}

float Q8Dot(const std::byte* panel, uint32_t lane, const std::byte* x, uint32_t k) {
  const ActivationLayout layout{k};
  const std::byte* scales = panel + size_t{layout.groups()} * kQ8GroupBytes;
  float acc = 0.0f;
  for (uint32_t g = 0; g < layout.groups(); ++g) {
    const std::byte* group = panel + size_t{g} * kQ8GroupBytes;
    int32_t sum = 0;
    for (uint32_t i = 0; i < kGroup; ++i) {
      const int32_t code = Read<uint8_t>(group, i / 4 * 64 + lane * 4 + i % 4);
      sum += (code - 128) * Read<int8_t>(x, size_t{g} * kGroup + i);
    }
    const float d = HalfToFloat(Read<uint16_t>(scales, size_t{g} * kPanel + lane));
    acc = std::fma(d * Read<float>(x + layout.scale_offset(), g), static_cast<float>(sum), acc);
  }
  return acc;
}

// The maxima of the blocks of 256 outputs that panels [panel, end) lie in; NaN where a block holds
// a value that is not finite. Minus zero counts as zero.
void BlockMaxima(const LinearArgs& args, uint32_t row, uint32_t panel, uint32_t end) {
  const float* y = args.out + row * args.out_stride;
  for (uint32_t begin = panel * kPanel; begin < end * kPanel; begin += 256) {
    float best = -std::numeric_limits<float>::infinity();
    bool finite = true;
    for (uint32_t n = begin; n < std::min(begin + 256, args.n_live); ++n) {
      if (y[n] > best) best = y[n];
      finite = finite && std::isfinite(y[n]);
    }
    args.panel_max[row * args.panel_max_stride + begin / 256] =
        finite ? best + 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
}

}  // namespace

void Linear(const LinearArgs& args, uint32_t panel_begin, uint32_t num_panels, Scratch) {
  const auto dot = args.encoding == Encoding::kF32  ? FloatDot
                   : args.encoding == Encoding::kQ4 ? Q4Dot
                                                    : Q8Dot;
  for (uint32_t row = 0; row < args.num_rows; ++row) {
    const std::byte* x = args.in + row * args.in_stride;
    const size_t add_row = args.add_index == nullptr ? row : args.add_index[row];
    for (uint32_t p = panel_begin; p < panel_begin + num_panels; ++p) {
      const std::byte* panel = args.panels + p * PanelBytes(args.encoding, args.k);
      for (uint32_t lane = 0; lane < kPanel; ++lane) {
        const size_t column = size_t{p} * kPanel + lane;
        float value = dot(panel, lane, x, args.k);
        if (args.bias != nullptr) value = args.bias[column] + value;
        if (args.add != nullptr) value = args.add[add_row * args.out_stride + column] + value;
        if (args.soft_cap != 0.0f) value = SoftCap(value, args.soft_cap) + (value - value);
        args.out[row * args.out_stride + column] = value;
      }
    }
    if (args.panel_max != nullptr) BlockMaxima(args, row, panel_begin, panel_begin + num_panels);
  }
}

}  // namespace kvrm::ops::reference
