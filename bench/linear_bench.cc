// The linear op, one thread: every shape of SmolLM2-135M's layers and head, both integer
// encodings, 1 to 512 rows. Cold: copies of the weights are cycled through so that each call finds
// its own out of cache, as in a step. Hot: the same weights again and again.
//
// `ops` = multiply-adds times two per second; `bytes` = bytes of weights per second.
#include <random>
#include <string>
#include <vector>

#include "ops_bench.h"
#include "tensor/encoding.h"

namespace kvrm::bench {
namespace {

constexpr size_t kColdBytes = size_t{96} << 20;

struct Shape {
  uint32_t k;
  uint32_t n;
};
constexpr Shape kShapes[] = {{576, 960}, {576, 576}, {576, 3072}, {1536, 576}, {576, 49152}};

// Random codes, with scales of a finite size.
void FillPanels(Encoding encoding, uint32_t n, uint32_t k, std::byte* panels, std::mt19937& rng) {
  const size_t bytes = EncodedBytes(encoding, n, k);
  for (size_t i = 0; i < bytes; ++i) panels[i] = static_cast<std::byte>(rng() & 0x1F);
}

void Linear(benchmark::State& state, Shape shape, Encoding encoding, uint32_t rows, bool cold) {
  std::mt19937 rng(1);
  const size_t bytes = EncodedBytes(encoding, shape.n, shape.k);
  const size_t stride = (bytes + 4095) / 4096 * 4096;
  const size_t copies = cold ? std::max<size_t>(1, kColdBytes / stride) : 1;
  AlignedBytes weights(copies * stride);
  for (size_t i = 0; i < copies; ++i) {
    FillPanels(encoding, shape.n, shape.k, weights.data() + i * stride, rng);
  }
  const ActivationLayout layout{shape.k};
  AlignedBytes input(rows * layout.row_bytes());
  // Codes of any kind; scales (and sums, 0x3C.. as floats) of an ordinary size: sums that are too
  // small for a normal float would take ten times as long.
  for (size_t i = 0; i < rows * layout.row_bytes(); ++i) {
    const bool is_code = i % layout.row_bytes() < layout.scale_offset();
    input.data()[i] = static_cast<std::byte>(is_code ? rng() & 0x1F : 0x3C);
  }
  AlignedBytes out(size_t{rows} * shape.n * sizeof(float));
  const size_t scratch_bytes =
      ops::ScratchBytes({.num_heads = 9, .num_kv_heads = 3, .head_dim = 64, .max_k = shape.k});
  AlignedBytes scratch(scratch_bytes);
  ops::LinearArgs args{};
  args.in = input.data();
  args.in_stride = layout.row_bytes();
  args.encoding = encoding;
  args.k = shape.k;
  args.n = shape.n;
  args.num_rows = rows;
  args.out = reinterpret_cast<float*>(out.data());
  args.out_stride = shape.n;
  size_t turn = 0;
  for (auto _ : state) {
    args.panels = weights.data() + turn * stride;
    turn = turn + 1 == copies ? 0 : turn + 1;
    BestMachine().linear(args, 0, shape.n / kPanel, {scratch.data(), scratch_bytes});
    benchmark::ClobberMemory();
  }
  const auto calls = static_cast<double>(state.iterations());
  state.counters["ops"] =
      benchmark::Counter(2.0 * shape.k * shape.n * rows * calls, benchmark::Counter::kIsRate);
  state.counters["bytes"] =
      benchmark::Counter(static_cast<double>(bytes) * calls, benchmark::Counter::kIsRate);
}

const bool kRegistered = [] {
  for (bool cold : {true, false}) {
    for (Encoding encoding : {Encoding::kQ4, Encoding::kQ8}) {
      for (Shape shape : kShapes) {
        for (uint32_t rows : {1u, 2u, 3u, 4u, 6u, 8u, 12u, 16u, 32u, 64u, 128u, 512u}) {
          const std::string name = std::string("linear/") + (cold ? "cold" : "hot") + "/" +
                                   std::string(EncodingName(encoding)) + "/" +
                                   std::to_string(shape.k) + "x" + std::to_string(shape.n) +
                                   "/rows:" + std::to_string(rows);
          ReportExtremes(
              benchmark::RegisterBenchmark(name.c_str(), Linear, shape, encoding, rows, cold));
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace kvrm::bench
