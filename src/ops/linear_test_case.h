// A linear with everything it reads and writes, of random values. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "ops/kernel_test_support.h"
#include "ops/op_args.h"
#include "ops/reference.h"
#include "tensor/dtype.h"
#include "tensor/encoding.h"

namespace kvrm::ops::testing {

inline constexpr uint32_t kSpareRows = 2;  // rows of the output beyond the live ones

// Rows of a file whose type `encoding` holds exactly, with random codes, scales and minima.
inline std::vector<std::byte> RandomFileRows(Encoding encoding, uint32_t n, uint32_t k,
                                             std::mt19937& rng) {
  const DType type = encoding == Encoding::kF32  ? DType::kF32
                     : encoding == Encoding::kQ4 ? DType::kQ4_1
                                                 : DType::kQ8_0;
  const DTypeInfo& info = GetDType(type);
  std::vector<std::byte> bytes(size_t{n} * k / info.block_values * info.block_bytes);
  std::uniform_real_distribution<float> value(-0.05f, 0.05f);
  for (auto& b : bytes) b = static_cast<std::byte>(rng());
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    const float first = value(rng);
    const uint16_t d = FloatToHalf(first);
    const uint16_t m = FloatToHalf(value(rng));
    if (type == DType::kF32) std::memcpy(bytes.data() + at, &first, sizeof first);
    if (type != DType::kF32) std::memcpy(bytes.data() + at, &d, sizeof d);
    if (type == DType::kQ4_1) std::memcpy(bytes.data() + at + 2, &m, sizeof m);
  }
  return bytes;
}

// One linear with everything it reads and writes.
struct LinearCase {
  LinearCase(Encoding e, uint32_t rows, uint32_t panels, uint32_t k_values, uint32_t seed)
      : encoding(e), num_rows(rows), n(panels * kPanel), k(k_values), rng(seed) {
    const DType type = e == Encoding::kF32  ? DType::kF32
                       : e == Encoding::kQ4 ? DType::kQ4_1
                                            : DType::kQ8_0;
    const auto file = RandomFileRows(e, n, k, rng);
    weights.resize(EncodedBytes(e, n, k) + 64);
    aligned = weights.data() + (64 - reinterpret_cast<uintptr_t>(weights.data()) % 64) % 64;
    EXPECT_TRUE(EncodeRows(e, type, file.data(), n, k, 0, aligned).ok());
    row_bytes = e == Encoding::kF32 ? size_t{k} * 4 : ActivationLayout{k}.row_bytes();
    x = RandomFloats(size_t{rows} * k, -3.0f, 3.0f, rng);
    EncodeInput();
    add = RandomFloats(size_t{rows} * Stride(), -1.0f, 1.0f, rng);
  }

  ActivationKind Kind() const {
    return encoding == Encoding::kF32 ? ActivationKind::kFloat : ActivationKind::kInt8;
  }
  size_t Stride() const { return n + 5; }
  void EncodeInput() {
    input.assign(num_rows * row_bytes, std::byte{0});
    for (uint32_t r = 0; r < num_rows; ++r) {
      reference::EncodeActivations(Kind(), x.data() + size_t{r} * k, k,
                                   input.data() + r * row_bytes);
    }
  }
  LinearArgs Args(std::vector<float>& out) {
    out.resize((num_rows + kSpareRows) * Stride());
    std::memset(out.data(), std::to_integer<int>(kUntouched), out.size() * sizeof(float));
    LinearArgs args{};
    args.in = input.data();
    args.in_stride = row_bytes;
    args.panels = aligned;
    args.encoding = encoding;
    args.k = k;
    args.n = n;
    args.num_rows = num_rows;
    args.add = with_add ? add.data() : nullptr;
    args.out = out.data();
    args.out_stride = Stride();
    args.n_live = n;
    return args;
  }
  std::vector<float> Run(const KernelTable& machine) {
    std::vector<float> out;
    const LinearArgs args = Args(out);
    TestScratch scratch(1, 1, 64);
    machine.linear(args, 0, n / kPanel, scratch.get());
    return out;
  }

  Encoding encoding;
  uint32_t num_rows;
  uint32_t n;
  uint32_t k;
  bool with_add = false;
  size_t row_bytes = 0;
  std::mt19937 rng;
  std::vector<std::byte> weights;
  std::byte* aligned = nullptr;
  std::vector<float> x;
  std::vector<std::byte> input;
  std::vector<float> add;
};

}  // namespace kvrm::ops::testing
