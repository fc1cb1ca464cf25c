// Random steps against a slow oracle: maps and sets, obviously right. The oracle knows no
// superblocks; it is told which pages the pager chose and says whether it could.
//
// The pages hold real bytes (the token's number in each token place), so that a page which is
// handed out too early, freed too early, shared by two writers or copied too late shows as wrong
// contents.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "pager/pager.h"
#include "pager/pager_testing.h"

namespace kvrm {
namespace {

using testing::MakePager;
using testing::TinyConfig;
using testing::TinyGroup;

constexpr uint32_t kPageTokens = 16;

uint32_t PagesFor(size_t tokens) {
  return static_cast<uint32_t>((tokens + kPageTokens - 1) / kPageTokens);
}

struct OracleSequence {
  std::vector<uint32_t> pages;
  std::vector<uint32_t> contents;  // what each token place holds once this step has run
  size_t written = 0;              // of these, before this step
};

struct Oracle {
  std::map<uint32_t, OracleSequence> sequences;  // by SeqId
  std::map<uint32_t, uint64_t> limbo;            // page -> epoch
  std::set<uint32_t> slots_closing;
  std::set<uint32_t> left_in_step;  // pages that lost a reference in this step
  uint32_t capacity = 0;            // pages that kv_bytes allows, null page left out

  uint32_t References(uint32_t page) const {
    uint32_t count = 0;
    for (const auto& [id, sequence] : sequences) {
      count +=
          static_cast<uint32_t>(std::count(sequence.pages.begin(), sequence.pages.end(), page));
    }
    return count;
  }
  std::set<uint32_t> Used() const {
    std::set<uint32_t> used;
    for (const auto& [id, sequence] : sequences) {
      used.insert(sequence.pages.begin(), sequence.pages.end());
    }
    return used;
  }
  uint64_t Free() const { return capacity - Used().size() - limbo.size(); }
  bool IsFree(uint32_t page) const {
    return page != 0 && page <= capacity && References(page) == 0 && !limbo.contains(page);
  }
  // Pages of `before` that nobody names any more rest until `epoch`.
  void Leave(const std::vector<uint32_t>& before, size_t keep, uint64_t epoch) {
    left_in_step.insert(before.begin() + static_cast<ptrdiff_t>(keep), before.end());
    Drop(before, epoch);
  }
  void Drop(const std::vector<uint32_t>& before, uint64_t epoch) {
    for (uint32_t page : before) {
      if (References(page) == 0) limbo.emplace(page, epoch);
    }
  }
};

class RandomSteps {
 public:
  RandomSteps(uint64_t seed, uint64_t scatter_seed) : random_(seed) {
    PagerConfig config = TinyConfig(6);
    config.poison_freed = true;
    config.scatter_seed = scatter_seed;
    config.max_seq_tokens = 400;
    pager_ = MakePager(config);
    oracle_.capacity = 6 * 8 - 1;
  }

  void Step() {
    const Oracle before = oracle_;
    const PagerSnapshot snapshot = pager_->Snapshot();
    pager_->BeginStep();
    oracle_.left_in_step.clear();
    for (uint32_t edits = Below(10); edits > 0; --edits) AnyEdit();
    if (Below(6) == 0) {
      pager_->RollbackStep();
      oracle_ = before;
      ASSERT_EQ(pager_->Snapshot(), snapshot);
      return;
    }
    Commit();
    if (Below(3) > 0) Complete(epoch_ - std::min<uint64_t>(epoch_, Below(3)));
  }

  uint64_t operations() const { return operations_; }

  // Ends everything: the pool is as it was at first.
  void Drain() {
    pager_->BeginStep();
    while (!oracle_.sequences.empty()) Close(SeqId{oracle_.sequences.begin()->first});
    Commit();
    Complete(epoch_);
    EXPECT_EQ(pager_->books(0).in_use, 1u);
    EXPECT_EQ(pager_->books(0).limbo, 0u);
    EXPECT_EQ(pager_->available_pages(false), oracle_.capacity);
  }

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

  SeqId AnySequence() {
    auto it = oracle_.sequences.begin();
    std::advance(it, Below(static_cast<uint32_t>(oracle_.sequences.size())));
    return SeqId{it->first};
  }

  void AnyEdit() {
    const uint32_t choice = Below(20);
    if (oracle_.sequences.empty() || choice < 2) return Open();
    if (choice < 3) return Close(AnySequence());
    if (choice < 5) return EditsUnderASavepoint();
    if (choice < 8) return Trim(AnySequence());
    if (choice < 10) return Alias();
    Reserve(AnySequence());
  }

  void Open() {
    ++operations_;
    const auto seq = pager_->Open();
    const bool room = oracle_.sequences.size() + oracle_.slots_closing.size() < 8;
    ASSERT_EQ(seq.has_value(), room);
    if (!seq) return;
    ASSERT_FALSE(oracle_.sequences.contains(seq->value));
    oracle_.sequences[seq->value];
    Compare();
  }

  void Close(SeqId seq) {
    ++operations_;
    const uint32_t slot = pager_->slot(seq).value;
    pager_->Close(seq);
    const std::vector<uint32_t> pages = oracle_.sequences[seq.value].pages;
    oracle_.sequences.erase(seq.value);
    oracle_.slots_closing.insert(slot);
    oracle_.Leave(pages, 0, epoch_ + 1);
    Compare();
  }

  void Reserve(SeqId seq) {
    ++operations_;
    OracleSequence& sequence = oracle_.sequences[seq.value];
    const auto length = static_cast<uint32_t>(sequence.contents.size());
    const uint32_t tokens = Below(5) == 0 ? Below(450) : length + Below(40);
    const uint32_t hint = Below(2) == 0 ? 0 : tokens + Below(200);
    const bool writes_shared =
        length % kPageTokens != 0 && (oracle_.References(sequence.pages.back()) > 1 ||
                                      oracle_.left_in_step.contains(sequence.pages.back()));
    const uint64_t needed =
        tokens <= length ? 0 : PagesFor(tokens) - sequence.pages.size() + (writes_shared ? 1 : 0);

    const Reservation reservation = pager_->Reserve(seq, tokens, hint);
    if (tokens > length && tokens > 400) {
      ASSERT_EQ(reservation.status, ReserveStatus::kUnserviceable);
      return Compare();
    }
    if (needed > oracle_.Free()) {
      ASSERT_EQ(reservation.status, ReserveStatus::kDeferred);
      ASSERT_EQ(reservation.missing_pages, needed - oracle_.Free());
      return Compare();
    }
    ASSERT_EQ(reservation.status, ReserveStatus::kOk);
    if (tokens <= length) return Compare();
    if (writes_shared) Replace(seq, sequence);
    const auto pages = pager_->pages(seq, 0);
    ASSERT_EQ(pages.size(), PagesFor(tokens));
    while (sequence.pages.size() < pages.size())
      Take(seq, sequence, pages[sequence.pages.size()], /*is_copy=*/false);
    while (sequence.contents.size() < tokens) sequence.contents.push_back(++next_content_);
    Compare();
  }

  void Take(SeqId seq, OracleSequence& sequence, PageId page, bool is_copy) {
    ASSERT_TRUE(oracle_.IsFree(page.value)) << "page " << page.value;
    sequence.pages.push_back(page.value);
    (is_copy ? copied_ : appended_).emplace_back(seq.value, page.value);
  }

  void Replace(SeqId seq, OracleSequence& sequence) {
    const uint32_t shared = sequence.pages.back();
    sequence.pages.pop_back();
    Take(seq, sequence, pager_->pages(seq, 0)[sequence.pages.size()], /*is_copy=*/true);
    oracle_.Leave({shared}, 0, epoch_ + 1);
  }

  void Trim(SeqId seq) {
    ++operations_;
    OracleSequence& sequence = oracle_.sequences[seq.value];
    const uint32_t from = Below(static_cast<uint32_t>(sequence.contents.size()) + 10);
    pager_->Trim(seq, from);
    if (from < sequence.contents.size()) {
      const std::vector<uint32_t> pages = sequence.pages;
      sequence.contents.resize(from);
      sequence.pages.resize(PagesFor(from));
      sequence.written = std::min<size_t>(sequence.written, from);
      oracle_.Leave(pages, sequence.pages.size(), epoch_ + 1);
    }
    Compare();
  }

  void Alias() {
    const SeqId src = AnySequence(), dst = AnySequence();
    if (!oracle_.sequences[dst.value].contents.empty()) return;
    ++operations_;
    const OracleSequence& source = oracle_.sequences[src.value];
    uint32_t tokens = Below(static_cast<uint32_t>(source.contents.size()) + 1);
    tokens = std::min(tokens, static_cast<uint32_t>(source.written));
    ASSERT_EQ(pager_->Alias(dst, src, tokens).status, ReserveStatus::kOk);
    OracleSequence& alias = oracle_.sequences[dst.value];
    const OracleSequence copy = source;
    alias.contents.assign(copy.contents.begin(), copy.contents.begin() + tokens);
    alias.pages.assign(copy.pages.begin(), copy.pages.begin() + PagesFor(tokens));
    alias.written = std::min<size_t>(tokens, copy.written);
    if (tokens > 0) shared_.push_back(dst.value);
    Compare();
  }

  // Some edits of one sequence, mixed with those of others, then only the former are undone.
  void EditsUnderASavepoint() {
    const SeqId seq = AnySequence();
    const OracleSequence before = oracle_.sequences[seq.value];
    const Pager::Savepoint savepoint = pager_->Mark(seq);
    appended_.clear();
    copied_.clear();
    shared_.clear();
    for (uint32_t edits = Below(5); edits > 0; --edits) {
      switch (Below(4)) {
        case 0:
          Trim(seq);
          break;
        case 1:
          Reserve(seq);
          break;
        case 2:
          Reserve(AnySequence());
          break;
        default:
          Alias();
          break;
      }
    }
    ++operations_;
    pager_->Rollback(savepoint);
    OracleSequence after = before;
    std::swap(oracle_.sequences[seq.value], after);
    for (uint32_t page : before.pages) oracle_.limbo.erase(page);
    oracle_.Drop(after.pages, epoch_ + 1);
    // Fresh pages are free again; a copy of a page only when others shared nothing meanwhile.
    for (const auto& [id, page] : appended_) {
      if (id == seq.value) oracle_.limbo.erase(page);
    }
    const bool others_share =
        std::any_of(shared_.begin(), shared_.end(), [&](uint32_t id) { return id != seq.value; });
    for (const auto& [id, page] : copied_) {
      if (id == seq.value && !others_share) oracle_.limbo.erase(page);
    }
    Compare();
  }

  void Commit() {
    ++operations_;
    ++epoch_;
    const auto deltas = pager_->Commit(epoch_);
    if (Below(4) == 0) {
      const PagerSnapshot once = pager_->Snapshot();
      ASSERT_EQ(pager_->Commit(epoch_).data(), deltas.data());
      ASSERT_EQ(pager_->Snapshot(), once);
    }
    oracle_.slots_closing.clear();
    for (const Pager::PageCopy& copy : pager_->page_copies()) CopyPage(copy);
    for (auto& [id, sequence] : oracle_.sequences) {
      for (; sequence.written < sequence.contents.size(); ++sequence.written) {
        *Place(sequence, sequence.written) = sequence.contents[sequence.written];
      }
    }
    for (auto& [id, sequence] : oracle_.sequences) {
      for (size_t token = 0; token < sequence.contents.size(); ++token) {
        ASSERT_EQ(*Place(sequence, token), sequence.contents[token])
            << "sequence " << id << " token " << token;
      }
    }
    if (Below(8) == 0) pager_->Maintain();
  }

  void Complete(uint64_t epoch) {
    pager_->StepDone(epoch);
    std::erase_if(oracle_.limbo, [&](const auto& entry) { return entry.second <= epoch; });
    Compare();
  }

  // Token places are 4 bytes of part 0.
  uint32_t* Place(const OracleSequence& sequence, size_t token) {
    const PageId page{sequence.pages[token / kPageTokens]};
    return reinterpret_cast<uint32_t*>(pager_->base(0) + TinyGroup().PageOffset(page)) +
           token % kPageTokens;
  }

  void CopyPage(const Pager::PageCopy& copy) {
    const KvGroupGeometry group = TinyGroup();
    for (uint32_t p = 0; p < group.num_parts; ++p) {
      std::memcpy(
          pager_->base(0) + group.PageOffset(copy.destination) + p * group.part_stride_bytes(),
          pager_->base(0) + group.PageOffset(copy.source) + p * group.part_stride_bytes(),
          group.part_page_bytes);
    }
  }

  void Compare() {
    const PagerBooks books = pager_->books(0);
    ASSERT_EQ(books.limbo, oracle_.limbo.size());
    ASSERT_EQ(books.in_use, oracle_.Used().size() + 1);
    ASSERT_EQ(pager_->available_pages(false), oracle_.Free());
    for (const auto& [id, sequence] : oracle_.sequences) {
      ASSERT_EQ(pager_->num_tokens(SeqId{id}), sequence.contents.size());
      const auto pages = pager_->pages(SeqId{id}, 0);
      ASSERT_TRUE(std::equal(pages.begin(), pages.end(), sequence.pages.begin(),
                             sequence.pages.end(),
                             [](PageId a, uint32_t b) { return a.value == b; }));
    }
    if (Below(16) != 0) return;  // the pager itself validates after each call at check tier 3
    for (const std::string& violation : Validate(pager_->Snapshot())) ADD_FAILURE() << violation;
  }

  std::mt19937_64 random_;
  std::unique_ptr<Pager> pager_;
  Oracle oracle_;
  uint64_t epoch_ = 0;
  uint64_t operations_ = 0;
  uint32_t next_content_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> appended_;  // (sequence, page) since the savepoint
  std::vector<std::pair<uint32_t, uint32_t>> copied_;    // the same, pages that are copies
  std::vector<uint32_t> shared_;                         // sequences that Alias filled since then
};

void RunAgainstTheOracle(uint64_t seed, uint64_t scatter_seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomSteps steps(seed, scatter_seed);
  while (steps.operations() < 25'000 && !::testing::Test::HasFailure()) steps.Step();
  if (!::testing::Test::HasFailure()) steps.Drain();
}

TEST(PagerOracle, RandomStepsEqualTheOracle) {
  for (uint64_t seed : {1u, 2u, 3u, 4u}) RunAgainstTheOracle(seed, /*scatter_seed=*/0);
}

TEST(PagerOracle, RandomStepsEqualTheOracleWhenScattered) {
  for (uint64_t seed : {5u, 6u}) RunAgainstTheOracle(seed, /*scatter_seed=*/seed);
}

// ---- I2: rollback after every k-th edit

using Script = std::vector<void (*)(Pager&, std::vector<SeqId>&)>;

Script AllKindsOfEdits() {
  return {
      [](Pager& p, auto& s) { EXPECT_EQ(p.Reserve(s[0], 300).status, ReserveStatus::kOk); },
      [](Pager& p, auto& s) { s.push_back(*p.Open()); },
      [](Pager& p, auto& s) { (void)p.Alias(s[3], s[1], 40); },
      [](Pager& p, auto& s) { EXPECT_EQ(p.Reserve(s[3], 41).status, ReserveStatus::kOk); },
      [](Pager& p, auto& s) { p.Trim(s[0], 17); },
      [](Pager& p, auto& s) { EXPECT_EQ(p.Reserve(s[0], 200).status, ReserveStatus::kOk); },
      [](Pager& p, auto& s) { p.Close(s[1]); },
      [](Pager& p, auto& s) { p.Trim(s[3], 0); },
      [](Pager& p, auto& s) { EXPECT_EQ(p.Reserve(s[3], 90).status, ReserveStatus::kOk); },
      [](Pager& p, auto& s) { p.Close(s[3]); },
      [](Pager& p, auto& s) { EXPECT_EQ(p.Reserve(s[2], 60).status, ReserveStatus::kOk); },
  };
}

struct ScriptedPager {
  std::unique_ptr<Pager> pager = MakePager(TinyConfig(10));
  std::vector<SeqId> seqs;
  ScriptedPager() {
    pager->BeginStep();
    for (uint32_t tokens : {100u, 40u, 7u}) {
      seqs.push_back(*pager->Open());
      EXPECT_EQ(pager->Reserve(seqs.back(), tokens).status, ReserveStatus::kOk);
    }
    (void)pager->Commit(1);
  }
};

TEST(PagerRollback, AfterEveryKthEditTheSnapshotIsThatBeforeTheStep) {
  const Script script = AllKindsOfEdits();
  for (size_t k = 0; k <= script.size(); ++k) {
    SCOPED_TRACE("after edit " + std::to_string(k));
    ScriptedPager scripted;
    const PagerSnapshot before = scripted.pager->Snapshot();
    for (int again = 0; again < 2; ++again) {
      std::vector<SeqId> seqs = scripted.seqs;
      scripted.pager->BeginStep();
      for (size_t i = 0; i < k; ++i) script[i](*scripted.pager, seqs);
      scripted.pager->RollbackStep();
      EXPECT_EQ(scripted.pager->Snapshot(), before);
    }
  }
}

TEST(PagerRollback, AStepThatWasRolledBackAndRepeatedPublishesTheSame) {
  const Script script = AllKindsOfEdits();
  const auto run = [&](Pager& pager, std::vector<SeqId> seqs) {
    pager.BeginStep();
    for (const auto& edit : script) edit(pager, seqs);
  };
  ScriptedPager once, twice;
  run(*twice.pager, twice.seqs);
  twice.pager->RollbackStep();
  run(*once.pager, once.seqs);
  run(*twice.pager, twice.seqs);
  const auto expected = once.pager->Commit(2), actual = twice.pager->Commit(2);
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), expected.size_bytes()), 0);
}

}  // namespace
}  // namespace kvrm
