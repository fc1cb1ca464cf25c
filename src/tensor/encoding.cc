#include "tensor/encoding.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "tensor/blocks.h"

namespace kvrm {
namespace {

constexpr uint16_t kHalfNaN = 0x7E00;
constexpr float kMaxHalf = 65504.0f;
constexpr uint32_t kQ4CodeBytes = kQ4GroupBytes - 2 * kPanel * sizeof(uint16_t);
constexpr uint32_t kRowBytes = 64;  // one 512-bit register: 4 bytes of each of 16 outputs

// One group of one output before it is laid into its panel. kQ4: value = d * code + m;
// kQ8: value = d * (code - 128).
struct Group {
  uint8_t codes[kGroup];
  uint16_t d = 0;
  uint16_t m = 0;
};

uint16_t LoadBits(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

Error ScaleOverflow(std::string_view what, float value) {
  return Unsupported("weight group " + std::string(what) + " " + std::to_string(value) +
                     " is above the fp16 limit 65504");
}

// ---- groups that a file's blocks hold exactly

Status TakeQ4_0(const uint8_t* block, Group* group) {
  group->d = LoadBits(block);
  const float minimum = -8.0f * HalfToFloat(group->d);
  // NaN passes, so that a broken weight ends the request that meets it, not the load.
  if (std::fabs(minimum) > kMaxHalf) return ScaleOverflow("minimum -8 d =", minimum);
  group->m = FloatToHalf(minimum);
  for (uint32_t i = 0; i < 16; ++i) {
    group->codes[i] = block[2 + i] & 15;
    group->codes[16 + i] = block[2 + i] >> 4;
  }
  return Ok();
}

void TakeQ4_1(const uint8_t* block, Group* group) {
  group->d = LoadBits(block);
  group->m = LoadBits(block + 2);
  for (uint32_t i = 0; i < 16; ++i) {
    group->codes[i] = block[4 + i] & 15;
    group->codes[16 + i] = block[4 + i] >> 4;
  }
}

void TakeQ8_0(const uint8_t* block, Group* group) {
  group->d = LoadBits(block);
  // Two's complement plus 128 is the sign bit flipped; a file's -128 becomes 0.
  for (uint32_t i = 0; i < kGroup; ++i) group->codes[i] = block[2 + i] ^ 0x80;
}

// q8 holds what is an fp16 scale times whole numbers within a byte.
void TakeQ5_0(const uint8_t* block, Group* group) {
  group->d = LoadBits(block);
  for (uint32_t i = 0; i < kGroup; ++i) {
    const int code = Code5(block + 2, block + 6, static_cast<int>(i)) - 16;
    group->codes[i] = static_cast<uint8_t>(code + 128);
  }
}

void TakeIQ4_NL(const uint8_t* block, Group* group) {
  group->d = LoadBits(block);
  for (uint32_t i = 0; i < 16; ++i) {
    group->codes[i] = static_cast<uint8_t>(kIq4NlValues[block[2 + i] & 15] + 128);
    group->codes[16 + i] = static_cast<uint8_t>(kIq4NlValues[block[2 + i] >> 4] + 128);
  }
}

// ---- groups made from float values

bool AllFinite(const float* values) {
  return std::all_of(values, values + kGroup, [](float v) { return std::isfinite(v); });
}

// A group with a non-finite value becomes all NaN: its scale is, whatever the codes.
void MakeNaN(Group* group) {
  std::fill_n(group->codes, kGroup, uint8_t{1});
  group->d = kHalfNaN;
  group->m = kHalfNaN;
}

Status MakeQ8(const float* values, Group* group) {
  if (!AllFinite(values)) {
    MakeNaN(group);
    return Ok();
  }
  float amax = 0;
  for (uint32_t i = 0; i < kGroup; ++i) amax = std::max(amax, std::fabs(values[i]));
  if (amax / 127.0f > kMaxHalf) return ScaleOverflow("scale", amax / 127.0f);
  group->d = FloatToHalf(amax / 127.0f);
  const float d = HalfToFloat(group->d);
  for (uint32_t i = 0; i < kGroup; ++i) {
    // A subnormal d is rounded coarsely, so the quotient may lie outside; d = 0 means all zero.
    const float code = d == 0 ? 0 : std::clamp(std::rint(values[i] / d), -127.0f, 127.0f);
    group->codes[i] = static_cast<uint8_t>(static_cast<int>(code) + 128);
  }
  return Ok();
}

Status MakeQ4(const float* values, Group* group) {
  if (!AllFinite(values)) {
    MakeNaN(group);
    return Ok();
  }
  const auto [low, high] = std::minmax_element(values, values + kGroup);
  const float step = *high / 15.0f - *low / 15.0f;
  if (std::fabs(*low) > kMaxHalf) return ScaleOverflow("minimum", *low);
  if (step > kMaxHalf) return ScaleOverflow("scale", step);
  group->m = FloatToHalf(*low);
  group->d = FloatToHalf(step);
  const float d = HalfToFloat(group->d);
  const float m = HalfToFloat(group->m);
  for (uint32_t i = 0; i < kGroup; ++i) {
    const float code = d == 0 ? 0 : std::clamp(std::rint((values[i] - m) / d), 0.0f, 15.0f);
    group->codes[i] = static_cast<uint8_t>(code);
  }
  return Ok();
}

// ---- panels

void PutHalf(std::byte* at, uint16_t bits) { std::memcpy(at, &bits, sizeof bits); }

// Lays group `g` of output `o` of a panel.
void PutQ4(std::byte* panel, uint32_t g, uint32_t o, const Group& group) {
  std::byte* base = panel + uint64_t{g} * kQ4GroupBytes;
  for (uint32_t j = 0; j < 4; ++j) {
    for (uint32_t i = 0; i < 4; ++i) {
      const int byte = group.codes[8 * j + i] | group.codes[8 * j + 4 + i] << 4;
      base[kRowBytes * j + 4 * o + i] = static_cast<std::byte>(byte);
    }
  }
  PutHalf(base + kQ4CodeBytes + 2 * o, group.d);
  PutHalf(base + kQ4CodeBytes + 2 * kPanel + 2 * o, group.m);
}

void PutQ8(std::byte* panel, uint32_t num_groups, uint32_t g, uint32_t o, const Group& group) {
  std::byte* base = panel + uint64_t{g} * kQ8GroupBytes;
  for (uint32_t j = 0; j < 8; ++j) {
    std::memcpy(base + kRowBytes * j + 4 * o, group.codes + 4 * j, 4);
  }
  std::byte* scales = panel + uint64_t{num_groups} * kQ8GroupBytes;
  PutHalf(scales + uint64_t{g} * kPanel * 2 + 2 * o, group.d);
}

bool HoldsExactly(Encoding encoding, DType type) {
  if (encoding == Encoding::kQ4) return type == DType::kQ4_0 || type == DType::kQ4_1;
  return type == DType::kQ8_0 || type == DType::kQ5_0 || type == DType::kIQ4_NL;
}

// Requires: an encoding holds the type exactly.
Status TakeGroup(DType type, const uint8_t* block, Group* group) {
  switch (type) {
    case DType::kQ4_0:
      return TakeQ4_0(block, group);
    case DType::kQ4_1:
      TakeQ4_1(block, group);
      return Ok();
    case DType::kQ5_0:
      TakeQ5_0(block, group);
      return Ok();
    case DType::kIQ4_NL:
      TakeIQ4_NL(block, group);
      return Ok();
    case DType::kQ8_0:
      TakeQ8_0(block, group);
      return Ok();
    default:
      KVRM_CHECK(false, "a group is taken only from a type that an encoding holds exactly");
  }
}

struct Matrix {
  DType type;
  const uint8_t* rows;
  uint64_t row_bytes;
  uint32_t n;
  uint32_t k;
};

// Output `o` of `panel` from row `row` of the matrix. `scratch`: [k].
Status EncodeIntegerRow(Encoding encoding, const Matrix& matrix, uint32_t row, uint32_t o,
                        float* scratch, std::byte* panel) {
  const uint32_t num_groups = matrix.k / kGroup;
  const uint8_t* source = matrix.rows + row * matrix.row_bytes;
  const bool exact = HoldsExactly(encoding, matrix.type);
  const uint32_t block_bytes = GetDType(matrix.type).block_bytes;
  if (!exact) Dequantize(matrix.type, source, matrix.k, scratch);
  for (uint32_t g = 0; g < num_groups; ++g) {
    Group group;
    if (exact) {
      KVRM_RETURN_IF_ERROR(TakeGroup(matrix.type, source + uint64_t{g} * block_bytes, &group));
    } else if (encoding == Encoding::kQ4) {
      KVRM_RETURN_IF_ERROR(MakeQ4(scratch + uint64_t{g} * kGroup, &group));
    } else {
      KVRM_RETURN_IF_ERROR(MakeQ8(scratch + uint64_t{g} * kGroup, &group));
    }
    if (encoding == Encoding::kQ4) {
      PutQ4(panel, g, o, group);
    } else {
      PutQ8(panel, num_groups, g, o, group);
    }
  }
  return Ok();
}

void EncodeFloatRow(const Matrix& matrix, uint32_t row, uint32_t o, float* scratch,
                    std::byte* panel) {
  Dequantize(matrix.type, matrix.rows + row * matrix.row_bytes, matrix.k, scratch);
  for (uint32_t i = 0; i < matrix.k; ++i) {
    std::memcpy(panel + (uint64_t{i} * kPanel + o) * sizeof(float), scratch + i, sizeof(float));
  }
}

// A row of zeros that fills a panel up. kQ8's zero is code 128 at scale 0.
void EncodePaddingRow(Encoding encoding, uint32_t k, uint32_t o, std::byte* panel) {
  if (encoding == Encoding::kF32) {
    for (uint32_t i = 0; i < k; ++i) {
      std::memset(panel + (uint64_t{i} * kPanel + o) * sizeof(float), 0, sizeof(float));
    }
    return;
  }
  Group zero;
  std::fill_n(zero.codes, kGroup, static_cast<uint8_t>(encoding == Encoding::kQ8 ? 128 : 0));
  for (uint32_t g = 0; g < k / kGroup; ++g) {
    if (encoding == Encoding::kQ4) {
      PutQ4(panel, g, o, zero);
    } else {
      PutQ8(panel, k / kGroup, g, o, zero);
    }
  }
}

}  // namespace

std::string_view EncodingName(Encoding encoding) {
  switch (encoding) {
    case Encoding::kF32:
      return "f32";
    case Encoding::kQ4:
      return "q4";
    case Encoding::kQ8:
      return "q8";
  }
  KVRM_CHECK(false, "encodings are f32, q4 and q8");
}

uint64_t PanelBytes(Encoding encoding, uint32_t k) {
  const uint64_t groups = k / kGroup;
  switch (encoding) {
    case Encoding::kF32:
      return uint64_t{k} * kPanel * sizeof(float);
    case Encoding::kQ4:
      return groups * kQ4GroupBytes;
    case Encoding::kQ8:
      return groups * kQ8GroupBytes + (groups * kPanel * sizeof(uint16_t) + 63) / 64 * 64;
  }
  KVRM_CHECK(false, "encodings are f32, q4 and q8");
}

uint64_t EncodedBytes(Encoding encoding, uint32_t n, uint32_t k) {
  return (uint64_t{n} + kPanel - 1) / kPanel * PanelBytes(encoding, k);
}

Encoding NearestEncoding(DType type) {
  return type == DType::kQ4_0 || type == DType::kQ4_1 ? Encoding::kQ4 : Encoding::kQ8;
}

Status EncodeRows(Encoding encoding, DType type, const void* rows, uint32_t n, uint32_t k,
                  uint32_t first_output, std::byte* out) {
  const DTypeInfo& info = GetDType(type);
  KVRM_CHECK(info.readable, "EncodeRows is asked only for readable types");
  KVRM_CHECK(first_output % kPanel == 0, "rows are placed at a panel's first output");
  if (k % info.block_values != 0) {
    return InvalidInput("row length " + std::to_string(k) + " is not a multiple of " +
                        std::to_string(info.block_values) + ", the block of type " +
                        std::string(info.name));
  }
  if (encoding != Encoding::kF32 && k % kGroup != 0) {
    return Unsupported("row length " + std::to_string(k) + " is not a multiple of " +
                       std::to_string(kGroup) + ", the group of encoding " +
                       std::string(EncodingName(encoding)) + " (--weights f32 takes it)");
  }
  const Matrix matrix{type, static_cast<const uint8_t*>(rows),
                      uint64_t{k} / info.block_values * info.block_bytes, n, k};
  std::vector<float> scratch(k);
  const uint64_t panel_bytes = PanelBytes(encoding, k);
  const uint64_t padded_n = (uint64_t{n} + kPanel - 1) / kPanel * kPanel;
  for (uint64_t row = 0; row < padded_n; ++row) {
    std::byte* panel = out + (first_output + row) / kPanel * panel_bytes;
    const auto o = static_cast<uint32_t>(row % kPanel);
    if (row >= n) {
      EncodePaddingRow(encoding, k, o, panel);
    } else if (encoding == Encoding::kF32) {
      EncodeFloatRow(matrix, static_cast<uint32_t>(row), o, scratch.data(), panel);
    } else {
      KVRM_RETURN_IF_ERROR(
          EncodeIntegerRow(encoding, matrix, static_cast<uint32_t>(row), o, scratch.data(), panel));
    }
  }
  return Ok();
}

float EncodedValue(Encoding encoding, const std::byte* panels, uint32_t k, uint32_t output,
                   uint32_t input) {
  const std::byte* panel = panels + uint64_t{output / kPanel} * PanelBytes(encoding, k);
  const uint32_t o = output % kPanel;
  const uint32_t g = input / kGroup;
  const uint32_t in_group = input % kGroup;
  const auto half_at = [](const std::byte* at) {
    return HalfToFloat(LoadBits(reinterpret_cast<const uint8_t*>(at)));
  };
  switch (encoding) {
    case Encoding::kF32: {
      float value;
      std::memcpy(&value, panel + (uint64_t{input} * kPanel + o) * sizeof value, sizeof value);
      return value;
    }
    case Encoding::kQ4: {
      const std::byte* base = panel + uint64_t{g} * kQ4GroupBytes;
      const uint32_t j = in_group / 8;
      const uint32_t i = in_group % 4;
      const int byte = std::to_integer<int>(base[kRowBytes * j + 4 * o + i]);
      const int code = in_group % 8 < 4 ? byte & 15 : byte >> 4;
      const float d = half_at(base + kQ4CodeBytes + 2 * o);
      const float m = half_at(base + kQ4CodeBytes + 2 * kPanel + 2 * o);
      return d * static_cast<float>(code) + m;
    }
    case Encoding::kQ8: {
      const std::byte* base = panel + uint64_t{g} * kQ8GroupBytes;
      const std::byte* scales = panel + uint64_t{k / kGroup} * kQ8GroupBytes;
      const int code =
          std::to_integer<int>(base[kRowBytes * (in_group / 4) + 4 * o + in_group % 4]);
      const float d = half_at(scales + uint64_t{g} * kPanel * 2 + 2 * o);
      return d * static_cast<float>(code - 128);
    }
  }
  KVRM_CHECK(false, "encodings are f32, q4 and q8");
}

}  // namespace kvrm
