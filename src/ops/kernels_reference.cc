// The row ops of the reference, and its table. See reference.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/op_args.h"
#include "ops/reference.h"
#include "tensor/dtype.h"
#include "tensor/kv_tile.h"

namespace kvrm::ops {
namespace reference {
namespace {

// Rule 12: K or V of one token and head as bytes, and the fp16 bits of their scale.
struct EncodedPlane {
  std::vector<int8_t> codes;
  uint16_t scale;
};
EncodedPlane EncodePlane(const float* x, uint32_t head_dim) {
  EncodedPlane plane = {std::vector<int8_t>(head_dim, 0), 0x7E00};
  const float amax = GreatestMagnitude(x, head_dim);
  if (!std::isfinite(amax)) return plane;
  plane.scale = FloatToHalf(std::min(amax * (1.0f / 127.0f), 65504.0f));
  const bool greatest = HalfToFloat(plane.scale) == 65504.0f;
  if (127.0f * HalfToFloat(plane.scale) < amax && !greatest) ++plane.scale;
  const float scale = HalfToFloat(plane.scale);
  if (scale == 0.0f) return plane;
  const float inverse = 1.0f / scale;
  for (uint32_t d = 0; d < head_dim; ++d) {
    const float code = std::clamp(x[d] * inverse, -127.0f, 127.0f);
    plane.codes[d] = static_cast<int8_t>(std::rint(code));
  }
  return plane;
}

void WriteBytes(const float* k, const float* v, uint32_t head_dim, uint32_t place,
                std::byte* head) {
  const KvTile tile = KvTileOf(KvFormat::kInt8, head_dim);
  const EncodedPlane key = EncodePlane(k, head_dim);
  const EncodedPlane value = EncodePlane(v, head_dim);
  Write<uint16_t>(head + tile.scales_begin, place, key.scale);
  Write<uint16_t>(head + tile.scales_begin, kPageTokens + place, value.scale);
  for (uint32_t d = 0; d < head_dim; ++d) {
    const auto code = static_cast<uint8_t>(key.codes[d] + 128);
    Write<uint8_t>(head, size_t{d / 4} * 64 + place * 4 + d % 4, code);
    Write<int8_t>(head + tile.v_begin, size_t{place} * head_dim + d, value.codes[d]);
  }
}

// Layouts of tensor/kv_tile.h; `head` is the KV head's part of the page.
void WriteHead(KvFormat format, const float* k, const float* v, uint32_t head_dim, uint32_t place,
               std::byte* head) {
  if (format == KvFormat::kInt8) return WriteBytes(k, v, head_dim, place, head);
  std::byte* const values = head + KvTileOf(format, head_dim).v_begin;
  for (uint32_t d = 0; d < head_dim; ++d) {
    const size_t k_at = size_t{d} * kPageTokens + place;
    const size_t v_at = size_t{place} * head_dim + d;
    if (format == KvFormat::kF32) {
      Write<float>(head, k_at, k[d]);
      Write<float>(values, v_at, v[d]);
    } else {
      const auto encode = [](float x) { return FloatToHalf(std::clamp(x, -65504.0f, 65504.0f)); };
      Write<uint16_t>(head, k_at, encode(k[d]));
      Write<uint16_t>(values, v_at, encode(v[d]));
    }
  }
}

void RotateHead(const RopeWriteArgs& args, float* head, uint32_t position) {
  const uint32_t half = args.rope_dims / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const float c = args.cos_table[size_t{position} * half + i];
    const float s = args.sin_table[size_t{position} * half + i];
    float& x = head[args.interleaved ? 2 * i : i];
    float& y = head[args.interleaved ? 2 * i + 1 : i + half];
    const float a = x;
    const float b = y;
    x = std::fma(a, c, -(b * s));
    y = std::fma(a, s, b * c);
  }
}

// 1 / sqrt(mean(x^2) + eps): lane i % 16 takes x[i], then the fixed tree.
float InverseRms(const float* x, uint32_t k, float eps) {
  Lanes squares{};
  for (uint32_t i = 0; i < k; ++i) {
    squares[i % kNumLanes] = std::fma(x[i], x[i], squares[i % kNumLanes]);
  }
  return 1.0f / std::sqrt(TreeSum(squares) / static_cast<float>(k) + eps);
}

float GateOf(GateFunction function, float gate) {
  float exponent = 0.0f - gate;
  if (function == GateFunction::kGeluTanh) {
    exponent *= std::fma(gate * gate, kGeluCubic, kGeluLinear);
  }
  return gate / (1.0f + Exp(exponent));
}

}  // namespace

float GreatestMagnitude(const float* x, uint32_t count) {
  float greatest = 0.0f;
  for (uint32_t i = 0; i < count; ++i) {
    const float a = std::fabs(x[i]);
    if (a > greatest || std::isnan(a)) greatest = a;
  }
  return greatest;
}

Bytes EncodeQuery(const float* q, uint32_t head_dim) {
  const float amax = GreatestMagnitude(q, head_dim);
  const float inverse = amax > 0.0f ? 127.0f / amax : 0.0f;
  Bytes bytes = {{}, amax * (1.0f / 127.0f)};
  for (uint32_t d = 0; d < head_dim; ++d) {
    const float scaled = q[d] * inverse;
    bytes.codes.push_back(std::isfinite(scaled) ? static_cast<int8_t>(std::rint(scaled))
                                                : int8_t{0});
  }
  return bytes;
}

void EncodePart(ActivationKind kind, const float* x, uint32_t first, uint32_t count, uint32_t k,
                std::byte* row) {
  if (kind == ActivationKind::kFloat) {
    std::memcpy(row + first * sizeof(float), x, count * sizeof(float));
    return;
  }
  const ActivationLayout layout{k};
  for (uint32_t i = 0; i < count; i += kGroup) {
    const float* group = x + i;
    const uint32_t g = (first + i) / kGroup;
    const float amax = GreatestMagnitude(group, kGroup);  // a NaN must reach every output
    const float inverse = amax > 0.0f ? 127.0f / amax : 0.0f;
    int32_t sum = 0;
    for (uint32_t j = 0; j < kGroup; ++j) {
      const float scaled = group[j] * inverse;
      // Not finite, and then 0: a NaN, an infinity, or 127 / amax beyond float's range.
      const auto code = std::isfinite(scaled) ? static_cast<int8_t>(std::rint(scaled)) : int8_t{0};
      Write<int8_t>(row, size_t{g} * kGroup + j, code);
      sum += code;
    }
    const float scale = amax * (1.0f / 127.0f);
    Write<float>(row + layout.scale_offset(), g, scale);
    Write<float>(row + layout.scaled_sum_offset(), g, scale * static_cast<float>(sum));
    Write<int32_t>(row + layout.offset_offset(), g, -128 * sum);
  }
}

void EncodeActivations(ActivationKind kind, const float* x, uint32_t k, std::byte* row) {
  EncodePart(kind, x, 0, k, k, row);
}

void Embed(const EmbedArgs& args, uint32_t row) {
  const auto token = static_cast<uint32_t>(args.rows[row].token);
  const std::byte* panel = args.panels + token / kPanel * PanelBytes(args.encoding, args.k);
  const uint32_t lane = token % kPanel;
  float* out = args.out + row * args.out_stride;
  for (uint32_t i = 0; i < args.k; ++i) {
    const uint32_t g = i / kGroup;
    const uint32_t in_group = i % kGroup;
    if (args.encoding == Encoding::kF32) {
      out[i] = Read<float>(panel, size_t{i} * kPanel + lane);
    } else if (args.encoding == Encoding::kQ4) {
      const std::byte* group = panel + size_t{g} * kQ4GroupBytes;
      const auto byte = Read<uint8_t>(group, in_group / 8 * 64 + lane * 4 + in_group % 4);
      const float code = static_cast<float>(in_group % 8 < 4 ? byte & 15 : byte >> 4);
      const float d = HalfToFloat(Read<uint16_t>(group + 256, lane));
      const float m = HalfToFloat(Read<uint16_t>(group + 288, lane));
      out[i] = std::fma(d, code, m);
    } else {
      const auto code = Read<uint8_t>(
          panel, size_t{g} * kQ8GroupBytes + in_group / 4 * 64 + lane * 4 + in_group % 4);
      const std::byte* scales = panel + size_t{args.k / kGroup} * kQ8GroupBytes;
      out[i] = HalfToFloat(Read<uint16_t>(scales, size_t{g} * kPanel + lane)) *
               static_cast<float>(code - 128);
    }
    out[i] *= args.scale;
  }
}

void Norm(const NormArgs& args, uint32_t row) {
  const uint32_t source = args.row_index == nullptr ? row : args.row_index[row];
  const uint32_t add_row = args.add_index == nullptr ? row : args.add_index[row];
  const float* x = args.in + source * args.in_stride;
  const float r = InverseRms(x, args.k, args.eps);
  std::vector<float> y(args.k);
  for (uint32_t i = 0; i < args.k; ++i) {
    y[i] = x[i] * r * args.weight[i];
    if (args.add != nullptr)
      y[i] = args.add[add_row * (args.out_stride / sizeof(float)) + i] + y[i];
  }
  EncodeActivations(args.kind, y.data(), args.k, args.out + row * args.out_stride);
}

void HeadNorm(const HeadNormArgs& args, uint32_t row) {
  for (uint32_t h = 0; h < args.num_heads + args.num_kv_heads; ++h) {
    float* x = args.qkv + row * args.stride + size_t{h} * args.head_dim;
    const float* weight = args.weight + (h < args.num_heads ? 0 : args.head_dim);
    const float r = InverseRms(x, args.head_dim, args.eps);
    for (uint32_t i = 0; i < args.head_dim; ++i) x[i] = x[i] * r * weight[i];
  }
}

void RopeWrite(const RopeWriteArgs& args, uint32_t row) {
  const Row& r = args.rows[row];
  float* q = args.qkv + row * args.stride;
  float* k = q + size_t{args.num_heads} * args.head_dim;
  float* v = k + size_t{args.num_kv_heads} * args.head_dim;
  for (uint32_t h = 0; h < args.num_heads + args.num_kv_heads; ++h) {
    RotateHead(args, q + size_t{h} * args.head_dim, r.position);
  }
  for (const float* x = q; x < v + size_t{args.num_kv_heads} * args.head_dim; ++x) {
    if (!std::isfinite(*x)) args.row_status[row] = 1;
  }
  if ((r.flags & kRowNoWrite) != 0) return;
  std::byte* page = args.kv_base + args.write_offset[row] + args.part_offset;
  const size_t head_bytes = KvTileOf(args.format, args.head_dim).head_bytes;
  for (uint32_t h = 0; h < args.num_kv_heads; ++h) {
    WriteHead(args.format, k + size_t{h} * args.head_dim, v + size_t{h} * args.head_dim,
              args.head_dim, r.kv_index % kPageTokens, page + h * head_bytes);
  }
}

// The linear, then the gates, each as if it stood alone.
void GatedLinear(const GatedLinearArgs& args, uint32_t panel_begin, uint32_t num_panels,
                 Scratch scratch) {
  LinearArgs linear = args.linear;
  std::vector<float> y(size_t{linear.num_rows} * linear.n);
  linear.out = y.data();
  linear.out_stride = linear.n;
  Linear(linear, panel_begin, num_panels, scratch);
  const uint32_t first = panel_begin / 2 * kPanel;  // gate and up alternate in blocks of 16
  std::vector<float> gated(num_panels / 2 * kPanel);
  for (uint32_t row = 0; row < linear.num_rows; ++row) {
    for (uint32_t i = 0; i < gated.size(); ++i) {
      const uint32_t at = (first + i) / kPanel * 2 * kPanel + i % kPanel;
      const float* x = y.data() + size_t{row} * linear.n + at;
      gated[i] = GateOf(args.function, x[0]) * x[kPanel];
    }
    EncodePart(args.kind, gated.data(), first, static_cast<uint32_t>(gated.size()), linear.n / 2,
               args.out + row * args.out_stride);
  }
}

}  // namespace reference

const KernelTable& ReferenceKernels() {
  static constexpr KernelTable kTable = {
      "reference",       reference::Embed,       reference::Norm,      reference::HeadNorm,
      reference::Linear, reference::GatedLinear, reference::RopeWrite, reference::Attention};
  return kTable;
}

}  // namespace kvrm::ops
