// Planning and acknowledging windows, and merging, do not allocate: counted by the allocation
// functions of this program.
#include <memory>
#include <vector>

#include "base/counted_new.h"
#include "frame/frame_testing.h"
#include "gtest/gtest.h"
#include "transport/train_merger.h"
#include "transport/window_residency.h"

namespace kvrm {
namespace {

constexpr uint32_t kSlots = 8;
constexpr uint32_t kMaxPages = 64;
constexpr uint32_t kPageTokens = 16;

TEST(TransportQuiet, TheCounterCounts) {
  const uint64_t before = testing::NumAllocations();
  ::operator delete(::operator new(8));
  EXPECT_EQ(testing::NumAllocations(), before + 1);
}

// 500 steps: every slot decodes; each tenth step one of them begins anew on the pages of another.
TEST(TransportQuiet, PlansOfDecodingAndForksDoNotAllocate) {
  const KvGeometry geometry = testing::TinyFrameGeometry();
  auto frames = testing::MakeBuilder(
      geometry, {.max_slots = kSlots, .max_rows = kSlots, .max_pages = kMaxPages});
  const uint64_t slot_bytes = uint64_t{kMaxPages} * 64;
  WindowGeometry strides{.groups = {{.window_tokens = kMaxPages * kPageTokens,
                                     .slot_stride_bytes = slot_bytes,
                                     .part_stride_bytes = kSlots * slot_bytes}},
                         .publish_age_steps = 8};
  auto windows = WindowResidency::Create(geometry, strides, kSlots, kMaxPages).value();
  std::vector<std::vector<uint32_t>> tables(kSlots);
  std::vector<uint32_t> lengths(kSlots);
  uint32_t next_page = 1, trains = 0;
  uint64_t allocations = 0;
  for (uint64_t epoch = 1; epoch <= 500; ++epoch) {
    std::vector<Row> rows;
    std::vector<SlotHead> heads;
    std::vector<Delta> deltas;
    const auto append = [&](uint16_t slot, uint32_t page) {
      const auto index = static_cast<uint32_t>(tables[slot].size());
      const bool extends = index > 0 && tables[slot].back() + 1 == page && page % 8 != 0;
      deltas.push_back(testing::MakeDelta(extends ? DeltaKind::kExtend : DeltaKind::kAppend, slot,
                                          index, page, 1));
      tables[slot].push_back(page);
    };
    for (uint16_t slot = 0; slot < kSlots; ++slot) {
      if (epoch % 10 == 0 && epoch / 10 % kSlots == slot) {
        const auto& source = tables[(slot + 1) % kSlots];
        const std::vector<uint32_t> shared(source.begin(), source.end() - 1);
        deltas.push_back(testing::MakeDelta(DeltaKind::kTruncate, slot, 0));
        tables[slot].clear();
        for (const uint32_t page : shared) append(slot, page);
        lengths[slot] = static_cast<uint32_t>(shared.size()) * kPageTokens;
      }
      if (lengths[slot] % kPageTokens == 0) append(slot, next_page++);
      rows.push_back(testing::MakeRow(slot, lengths[slot]++));
      heads.push_back(testing::MakeSlot(slot, lengths[slot], slot, 1));
      heads.back().seq_id += static_cast<uint32_t>(epoch / 10 + kSlots - slot) / kSlots * 1000;
    }
    const FrameView frame = frames->Publish(epoch, rows, heads, deltas);
    const uint64_t before = testing::NumAllocations();
    trains += static_cast<uint32_t>(windows->Plan(frame).size());
    trains += static_cast<uint32_t>(windows->Acknowledge(epoch).size());
    allocations += testing::NumAllocations() - before;
  }
  EXPECT_EQ(allocations, 0u);
  EXPECT_GT(trains, 1000u);
}

TEST(TransportQuiet, AMergerDoesNotAllocate) {
  TrainMerger merger;
  const uint64_t before = testing::NumAllocations();
  uint64_t trains = 0;
  for (uint64_t step = 0; step < 100; ++step) {
    for (uint64_t i = 0; i < kMaxPending / 4; ++i) {
      merger.Add({.source_offset = (i * 37 + step) * 64,
                  .destination_offset = (i * 37 + step) * 64,
                  .bytes = 64,
                  .destination = {.kind = CopySpaceKind::kWindow},
                  .max_age_steps = static_cast<uint8_t>(i % 5)});
    }
    merger.CancelSource({}, step * 1000, 300);
    trains += merger.Collect().size();
  }
  EXPECT_EQ(testing::NumAllocations(), before);
  EXPECT_GT(trains, 1000u);
}

}  // namespace
}  // namespace kvrm
