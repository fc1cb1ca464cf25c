// What may enter the prefix index, and when: full pages that completed epochs have written, as long
// as they say what they said then.
#include <vector>

#include "gtest/gtest.h"
#include "pager/pager.h"
#include "pager/prefix_testing.h"

namespace kvrm {
namespace {

using testing::Count;
using testing::Decoder;
using testing::Join;
using testing::kTenant;
using testing::PoolOf;
using testing::TinyConfig;
using testing::TinyGroup;
using testing::Tokens;
using Stream = Decoder::Stream;

TEST(PrefixEntering, APageIsEnteredOnceHoweverOftenItIsAsked) {
  Decoder decoder(PoolOf(16));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  Stream stream = *decoder.Admit(Count(0, 20));
  decoder.Finish();
  uint32_t entered = decoder.Index(stream);
  for (TokenId token = 20; token < 70; ++token) {
    pager.BeginStep();
    ASSERT_TRUE(decoder.Append(stream, token));
    decoder.Finish();
    const uint32_t more = decoder.Index(stream);
    EXPECT_EQ(more, stream.tokens.size() % 16 == 0 ? 1u : 0u);
    entered += more;
    EXPECT_EQ(decoder.Index(stream), 0u);
  }
  EXPECT_EQ(entered, 4u);
  EXPECT_EQ(pager.counters().prefix_pages_indexed, 4u);
}

// Two that computed the same at the same time: one of them is found, the other's pages are free
// when it ends.
TEST(PrefixEntering, ASecondPageOfTheSameTokensStaysOutside) {
  Decoder decoder(PoolOf(16));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  const Stream first = *decoder.Admit(Count(0, 32)), second = *decoder.Admit(Count(0, 32));
  decoder.Finish();
  EXPECT_EQ(decoder.Index(first), 2u);
  EXPECT_EQ(decoder.Index(second), 0u);
  decoder.End({second});
  EXPECT_EQ(pager.books(0).cached, 0u);
  decoder.End({first});
  EXPECT_EQ(pager.books(0).cached, 2u);
}

// The pages by which a sequence's beginning was known are evicted: its own ones take their place.
TEST(PrefixEntering, AnEvictedBeginningIsEnteredAnew) {
  Decoder decoder(PoolOf(8));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  const Stream first = *decoder.Admit(Count(0, 32));
  Stream second = *decoder.Admit(Count(0, 32));
  decoder.Finish();
  decoder.Index(first);
  decoder.Index(second);
  decoder.End({first});
  pager.BeginStep();
  const Stream other = *decoder.Admit(Count(1000, 6 * 16));  // 4 free pages and the 2 cached ones
  decoder.Finish();
  decoder.End({other});
  ASSERT_EQ(pager.MatchPrefix(kTenant, Count(0, 32)), 0u);
  for (TokenId token = 32; token < 48; ++token) {
    pager.BeginStep();
    ASSERT_TRUE(decoder.Append(second, token));
    decoder.Finish();
  }
  EXPECT_EQ(decoder.Index(second), 3u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, second.tokens), 48u);
}

// Meanwhile the index has given their places to another prompt, which must not get the pages.
TEST(PrefixEntering, APlaceInTheIndexIsNotTakenForTheOneThatWasThereBefore) {
  Decoder decoder(PoolOf(8));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  const Stream first = *decoder.Admit(Count(0, 32));
  Stream second = *decoder.Admit(Count(0, 32));
  decoder.Finish();
  decoder.Index(first);
  decoder.Index(second);
  decoder.End({first});
  const Tokens stranger = Count(1000, 6 * 16);
  decoder.RunToEnd(stranger);  // evicts them, and enters where they were
  ASSERT_EQ(pager.MatchPrefix(kTenant, Count(0, 32)), 0u);
  for (TokenId token = 32; token < 48; ++token) {
    pager.BeginStep();
    ASSERT_TRUE(decoder.Append(second, token));
    decoder.Finish();
  }
  EXPECT_EQ(decoder.Index(second), 3u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, second.tokens), 48u);
  for (uint32_t pages = 1; pages < 6; ++pages) {
    const Tokens mixed = Join(Count(1000, 16 * pages), Count(32, 16));
    EXPECT_LE(pager.MatchPrefix(kTenant, mixed), 16 * pages);
  }
}

// The pages between are evicted, what hangs below them is not: the next who enters them, too, has
// it back.
TEST(PrefixEntering, AGapIsClosedByWhoeverStillHoldsItsTokens) {
  Decoder decoder(PoolOf(12));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  const Stream first = *decoder.Admit(Count(0, 32)), longer = *decoder.Admit(Count(0, 48));
  Stream second = *decoder.Admit(Count(0, 32));
  decoder.Finish();
  EXPECT_EQ(decoder.Index(first), 2u);
  EXPECT_EQ(decoder.Index(longer), 1u);  // its third page, below two of the first's
  EXPECT_EQ(decoder.Index(second), 0u);
  decoder.End({first});
  pager.BeginStep();
  const Stream other = *decoder.Admit(Count(1000, 7 * 16));  // 5 free pages and the 2 cached ones
  decoder.Finish();
  decoder.End({other});
  ASSERT_EQ(pager.MatchPrefix(kTenant, Count(0, 48)), 0u);
  pager.BeginStep();
  ASSERT_TRUE(decoder.Append(second, 500));
  decoder.Finish();
  EXPECT_EQ(decoder.Index(second), 2u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, Count(0, 48)), 48u);
  pager.BeginStep();
  const Stream found = *decoder.Admit(Count(0, 48));
  EXPECT_EQ(pager.pages(found.seq, 0)[1], pager.pages(second.seq, 0)[1]);
  EXPECT_EQ(pager.pages(found.seq, 0)[2], pager.pages(longer.seq, 0)[2]);
  decoder.Finish();
  decoder.ExpectOwn(found);
}

// An indexed page is for others to read: whoever goes back into it writes a copy.
TEST(PrefixEntering, AnIndexedPageIsNeverWritten) {
  Decoder decoder(PoolOf(8));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  Stream stream = *decoder.Admit(Count(0, 32));
  decoder.Finish();
  ASSERT_EQ(decoder.Index(stream), 2u);
  pager.BeginStep();
  pager.Trim(stream.seq, 20);
  stream.tokens.resize(20);
  for (TokenId token = 0; token < 20; ++token) ASSERT_TRUE(decoder.Append(stream, 2000 + token));
  decoder.Finish();
  EXPECT_EQ(decoder.num_copies(), 1u);
  decoder.ExpectOwn(stream);
  EXPECT_EQ(decoder.Index(stream), 1u);  // anew from page 0, which is known
  EXPECT_EQ(pager.MatchPrefix(kTenant, stream.tokens), 32u);
  EXPECT_EQ(decoder.RunToEnd(Count(0, 32)).num_cached, 32u);
}

// One step behind: what stands at trimmed places is written when their new rows have run.
TEST(PrefixEntering, TrimmedPlacesCountAsWrittenWhenTheyAreWrittenAgain) {
  Decoder decoder(PoolOf(8), /*depth=*/1);
  Pager& pager = decoder.pager();
  pager.BeginStep();
  Stream stream = *decoder.Admit(Count(0, 32));
  decoder.Finish();
  decoder.FinishAll();
  ASSERT_EQ(pager.completed_tokens(stream.seq), 32u);
  pager.BeginStep();
  pager.Trim(stream.seq, 20);
  stream.tokens.resize(20);
  for (TokenId token = 0; token < 12; ++token) ASSERT_TRUE(decoder.Append(stream, 2000 + token));
  EXPECT_EQ(pager.completed_tokens(stream.seq), 20u);
  decoder.Finish();
  EXPECT_EQ(pager.completed_tokens(stream.seq), 20u);
  EXPECT_EQ(decoder.Index(stream), 1u);
  decoder.FinishAll();
  EXPECT_EQ(pager.completed_tokens(stream.seq), 32u);
  EXPECT_EQ(decoder.Index(stream), 1u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, stream.tokens), 32u);
}

TEST(PrefixEntering, AnAliasIsWrittenAsFarAsItsSourceIs) {
  Decoder decoder(PoolOf(8), /*depth=*/1);
  Pager& pager = decoder.pager();
  pager.BeginStep();
  Stream source = *decoder.Admit(Count(0, 20));
  decoder.Finish();
  pager.BeginStep();
  for (TokenId token = 20; token < 40; ++token) ASSERT_TRUE(decoder.Append(source, token));
  decoder.Finish();  // 20 places are written, 20 are not
  pager.BeginStep();
  const SeqId fork = *pager.Open();
  ASSERT_EQ(pager.Alias(fork, source.seq, 36).status, ReserveStatus::kOk);
  EXPECT_EQ(pager.completed_tokens(fork), 20u);
  const SeqId start = *pager.Open();
  ASSERT_EQ(pager.Alias(start, source.seq, 10).status, ReserveStatus::kOk);
  EXPECT_EQ(pager.completed_tokens(start), 10u);
  decoder.Finish();
  EXPECT_EQ(pager.completed_tokens(start), 10u);
  decoder.FinishAll();
  EXPECT_EQ(pager.completed_tokens(fork), 36u);
}

TEST(PrefixEntering, LossySequencesAreNeverEntered) {
  Decoder decoder(PoolOf(8));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  const Stream stream = *decoder.Admit(Count(0, 64));
  decoder.Finish();
  pager.BeginStep();
  pager.TrimPages(stream.seq, 0, 16, 32);
  decoder.Finish();
  EXPECT_EQ(decoder.Index(stream), 0u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, stream.tokens), 0u);
}

TEST(PrefixEntering, SwitchedOffOrWithUnlikePagesNothingIsFound) {
  PagerConfig off = PoolOf(16);
  off.prefix_index = false;
  PagerConfig unlike = TinyConfig(16);
  unlike.geometry.groups.push_back(TinyGroup());
  unlike.geometry.groups[1].page_tokens = 8;
  for (const PagerConfig& config : {off, unlike}) {
    Decoder decoder(config);
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(decoder.RunToEnd(Count(0, 48)).num_cached, 0u);
    }
    Pager& pager = decoder.pager();
    EXPECT_EQ(pager.books(0).cached, 0u);
    pager.ClearPrefixIndex();
    pager.BeginStep();
    EXPECT_EQ(pager.AdoptPrefix(*pager.Open(), kTenant, Count(0, 16), 16).status,
              ReserveStatus::kUnserviceable);
  }
}

TEST(PrefixEntering, ClearedItFindsNothingAndWhatIsSharedStaysShared) {
  Decoder decoder(PoolOf(16));
  decoder.RunToEnd(Count(0, 48));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  Stream stream = *decoder.Admit(Count(0, 40)), other = *decoder.Admit(Count(0, 40));
  decoder.Finish();
  pager.ClearPrefixIndex();
  EXPECT_EQ(pager.MatchPrefix(kTenant, Count(0, 48)), 0u);
  pager.BeginStep();
  ASSERT_TRUE(decoder.Append(stream, 1));
  ASSERT_TRUE(decoder.Append(other, 2));
  decoder.Finish();
  decoder.ExpectOwn(stream);
  decoder.ExpectOwn(other);
  EXPECT_EQ(decoder.Index(stream), 2u);  // entered anew
  decoder.End({stream, other});
  EXPECT_EQ(pager.books(0).cached, 2u);
  decoder.ExpectIdle();
}

}  // namespace
}  // namespace kvrm
