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

}  // namespace
}  // namespace kvrm
