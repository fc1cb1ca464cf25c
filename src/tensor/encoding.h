// Weight encodings: what kernels read. A weight matrix [n, k] (n outputs, k inputs) is re-laid
// once, at load, into panels of 16 outputs, so that one 512-bit register holds one value of 16
// outputs.
//
//   kF32: panel = [k][16] float32.
//   kQ4:  panel = [k/32] groups of 320 bytes: 256 bytes of codes, 16 fp16 scales d, 16 fp16
//         minima m; value = d * code + m, code in 0..15. Codes: four 64-byte rows j = 0..3 of
//         [16 outputs][4 bytes]; byte i of output o holds k = 8j + i in its low and k = 8j + 4 + i
//         in its high nibble. Holds Q4_0 (m = -8 d) and Q4_1 exactly.
//   kQ8:  panel = [k/32][512] bytes of codes, then [k/32][16] fp16 scales, padded to 64 bytes;
//         value = d * (code - 128), code in 0..255 (0 only where a Q8_0 file says -128). Codes:
//         eight 64-byte rows j = 0..7 of [16 outputs][4 bytes], byte i of output o holds k = 4j +
//         i. Holds Q8_0, Q5_0 and IQ4_NL exactly.
//
// n is padded to a multiple of 16 with zero rows. Q4 and Q8 require k % 32 == 0.
// The group length 32 is part of the encoding and of contract num-1 (docs/numerics.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "tensor/dtype.h"

namespace kvrm {

enum class Encoding : uint8_t { kF32 = 0, kQ4 = 1, kQ8 = 2 };
inline constexpr uint32_t kPanel = 16;  // outputs of a panel
inline constexpr uint32_t kGroup = 32;  // values along k that share a scale
inline constexpr uint32_t kQ4GroupBytes = 320;
inline constexpr uint32_t kQ8GroupBytes = 512;

std::string_view EncodingName(Encoding encoding);  // "f32", "q4", "q8"

uint64_t PanelBytes(Encoding encoding, uint32_t k);
uint64_t EncodedBytes(Encoding encoding, uint32_t n, uint32_t k);

// The encoding nearest to a file's type: Q4_0 and Q4_1 -> kQ4 (exact), everything else -> kQ8.
Encoding NearestEncoding(DType type);

// Re-lays rows [0, n) of a row-major matrix of `type`, row length k, into `out`
// (EncodedBytes(encoding, n, k), 64-byte aligned), outputs placed from `first_output` (a multiple
// of 16) of a larger matrix whose panel 0 is `out`; the last panel is filled up with zero rows.
// Types that an encoding does not hold exactly are dequantised and made anew per group of 32:
//   kQ8: d = fp16(amax / 127), code = rint(w / d) + 128;
//   kQ4: m = fp16(min), d = fp16((max - min) / 15), code = rint((w - m) / d).
// Codes are clamped to their range; a group with a NaN or an infinity becomes all NaN. Thread-safe
// on disjoint outputs. Requires: a readable type. Errors: k not a multiple of the type's block or
// of 32; a scale or minimum above fp16's largest value.
Status EncodeRows(Encoding encoding, DType type, const void* rows, uint32_t n, uint32_t k,
                  uint32_t first_output, std::byte* out);

// Activations as integer linears read them: per row and group of 32, symmetric int8.
//   inv = amax > 0 ? 127 / amax : 0; code = rint(x * inv); scale = amax / 127 (as amax * (1/127f)).
// Memory of one row: [k] int8 codes, then float scale[k/32], float scaled_sum[k/32]
// (= scale * sum(codes)), int32 offset[k/32] (= -128 * sum(codes)); rows padded to 64 bytes.
struct ActivationLayout {
  uint32_t k = 0;
  uint32_t groups() const { return k / kGroup; }
  size_t scale_offset() const { return k; }
  size_t scaled_sum_offset() const { return scale_offset() + groups() * size_t{4}; }
  size_t offset_offset() const { return scaled_sum_offset() + groups() * size_t{4}; }
  size_t row_bytes() const { return (offset_offset() + groups() * size_t{4} + 63) / 64 * 64; }
};

// The value of one encoded weight, for oracles and tests.
float EncodedValue(Encoding encoding, const std::byte* panels, uint32_t k, uint32_t output,
                   uint32_t input);

}  // namespace kvrm
