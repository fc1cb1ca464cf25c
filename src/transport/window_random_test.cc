// Windows against the real pager: whatever is opened, forked, adopted, trimmed, rolled back, given
// up or closed, the windows hold what rows see and the pool what sequences hold.
#include <gtest/gtest.h>

#include <random>

#include "transport/window_testing.h"

namespace kvrm {
namespace {

using testing::WindowRig;
using testing::WindowRigConfig;

class RandomHost {
 public:
  RandomHost(uint64_t seed, const WindowRigConfig& config)
      : random_(seed), config_(config), rig_(config) {}

  void Step() {
    if (Below(6) == 0 && !given_up_) IndexSome();
    rig_.BeginStep();
    if (given_up_) TrimBack();
    for (uint32_t edits = Below(6); edits > 0; --edits) Edit();
    if (Below(12) == 0 && !given_up_) {
      rig_.RollbackStep();
      ++rolled_back_;
      return;
    }
    Grow();
    given_up_ = false;
    Run();
    if (Below(10) == 0 && !given_up_) rig_.PublishAll();
    pager().Maintain(Below(2) == 0 ? Pager::Load::kIdle : Pager::Load::kBusy);
  }

  WindowRig& rig() { return rig_; }
  uint64_t forks_ = 0, adoptions_ = 0, trims_ = 0, rolled_back_ = 0, failures_ = 0, cold_ = 0,
           closed_ = 0, whole_ = 0, begun_anew_ = 0;

 private:
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  Pager& pager() { return rig_.pager(); }
  auto& sequences() { return rig_.sequences(); }
  uint32_t Any() {
    auto it = sequences().begin();
    std::advance(it, Below(static_cast<uint32_t>(sequences().size())));
    return it->first;
  }
  std::vector<TokenId> Tokens(uint32_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& token : tokens) token = static_cast<TokenId>(Below(8) == 0 ? 1 : 0);
    return tokens;
  }

  void Edit() {
    const uint32_t choice = Below(16);
    if (sequences().empty() || choice < 4) {
      OpenOne();
    } else if (choice < 6) {
      rig_.Close(Any());
      ++closed_;
    } else if (choice < 11) {
      const uint32_t id = Any(), length = WindowRig::Length(sequences()[id]);
      if (length > 0) trims_ += rig_.Trim(id, length - 1 - Below(std::min(length, 14u))) ? 1 : 0;
    } else if (choice < 12) {
      const uint32_t id = Any(), length = WindowRig::Length(sequences()[id]);
      if (length < 30) return;
      const uint32_t begin = Below(length);
      pager().TrimPages(SeqId{id}, 0, begin, begin + Below(length - begin));
      ++cold_;
    }
  }

  // A fork, a prompt of which part may be cached, or an empty sequence; in a slot of its own, or in
  // that of a sequence that begins anew.
  void OpenOne() {
    uint32_t id = 0;
    if (!sequences().empty() && Below(4) == 0) {
      id = Any();
      if (pager().lossy(SeqId{id}) || !rig_.Trim(id, 0)) return;
      ++begun_anew_;
    } else if (const auto opened = rig_.Open()) {
      id = *opened;
    } else {
      return;
    }
    if (Below(2) == 0) {
      const uint32_t source = Any();
      const auto& from = sequences()[source];
      const uint32_t most = std::min(from.committed, WindowRig::Length(from));
      if (source == id || most == 0) return;
      const uint32_t tokens = Below(3) == 0 ? most : 1 + Below(most);
      forks_ += rig_.Alias(id, source, tokens) ? 1 : 0;
      return;
    }
    adoptions_ += rig_.Adopt(id, Tokens(1 + Below(40))) > 0 ? 1 : 0;
    whole_ += sequences()[id].no_write_row ? 1 : 0;
  }

  void IndexSome() {
    for (const auto& [id, seq] : sequences()) {
      if (Below(2) == 0 && !seq.tokens.empty() && !pager().lossy(SeqId{id})) rig_.Index(id);
    }
  }

  void Grow() {
    for (auto& [id, seq] : sequences()) {
      if (seq.no_write_row || Below(4) == 0) continue;
      const uint32_t room = config_.max_seq_tokens - WindowRig::Length(seq);
      const uint32_t rows = Below(3) == 0 ? 1 + Below(config_.max_step_tokens) : 1;
      if (rows <= room) rig_.AddRows(id, Tokens(rows));
    }
  }

  // The rows of a step that was given up hold nothing: they are trimmed, as a host would.
  void TrimBack() {
    for (const auto& [id, length] : lengths_) {
      if (sequences().count(id) != 0 && WindowRig::Length(sequences()[id]) > length) {
        ASSERT_TRUE(rig_.Trim(id, length));
      }
    }
  }

  void Run() {
    lengths_.clear();
    for (const auto& [id, seq] : sequences()) {
      lengths_[id] = seq.no_write_row ? WindowRig::Length(seq) : seq.first_row;
    }
    rig_.CommitAndPlan();
    while (Below(8) == 0) {
      ++failures_;
      rig_.RunBadRows(random_);
      if (Below(2) == 0) {
        rig_.GiveUp();
        given_up_ = true;
        return;
      }
      rig_.PlanAgain();
    }
    rig_.RunRows();
    rig_.Acknowledge();
  }

  std::mt19937_64 random_;
  const WindowRigConfig config_;
  WindowRig rig_;
  bool given_up_ = false;
  std::map<uint32_t, uint32_t> lengths_;  // whose contents stand when the step is given up
};

struct Case {
  const char* name;
  WindowRigConfig config;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class WindowRandom : public ::testing::TestWithParam<Case> {};

TEST_P(WindowRandom, WindowsAndPoolHoldTheShadow) {
  uint64_t forks = 0, adoptions = 0, whole = 0, trims = 0, rolled_back = 0, failures = 0, cold = 0,
           closed = 0, begun_anew = 0, staged = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    WindowRigConfig config = GetParam().config;
    config.scatter_seed = seed % 2 == 0 ? 0 : seed;
    RandomHost host(seed, config);
    for (int step = 0; step < 250; ++step) {
      host.Step();
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
    forks += host.forks_;
    adoptions += host.adoptions_;
    whole += host.whole_;
    trims += host.trims_;
    rolled_back += host.rolled_back_;
    failures += host.failures_;
    cold += host.cold_;
    closed += host.closed_;
    begun_anew += host.begun_anew_;
    staged += host.rig().staged_places();
  }
  EXPECT_GT(forks, 100u);
  EXPECT_GT(trims, 500u);
  EXPECT_GT(rolled_back, 100u);
  EXPECT_GT(failures, 200u);
  EXPECT_GT(closed, 200u);
  EXPECT_GT(begun_anew, 50u);
  EXPECT_GT(cold, 20u);
  EXPECT_GT(staged, 1000u);
  if (GetParam().config.sliding_page_tokens != 16) {  // groups of equal pages share prefixes
    EXPECT_GT(adoptions, 50u);
    EXPECT_GT(whole, 5u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Geometries, WindowRandom,
    ::testing::Values(
        Case{"full", {.sliding_page_tokens = 0}}, Case{"rings", {}},
        Case{"rings_age", {.publish_age_steps = 8}},
        Case{"rings_age_small_tau", {.publish_age_steps = 255, .tau_bytes = 72}},
        Case{"two_page_sizes",
             {.sliding_page_tokens = 16, .publish_age_steps = 3, .parts_within_slots = true}},
        Case{"tight_pool", {.superblocks = 6, .publish_age_steps = 8, .parts_within_slots = true}}),
    [](const auto& one) { return std::string(one.param.name); });

// 64 steps of four sequences after their prompts: nothing is staged, and what the rows write is
// published in trains.
TEST(Windows, SteadyDecodeStagesNothingAndPublishesTrains) {
  for (const uint8_t age : {0, 8}) {
    WindowRig rig({.slots = 4, .superblocks = 16, .publish_age_steps = age});
    rig.BeginStep();
    std::vector<uint32_t> ids;
    for (int i = 0; i < 4; ++i) {
      ids.push_back(*rig.Open());
      ASSERT_TRUE(rig.AddRows(ids.back(), std::vector<TokenId>(3 + 2 * i, i)));
    }
    for (int step = 0; step < 65; ++step) {
      if (step > 0) {
        rig.BeginStep();
        for (const uint32_t id : ids) ASSERT_TRUE(rig.AddRows(id, {step}));
      }
      rig.CommitAndPlan();
      rig.RunRows();
      rig.Acknowledge();
    }
    rig.PublishAll();
    const CopyCounters& counters = rig.windows().counters();
    const auto stage = static_cast<uint32_t>(CopyCause::kStage);
    const auto publish = static_cast<uint32_t>(CopyCause::kPublish);
    EXPECT_EQ(counters.copies[stage], 0u);
    const uint64_t rows = (3 + 5 + 7 + 9 + 4 * 64);
    EXPECT_EQ(counters.copy_pieces[publish], rows * 5);  // 2 parts and 3
    EXPECT_EQ(counters.copy_bytes[publish], rows * 5 * WindowRig::kTokenBytes);
    if (age == 8) {
      EXPECT_GT(counters.copy_pieces[publish], 4 * counters.copies[publish]);
    }
  }
}

}  // namespace
}  // namespace kvrm
