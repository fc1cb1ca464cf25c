// What huge pages are worth to KV: reads of pieces that lie scattered in a populated range, with
// huge pages behind its superblocks and without.
//
//   ninja huge_page_bench && bench/huge_page_bench
//
// Pieces: a row of one layer of SmolLM2 at fp16 (768 bytes), a page of it, a run of 16 pages. Each
// benchmark checks the sum of what it read.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/check.h"
#include "pager/virtual_range.h"

namespace kvrm {
namespace {

constexpr uint64_t kSuperblockBytes = 6u << 20;
constexpr uint64_t kRangeBytes = 80 * kSuperblockBytes;  // many times what caches and TLB reach
constexpr uint64_t kReadBytes = 192u << 20;              // of it, in each iteration

VirtualRange Populated(bool huge) {
  auto range = VirtualRange::Reserve(kRangeBytes, huge ? kSuperblockBytes : 65'536);
  KVRM_CHECK(range.ok(), "bench: the system lends the range");
  VirtualRange populated = std::move(range).value();
  for (uint64_t at = 0; at < kRangeBytes; at += kSuperblockBytes) {
    populated.Populate(at, kSuperblockBytes);
  }
  std::memset(populated.base(), 1, kRangeBytes);
  return populated;
}

void BM_ScatteredReads(benchmark::State& state) {
  const VirtualRange range = Populated(state.range(0) != 0);
  const auto piece_bytes = static_cast<uint64_t>(state.range(1));
  std::vector<uint64_t> places(kRangeBytes / piece_bytes);
  for (size_t i = 0; i < places.size(); ++i) places[i] = i * piece_bytes;
  std::shuffle(places.begin(), places.end(), std::mt19937_64(1));
  places.resize(kReadBytes / piece_bytes);
  constexpr uint64_t kOnes = 0x0101'0101'0101'0101u;
  for (auto _ : state) {
    uint64_t sum = 0;
    for (const uint64_t place : places) {
      const auto* words = reinterpret_cast<const uint64_t*>(range.base() + place);
      sum = std::accumulate(words, words + piece_bytes / 8, sum);
    }
    KVRM_CHECK(sum == places.size() * (piece_bytes / 8) * kOnes, "bench: every byte is read");
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(places.size() * piece_bytes));
}
BENCHMARK(BM_ScatteredReads)
    ->ArgNames({"huge", "piece_bytes"})
    ->ArgsProduct({{0, 1}, {768, 12'288, 196'608}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvrm
