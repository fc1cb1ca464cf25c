// The step path does not allocate: counted by the allocation functions of this program.
#include <memory>
#include <vector>

#include "base/counted_new.h"
#include "frame/frame.h"
#include "gtest/gtest.h"
#include "pager/pager.h"

namespace kvrm {
namespace {

constexpr uint32_t kSlots = 16;

PagerConfig Config() {
  KvGroupGeometry group;
  group.num_parts = 2;
  group.part_page_bytes = 512;
  group.pages_per_superblock = 64;
  group.superblock_bytes = 64 * 1024;
  PagerConfig config;
  config.geometry.groups = {group};
  config.kv_bytes = 64u << 20;
  config.max_slots = kSlots;
  config.max_seq_tokens = 4096;
  return config;
}

// One decode step of every sequence, and every 50th step one of them ends and another begins.
struct Decoder {
  std::unique_ptr<Pager> pager = std::move(Pager::Create(Config())).value();
  std::unique_ptr<FrameBuilder> builder =
      std::move(FrameBuilder::Create(pager->geometry(), {kSlots, kSlots, 256})).value();
  std::vector<SeqId> seqs;
  std::vector<Row> rows = std::vector<Row>(kSlots);
  std::vector<SlotHead> slots = std::vector<SlotHead>(kSlots);
  uint64_t epoch = 0;

  void Step() {
    pager->BeginStep();
    if (seqs.size() < kSlots) seqs.push_back(*pager->Open());
    for (SeqId seq : seqs) {
      const auto mark = pager->Mark(seq);
      const uint32_t tokens = pager->num_tokens(seq) + 1;
      ASSERT_EQ(pager->Reserve(seq, tokens + 7).status, ReserveStatus::kOk);
      pager->Rollback(mark);
      ASSERT_EQ(pager->Reserve(seq, tokens).status, ReserveStatus::kOk);
    }
    uint32_t live = 0;
    for (uint16_t slot = 0; slot < kSlots; ++slot) {
      for (SeqId seq : seqs) {
        if (pager->slot(seq).value != slot) continue;
        slots[live] = {.slot = slot, .row_begin = live, .num_rows = 1};
        slots[live].num_tokens[0] = pager->num_tokens(seq);
        rows[live] = {.slot = slot, .kv_index = pager->num_tokens(seq) - 1, .logits_idx = live};
        ++live;
      }
    }
    if (epoch % 50 == 49) {
      pager->Close(seqs.back());
      seqs.pop_back();
      --live;
    }
    ++epoch;
    builder->Publish(epoch, {rows.data(), live}, {slots.data(), live}, pager->Commit(epoch));
    pager->StepDone(epoch);
    pager->Maintain();
  }
};

TEST(Quiet, SteadyStepsDoNotAllocate) {
  Decoder decoder;
  decoder.seqs.reserve(kSlots);
  for (int i = 0; i < 100; ++i) decoder.Step();
  const uint64_t before = testing::NumAllocations();
  EXPECT_GT(before, 0u);  // the count counts
  for (int i = 0; i < 2'000; ++i) decoder.Step();
  EXPECT_EQ(testing::NumAllocations(), before);
}

}  // namespace
}  // namespace kvrm
