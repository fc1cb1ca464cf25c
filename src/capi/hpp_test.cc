// kvrm.hpp: what it adds to the calls.
#include <kvrm/kvrm.hpp>

#include <utility>

#include "capi/capi_testing.h"

namespace kvrm {
namespace {

using client::Error;
using client::MakeRow;
using client::Runtime;
using client::Step;

TEST(CapiHpp, AStepThatIsNotCommittedIsRolledBack) {
  const RuntimeConfig made;
  Runtime runtime(made.config);
  kvrm_seq seq = 0;
  {
    Step step(runtime);
    seq = step.Open().value();
    EXPECT_EQ(step.Reserve(seq, 20), KVRM_OK);
  }
  EXPECT_EQ(runtime.Get<kvrm_room>(kvrm_get_room).open_sequences, 0u);
  Step step(runtime);
  EXPECT_THROW(step.Close(seq), Error);
  seq = step.Open().value();
  EXPECT_EQ(step.Reserve(seq, 1), KVRM_OK);
  EXPECT_THROW(step.Commit(1, {}), Error);  // and leaves the step open
  EXPECT_EQ(step.Commit(1, {MakeRow(seq, 5, 0)}).num_rows, 1u);
  EXPECT_EQ(runtime.Pages(0, 0).size(), 1u);
  EXPECT_EQ(runtime.Segments(0, 0)[0].first_page, runtime.Pages(0, 0)[0]);
}

TEST(CapiHpp, RoomIsAValueAndTheRestIsThrown) {
  const RuntimeConfig made;
  Runtime first(made.config);
  Runtime runtime(std::move(first));
  Step step(runtime);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(step.Open().has_value());
  EXPECT_FALSE(step.Open().has_value());
  EXPECT_EQ(step.Reserve(4, 200), KVRM_UNSERVICEABLE);
  try {
    (void)step.Reserve(999, 5);
    FAIL() << "an unknown sequence grew";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), KVRM_INVALID);
    EXPECT_NE(std::string(error.what()).find("INVALID: seq"), std::string::npos) << error.what();
  }
  kvrm_config none = made.config;
  none.kv_bytes = 1;
  EXPECT_THROW(Runtime{none}, Error);
}

TEST(CapiHpp, SavepointsTellWhatIsMissingAndTakeItBack) {
  const RuntimeConfig made;
  Runtime runtime(made.config);
  Step step(runtime);
  std::vector<kvrm_seq> seqs;
  for (int i = 0; i < 4; ++i) seqs.push_back(step.Open().value());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step.Reserve(seqs[i], 64), KVRM_OK);
  const client::Savepoint before = step.Mark(seqs[3]);
  EXPECT_EQ(step.Reserve(seqs[3], 30), KVRM_OK);
  uint32_t missing = 0;
  EXPECT_EQ(step.Reserve(seqs[3], 64, 0, &missing), KVRM_DEFERRED);
  EXPECT_EQ(missing, 1u);
  step.Rollback(before);
  EXPECT_EQ(runtime.Get<kvrm_sequence_info>(kvrm_get_sequence, seqs[3]).num_tokens, 0u);
}

TEST(CapiHpp, AnEpochIsCommittedAgainAndColdPagesLeave) {
  const RuntimeConfig made(/*sliding=*/false, /*windows=*/true);
  Runtime runtime(made.config);
  uint64_t bytes = 0;
  EXPECT_EQ(runtime.Window(0, &bytes).window_tokens, 128u);
  std::vector<unsigned char> memory(bytes);
  runtime.BindWindow(0, memory.data(), memory.size());
  EXPECT_THROW(runtime.BindWindow(0, memory.data(), 1), Error);
  EXPECT_GT(runtime.Calibrate(), 0u);
  std::vector<kvrm_row_input> rows;
  Step first(runtime);
  const kvrm_seq seq = first.Open().value();
  ASSERT_EQ(first.Reserve(seq, 50), KVRM_OK);
  for (uint32_t place = 0; place < 50; ++place) rows.push_back(MakeRow(seq, 7, place));
  const kvrm_frame frame = first.Commit(1, rows);
  EXPECT_EQ(runtime.Recommit(1, rows).chain_hash, frame.chain_hash);
  rows.pop_back();
  EXPECT_THROW((void)runtime.Recommit(1, rows), Error);
  runtime.Run(runtime.WindowPlan());
  runtime.Run(runtime.Acknowledge(1));
  runtime.StepDone(1);
  EXPECT_TRUE(runtime.CanTrim(seq, 20));
  Step second(runtime);
  second.TrimPages(seq, 0, 16, 32);
  EXPECT_FALSE(runtime.CanTrim(seq, 20));
  second.Commit(2, {});
  EXPECT_EQ(runtime.Get<kvrm_sequence_info>(kvrm_get_sequence, seq).lossy, 1u);
}

}  // namespace
}  // namespace kvrm
