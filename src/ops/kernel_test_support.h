// What the kernel tests share. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ops/op_args.h"
#include "ops/reference.h"
#include "tensor/dtype.h"
#include "tensor/kv_tile.h"

namespace kvrm::ops::testing {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr std::byte kUntouched{0xA5};

// The machines that this CPU and build offer, without the reference.
inline std::vector<const KernelTable*> VectorMachines() {
  std::vector<const KernelTable*> machines = {&PortableKernels()};
  for (const KernelTable* machine : {Avx2Kernels(), Avx512Kernels(), AmxKernels()}) {
    if (machine != nullptr) machines.push_back(machine);
  }
  return machines;
}
inline std::vector<const KernelTable*> AllMachines() {
  std::vector<const KernelTable*> machines = VectorMachines();
  machines.push_back(&ReferenceKernels());
  return machines;
}

inline constexpr ActivationKind kKinds[] = {ActivationKind::kFloat, ActivationKind::kInt8};
// Of an activation row of k values.
inline size_t RowBytes(ActivationKind kind, uint32_t k) {
  return kind == ActivationKind::kFloat ? k * sizeof(float) : ActivationLayout{k}.row_bytes();
}

// 64-byte aligned scratch for any op of the tests.
class TestScratch {
 public:
  TestScratch(uint32_t num_heads, uint32_t num_kv_heads, uint32_t head_dim)
      : size_(ScratchBytes({num_heads, num_kv_heads, head_dim, kMostK})), bytes_(size_ + 64) {}

  Scratch get() {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    return {bytes_.data() + (64 - address % 64) % 64, size_};
  }

 private:
  static constexpr uint32_t kMostK = 4096;  // of any linear of the tests
  size_t size_;
  std::vector<std::byte> bytes_;
};

inline std::vector<float> RandomFloats(size_t count, float low, float high, std::mt19937& rng) {
  std::uniform_real_distribution<float> value(low, high);
  std::vector<float> values(count);
  for (float& v : values) v = value(rng);
  return values;
}

inline uint32_t Pick(std::initializer_list<uint32_t> choices, std::mt19937& rng) {
  return choices.begin()[rng() % choices.size()];
}

// Equal bit for bit, padding and all. On failure: the first difference.
template <class T>
::testing::AssertionResult SameBytes(const std::vector<T>& got, const std::vector<T>& want) {
  const auto a = std::as_bytes(std::span(got));
  const auto b = std::as_bytes(std::span(want));
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i]) {
      return ::testing::AssertionFailure() << "byte " << i << " of " << a.size() << " differs";
    }
  }
  return ::testing::AssertionSuccess();
}

// K (plane 0) or V (1) of the token at `place` as its page holds it.
inline float HeldValue(KvFormat format, uint32_t head_dim, const std::byte* page, uint32_t kv_head,
                       uint32_t place, uint32_t plane, uint32_t d) {
  const KvTile tile = KvTileOf(format, head_dim);
  const std::byte* head = page + kv_head * tile.head_bytes;
  const std::byte* values = head + (plane == 0 ? 0 : tile.v_begin);
  const size_t at = plane == 0 ? size_t{d} * kPageTokens + place : size_t{place} * head_dim + d;
  if (format == KvFormat::kF32) return reference::Read<float>(values, at);
  if (format == KvFormat::kF16) return HalfToFloat(reference::Read<uint16_t>(values, at));
  const float scale =
      HalfToFloat(reference::Read<uint16_t>(head + tile.scales_begin, plane * kPageTokens + place));
  const int code =
      plane == 0 ? reference::Read<uint8_t>(values, size_t{d / 4} * 64 + place * 4 + d % 4) - 128
                 : reference::Read<int8_t>(values, at);
  return static_cast<float>(code) * scale;
}

// What gates make of `in`, blocks of 16 that alternate gate, up: a linear of one input, which is 1,
// has `in` for outputs where `in` is its weights.
inline GatedLinearArgs GatesOf(const std::vector<float>& in, ActivationKind kind,
                               GateFunction function, std::vector<std::byte>& out) {
  static constexpr float kOne = 1.0f;
  GatedLinearArgs args{};
  args.linear.in = reinterpret_cast<const std::byte*>(&kOne);
  args.linear.in_stride = 0;
  args.linear.panels = reinterpret_cast<const std::byte*>(in.data());
  args.linear.encoding = Encoding::kF32;
  args.linear.k = 1;
  args.linear.n = static_cast<uint32_t>(in.size());
  args.linear.num_rows = 1;
  args.function = function;
  args.kind = kind;
  args.out = out.data();
  args.out_stride = out.size();
  return args;
}
inline void RunGates(const KernelTable& machine, const GatedLinearArgs& args) {
  TestScratch scratch(1, 1, 64);
  machine.gated_linear(args, 0, args.linear.n / kPanel, scratch.get());
}

inline const char* NameOf(KvFormat format) {
  return format == KvFormat::kF32 ? "f32" : format == KvFormat::kF16 ? "f16" : "int8";
}
inline constexpr KvFormat kKvFormats[] = {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8};

}  // namespace kvrm::ops::testing
