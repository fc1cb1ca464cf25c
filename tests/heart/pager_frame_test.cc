// Pager and frame together: whatever the pager does, what an executor reads is what the pager says.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "frame/frame.h"
#include "gtest/gtest.h"
#include "pager/pager.h"
#include "pager/pager_testing.h"

namespace kvrm {
namespace {

using testing::MakePager;
using testing::TinyConfig;

class RandomFrames {
 public:
  RandomFrames(uint64_t seed, PagerConfig config) : random_(seed) {
    config.max_seq_tokens = 400;
    pager_ = MakePager(config);
    auto builder = FrameBuilder::Create(
        pager_->geometry(),
        {.max_slots = config.max_slots, .max_rows = 512, .max_pages = 400 / 16});
    builder_ = std::move(builder).value();
  }

  void Step() {
    pager_->BeginStep();
    written_.clear();
    for (uint32_t edits = Below(12); edits > 0; --edits) Edit();
    if (Below(8) == 0) {
      pager_->RollbackStep();
      lengths_ = published_lengths_;
      return;
    }
    Publish();
  }

  uint64_t epoch() const { return epoch_; }

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  uint32_t AnySequence() {
    auto it = lengths_.begin();
    std::advance(it, Below(static_cast<uint32_t>(lengths_.size())));
    return it->first;
  }

  void Edit() {
    const uint32_t choice = Below(16);
    if (lengths_.empty() || choice < 2) {
      if (const auto seq = pager_->Open()) lengths_[seq->value] = 0;
      return;
    }
    const uint32_t id = AnySequence();
    const SeqId seq{id};
    uint32_t& length = lengths_[id];
    if (choice < 3) {
      pager_->Close(seq);
      lengths_.erase(id);
      written_.erase(id);
    } else if (choice < 5) {
      length = Below(length + 1);
      pager_->Trim(seq, length);
      written_[id] = std::min(Written(id), length);
    } else if (choice < 7) {
      const uint32_t other = AnySequence();
      if (length != 0 || other == id) return;
      length = std::min(Below(lengths_[other] + 1), Written(other));
      (void)pager_->Alias(seq, SeqId{other}, length);
      written_[id] = std::min(Written(other), length);
    } else {
      const uint32_t from = Written(id), tokens = length + 1 + Below(30);
      if (pager_->Reserve(seq, tokens, tokens + Below(100)).status != ReserveStatus::kOk) return;
      length = tokens;
      written_[id] = from;
    }
  }

  // Token places of `id` that existed before this step: those after them get rows.
  uint32_t Written(uint32_t id) const {
    const auto changed = written_.find(id);
    if (changed != written_.end()) return changed->second;
    const auto published = published_lengths_.find(id);
    return published == published_lengths_.end() ? 0 : published->second;
  }

  void Publish() {
    std::vector<Row> rows;
    std::vector<SlotHead> slots;
    std::map<uint16_t, uint32_t> by_slot;
    for (const auto& [id, length] : lengths_) by_slot[pager_->slot(SeqId{id}).value] = id;
    const uint32_t groups = static_cast<uint32_t>(pager_->geometry().groups.size());
    uint32_t logits = 0;
    for (const auto& [slot, id] : by_slot) {
      SlotHead& head = slots.emplace_back();
      head = {};
      head.slot = slot;
      head.seq_id = id;
      head.row_begin = static_cast<uint32_t>(rows.size());
      for (uint32_t g = 0; g < groups; ++g) head.num_tokens[g] = lengths_[id];
      for (uint32_t place = Written(id); place < lengths_[id]; ++place) {
        Row& row = rows.emplace_back();
        row = {};
        row.slot = slot;
        row.position = row.kv_index = place;
        row.mask_id = kNone32;
        row.logits_idx = place + 1 == lengths_[id] ? logits++ : kNone32;
      }
      head.num_rows = static_cast<uint32_t>(rows.size()) - head.row_begin;
    }
    if (rows.size() > 512) return Retreat();

    ++epoch_;
    const auto deltas = pager_->Commit(epoch_);
    const FrameHead previous = last_.head == nullptr ? FrameHead{} : *last_.head;
    const FrameView frame = builder_->Publish(epoch_, rows, slots, deltas);
    for (const std::string& violation :
         ValidateFrame(pager_->geometry(), frame, last_.head == nullptr ? nullptr : &previous)) {
      ADD_FAILURE() << "epoch " << epoch_ << ": " << violation;
    }
    ASSERT_FALSE(DumpFrame(pager_->geometry(), frame).empty());
    CompareTables(frame, by_slot);
    if (Below(4) == 0) {  // a retry publishes the same, and changes nothing
      const uint64_t hash = builder_->chain_hash();
      ASSERT_EQ(builder_->Publish(epoch_, rows, slots, pager_->Commit(epoch_)).head, frame.head);
      ASSERT_EQ(builder_->chain_hash(), hash);
      CompareTables(frame, by_slot);
    }
    ASSERT_EQ(builder_->LastReads().runs, pager_->counters().read_runs);
    last_ = frame;
    published_lengths_ = lengths_;
    if (Below(3) > 0) pager_->StepDone(epoch_ - Below(2));
  }

  void Retreat() {
    pager_->RollbackStep();
    lengths_ = published_lengths_;
  }

  void CompareTables(const FrameView& frame, const std::map<uint16_t, uint32_t>& by_slot) {
    for (uint32_t g = 0; g < pager_->geometry().groups.size(); ++g) {
      for (uint16_t slot = 0; slot < frame.max_slots; ++slot) {
        const auto live = by_slot.find(slot);
        std::vector<uint32_t> expected(frame.max_pages);
        if (live != by_slot.end()) {
          const auto pages = pager_->pages(SeqId{live->second}, g);
          std::transform(pages.begin(), pages.end(), expected.begin(),
                         [](PageId page) { return page.value; });
        }
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), frame.SlotPages(g, slot)))
            << "epoch " << epoch_ << " group " << g << " slot " << slot;
      }
    }
  }

  std::mt19937_64 random_;
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<FrameBuilder> builder_;
  FrameView last_;
  uint64_t epoch_ = 0;
  std::map<uint32_t, uint32_t> lengths_, published_lengths_;  // by SeqId
  std::map<uint32_t, uint32_t> written_;                      // changed by this step's edits
};

void RunSteps(uint64_t seed, const PagerConfig& config) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomFrames frames(seed, config);
  while (frames.epoch() < 2'000 && !::testing::Test::HasFailure()) frames.Step();
}

TEST(PagerFrame, FramesOfRandomStepsAreSoundAndEqualThePagersTables) {
  for (uint64_t seed : {1u, 2u, 3u}) RunSteps(seed, TinyConfig(6));
}

TEST(PagerFrame, AlsoWhenEveryPageIsScattered) {
  PagerConfig config = TinyConfig(8);
  config.scatter_seed = 9;
  RunSteps(4, config);
}

TEST(PagerFrame, AlsoWithSeveralGroups) {
  PagerConfig config = TinyConfig(12);
  KvGroupGeometry wide = config.geometry.groups[0];
  wide.page_tokens = 32;
  config.geometry.groups.push_back(wide);
  RunSteps(5, config);
}

}  // namespace
}  // namespace kvrm
