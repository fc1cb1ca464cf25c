// What the transport costs on the engine thread: the window plan of a decode step, the merger, and
// the copies themselves. Build and run:
//   cmake --build build/release --target transport_bench && build/release/bench/transport_bench
#include <benchmark/benchmark.h>

#include <vector>

#include "frame/frame.h"
#include "transport/copy_engine.h"
#include "transport/page_copies.h"
#include "transport/train_merger.h"
#include "transport/window_residency.h"

namespace kvrm {
namespace {

// SmolLM2-135M at fp16: 30 parts of 12,288 bytes a page, 17 pages in a superblock of 6 MiB.
KvGeometry SmolGeometry() {
  KvGroupGeometry group;
  group.num_parts = 30;
  group.part_page_bytes = 12'288;
  group.pages_per_superblock = 17;
  group.superblock_bytes = 6u << 20;
  KvGeometry geometry;
  geometry.groups = {group};
  return geometry;
}

// Plan and Acknowledge of a step in which each of range(0) slots decodes a token; rows wait
// range(1) steps. Every 16th step appends a page to each slot. The frame's own cost is not counted.
void BM_WindowPlanOfDecode(benchmark::State& state) {
  constexpr uint32_t kMaxPages = 512, kPageTokens = 16;
  const auto slots = static_cast<uint32_t>(state.range(0));
  const KvGeometry geometry = SmolGeometry();
  auto frames = FrameBuilder::Create(
                    geometry, {.max_slots = slots, .max_rows = slots, .max_pages = kMaxPages})
                    .value();
  const uint64_t slot_bytes = uint64_t{kMaxPages} * geometry.groups[0].part_page_bytes;
  const WindowGeometry strides{.groups = {{.window_tokens = kMaxPages * kPageTokens,
                                           .slot_stride_bytes = slot_bytes,
                                           .part_stride_bytes = slots * slot_bytes}},
                               .publish_age_steps = static_cast<uint8_t>(state.range(1))};
  auto windows = WindowResidency::Create(geometry, strides, slots, kMaxPages).value();
  std::vector<Row> rows(slots);
  std::vector<SlotHead> heads(slots);
  std::vector<Delta> deltas;
  uint64_t epoch = 0;
  uint32_t length = 0;
  for (auto _ : state) {
    state.PauseTiming();
    deltas.clear();
    for (uint16_t slot = 0; slot < slots; ++slot) {
      if (length == kMaxPages * kPageTokens) {
        deltas.push_back({.slot = slot, .kind = DeltaKind::kTruncate});
      }
      if (length % kPageTokens == 0) {
        const uint32_t index = length / kPageTokens % kMaxPages;
        deltas.push_back({.slot = slot,
                          .kind = DeltaKind::kAppend,
                          .index = index,
                          .page = 1 + (index * slots + slot) * 2,
                          .count = 1,
                          .first_token_place = index * kPageTokens});
      }
    }
    length %= kMaxPages * kPageTokens;
    for (uint16_t slot = 0; slot < slots; ++slot) {
      rows[slot] = {.slot = slot, .position = length, .kv_index = length, .logits_idx = kNone32};
      heads[slot] = {.slot = slot, .seq_id = slot, .row_begin = slot, .num_rows = 1};
      heads[slot].num_tokens[0] = length + 1;
    }
    ++length;
    const FrameView frame = frames->Publish(++epoch, rows, heads, deltas);
    state.ResumeTiming();
    benchmark::DoNotOptimize(windows->Plan(frame).size());
    benchmark::DoNotOptimize(windows->Acknowledge(epoch).size());
  }
  const CopyCounters& counters = windows->counters();
  constexpr auto kPublish = static_cast<uint32_t>(CopyCause::kPublish);
  if (counters.copies[static_cast<uint32_t>(CopyCause::kStage)] != 0) {
    state.SkipWithError("WINDOW-2: steady decode stages nothing");
  }
  state.counters["pieces/copy"] = static_cast<double>(counters.copy_pieces[kPublish]) /
                                  static_cast<double>(counters.copies[kPublish]);
}
BENCHMARK(BM_WindowPlanOfDecode)->ArgsProduct({{8, 64}, {0, 8}})->Iterations(8192);

// One copy-on-write: 30 pieces of 12 KiB, planned and carried out.
void BM_CopyOnWriteOfAPage(benchmark::State& state) {
  const KvGeometry geometry = SmolGeometry();
  std::vector<std::byte> pool(8 * geometry.groups[0].superblock_bytes);
  CpuCopyEngine engine;
  engine.Bind({}, pool.data(), pool.size());
  TrainMerger merger;
  uint32_t page = 1;
  for (auto _ : state) {
    const Pager::PageCopy copy{
        .kv_group = 0, .source = PageId{page}, .destination = PageId{page + 68}};
    AddPageCopies(geometry, {&copy, 1}, merger);
    engine.Run(merger.Collect());
    page = page % 67 + 1;
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(geometry.groups[0].page_bytes()));
}
BENCHMARK(BM_CopyOnWriteOfAPage);

// Merging range(0) pieces of which each 8 are neighbours, in scattered order.
void BM_Merge(benchmark::State& state) {
  TrainMerger merger;
  const auto pieces = static_cast<uint64_t>(state.range(0));
  for (auto _ : state) {
    for (uint64_t i = 0; i < pieces; ++i) {
      const uint64_t at = i * 641 % pieces;
      merger.Add({.source_offset = at * 768 + at / 8 * 4096,
                  .destination_offset = at * 768 + at / 8 * 8192,
                  .bytes = 768,
                  .destination = {.kind = CopySpaceKind::kWindow}});
    }
    if (merger.Collect().size() != (pieces + 7) / 8) state.SkipWithError("TRAIN-3: runs of eight");
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Merge)->Arg(240)->Arg(4096);

void BM_CalibrateTau(benchmark::State& state) {
  TauCalibration calibration;
  for (auto _ : state) calibration = CalibrateTau();
  state.counters["tau_KiB"] = static_cast<double>(calibration.tau_bytes) / 1024;
  for (uint32_t i = 0; i < TauCalibration::kSizes; ++i) {
    state.counters["GBps_" + std::to_string(16u << i) + "K"] =
        calibration.bytes_per_second[i] / 1e9;
  }
}
BENCHMARK(BM_CalibrateTau)->Iterations(1)->Repetitions(5)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvrm
