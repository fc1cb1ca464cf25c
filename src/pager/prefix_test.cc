// Sharing by what was said: the laws of the prefix index at the pager's face, with real bytes in
// the pages.
#include <algorithm>
#include <optional>
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
using testing::PagesOf;
using testing::PoolOf;
using testing::TinyConfig;
using testing::TinyGroup;
using testing::Tokens;
using Stream = Decoder::Stream;

// ---- adopting

TEST(Prefix, OfACachedPromptEachLengthIsAdoptedAndItsFirstWriteCopiesTheLastPage) {
  for (uint32_t length = 0; length < 50; ++length) {
    Decoder decoder(PoolOf(12));
    decoder.RunToEnd(Count(0, 49));  // three full pages enter
    const uint32_t expected = std::min(length, 48u);
    Pager& pager = decoder.pager();
    pager.BeginStep();
    ASSERT_EQ(pager.MatchPrefix(kTenant, Count(0, length)), expected);
    Stream stream{*pager.Open(), Count(0, expected), kTenant};
    ASSERT_EQ(pager.AdoptPrefix(stream.seq, kTenant, stream.tokens, expected).status,
              ReserveStatus::kOk);
    EXPECT_EQ(pager.num_tokens(stream.seq), expected);
    EXPECT_EQ(pager.completed_tokens(stream.seq), expected);
    ASSERT_TRUE(decoder.Append(stream, 1000));
    decoder.Finish();
    EXPECT_EQ(decoder.num_copies(), expected % 16 == 0 ? 0u : 1u) << length;
    decoder.ExpectOwn(stream);
    decoder.End({stream});
    EXPECT_EQ(decoder.RunToEnd(Count(0, 49)).num_cached, 48u);  // compares its bytes
    decoder.ExpectIdle();
  }
}

TEST(Prefix, ASharedBeginningIsSharedToTheToken) {
  for (const uint32_t shared : {3u, 15u, 16u, 17u, 20u, 31u, 32u, 40u}) {
    Decoder decoder(PoolOf(16));
    decoder.RunToEnd(Count(0, 48));
    EXPECT_EQ(decoder.RunToEnd(Join(Count(0, shared), Count(700, 30))).num_cached, shared);
    EXPECT_EQ(decoder.RunToEnd(Count(0, 48)).num_cached, 48u);
  }
}

TEST(Prefix, TenantsAndModelsShareNothing) {
  Decoder decoder(PoolOf(32));
  const Tokens prompt = Count(0, 40);
  decoder.RunToEnd(prompt, {1, 1});
  EXPECT_EQ(decoder.RunToEnd(prompt, {2, 1}).num_cached, 0u);
  EXPECT_EQ(decoder.RunToEnd(prompt, {1, 2}).num_cached, 0u);
  decoder.pager().BeginStep();
  const Stream one = *decoder.Admit(prompt, {1, 1}), two = *decoder.Admit(prompt, {2, 1});
  EXPECT_EQ(one.num_cached, 32u);
  EXPECT_EQ(two.num_cached, 32u);
  for (uint32_t page = 0; page < 2; ++page) {
    EXPECT_NE(decoder.pager().pages(one.seq, 0)[page], decoder.pager().pages(two.seq, 0)[page]);
  }
  decoder.Finish();
  decoder.ExpectOwn(one);
  decoder.ExpectOwn(two);
}

// Its last row is computed once more for its logits, and reads what is there.
TEST(Prefix, AFullyCachedPromptNeedsNoPageNoCopyAndNoWrite) {
  Decoder decoder(PoolOf(3));
  const Tokens prompt = Count(0, 48);
  decoder.RunToEnd(prompt);
  Pager& pager = decoder.pager();
  const uint64_t taken = pager.counters().pages_taken;
  for (int time = 0; time < 3; ++time) {
    pager.BeginStep();
    const std::optional<Stream> stream = decoder.Admit(prompt);
    ASSERT_TRUE(stream);
    EXPECT_EQ(stream->num_cached, 48u);
    decoder.Finish();
    decoder.ExpectOwn(*stream);
    decoder.End({*stream});
  }
  EXPECT_EQ(pager.counters().pages_taken, taken);
  EXPECT_EQ(decoder.num_copies(), 0u);
}

TEST(Prefix, PagesInUseAndInLimboAreAdoptedToo) {
  Decoder decoder(PoolOf(8), /*depth=*/1);
  Pager& pager = decoder.pager();
  pager.BeginStep();
  const Stream first = *decoder.Admit(Count(0, 33));
  decoder.Finish();
  decoder.FinishAll();
  ASSERT_EQ(decoder.Index(first), 2u);
  pager.BeginStep();
  const Stream second = *decoder.Admit(Count(0, 32));
  EXPECT_EQ(second.num_cached, 32u);
  EXPECT_EQ(pager.pages(second.seq, 0)[1], pager.pages(first.seq, 0)[1]);
  decoder.Finish();
  pager.BeginStep();
  pager.Close(first.seq);
  pager.Close(second.seq);
  decoder.Finish();
  ASSERT_EQ(pager.books(0).limbo, 3u);
  pager.BeginStep();
  const Stream third = *decoder.Admit(Count(0, 32));
  EXPECT_EQ(third.num_cached, 32u);
  EXPECT_EQ(pager.books(0).limbo, 1u);
  decoder.Finish();
  decoder.FinishAll();
  decoder.ExpectOwn(third);
}

// A run ends with its superblock, because the next one lies elsewhere.
TEST(Prefix, AdoptedPagesArePublishedAsRunsWithinSuperblocks) {
  Decoder decoder(TinyConfig(8));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  Stream first = *decoder.Admit(Count(0, 7 * 16));  // all of superblock 0
  decoder.Finish();
  while (first.tokens.size() < 12 * 16) {
    pager.BeginStep();
    ASSERT_TRUE(decoder.Append(first, static_cast<TokenId>(first.tokens.size())));
    decoder.Finish();
  }
  decoder.Index(first);
  const std::vector<uint32_t> held = PagesOf(pager, first.seq);
  ASSERT_EQ(held[7], held[6] + 1);  // adjacent numbers, not adjacent pages
  pager.BeginStep();
  const SeqId seq = *pager.Open();
  ASSERT_EQ(pager.AdoptPrefix(seq, kTenant, Count(0, 12 * 16), 12 * 16).status, ReserveStatus::kOk);
  uint32_t runs = 0, pages = 0;
  for (const Delta& delta : pager.Commit(pager.Snapshot().epoch + 1)) {
    EXPECT_EQ(delta.kind, DeltaKind::kAppend);
    EXPECT_EQ(delta.page / 8, (delta.page + delta.count - 1) / 8);
    pages += delta.count;
    ++runs;
  }
  EXPECT_EQ(pages, 12u);
  EXPECT_EQ(runs, 2u);
}

// ---- undoing

TEST(Prefix, ARolledBackAdoptionPutsThePagesBack) {
  Decoder decoder(PoolOf(8));
  decoder.RunToEnd(Count(0, 48));
  Pager& pager = decoder.pager();
  const PagerSnapshot idle = pager.Snapshot();
  pager.BeginStep();
  ASSERT_TRUE(decoder.Admit(Join(Count(0, 40), Count(500, 20))));
  decoder.GiveUp();
  EXPECT_EQ(pager.Snapshot(), idle);

  pager.BeginStep();
  const SeqId seq = *pager.Open();
  const PagerSnapshot opened = pager.Snapshot();
  const Pager::Savepoint mark = pager.Mark(seq);
  ASSERT_EQ(pager.AdoptPrefix(seq, kTenant, Count(0, 48), 48).status, ReserveStatus::kOk);
  ASSERT_EQ(pager.Reserve(seq, 60).status, ReserveStatus::kOk);
  pager.Rollback(mark);
  EXPECT_EQ(pager.Snapshot(), opened);
  EXPECT_EQ(pager.completed_tokens(seq), 0u);
  // Where the last page was to be copied, it rests until the step has run; then it is cached again.
  ASSERT_EQ(pager.AdoptPrefix(seq, kTenant, Count(0, 40), 40).status, ReserveStatus::kOk);
  ASSERT_EQ(pager.Reserve(seq, 60).status, ReserveStatus::kOk);
  pager.Rollback(mark);
  EXPECT_EQ(pager.MatchPrefix(kTenant, Count(0, 48)), 48u);
  pager.Close(seq);
  decoder.Finish();
  EXPECT_EQ(pager.Snapshot().groups, idle.groups);
}

// What the rolled back adoption said of the sequence must not hold for what it does instead.
TEST(Prefix, AfterARolledBackAdoptionTheSequenceIsAnyOther) {
  Decoder decoder(PoolOf(16));
  decoder.RunToEnd(Count(0, 48));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  Stream stream{*pager.Open(), Count(900, 16), kTenant};
  const Pager::Savepoint mark = pager.Mark(stream.seq);
  ASSERT_EQ(pager.AdoptPrefix(stream.seq, kTenant, Count(0, 48), 48).status, ReserveStatus::kOk);
  pager.Rollback(mark);
  ASSERT_EQ(pager.Reserve(stream.seq, 16).status, ReserveStatus::kOk);
  ASSERT_TRUE(decoder.Append(stream, 1));
  EXPECT_EQ(pager.completed_tokens(stream.seq), 0u);
  decoder.Finish();
  EXPECT_EQ(decoder.Index(stream), 1u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, Count(900, 16)), 16u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, Join(Count(0, 48), Count(900, 16))), 48u);
}

TEST(Prefix, AStepThatIsRolledBackRecallsWhatItEvicted) {
  Decoder decoder(PoolOf(6));
  decoder.RunToEnd(Count(0, 48));
  decoder.RunToEnd(Join(Count(0, 16), Count(300, 32)));
  Pager& pager = decoder.pager();
  const PagerSnapshot before = pager.Snapshot();
  ASSERT_EQ(pager.books(0).cached, 5u);
  for (uint32_t pages = 1; pages <= 6; ++pages) {
    pager.BeginStep();
    const SeqId seq = *pager.Open();
    ASSERT_EQ(pager.Reserve(seq, pages * 16).status, ReserveStatus::kOk);
    EXPECT_EQ(pager.counters().prefix_pages_evicted, pages - 1);
    decoder.GiveUp();
    ASSERT_EQ(pager.Snapshot(), before);
    EXPECT_EQ(pager.counters().prefix_pages_evicted, 0u);
  }
  EXPECT_EQ(decoder.RunToEnd(Count(0, 48)).num_cached, 48u);
  EXPECT_EQ(decoder.RunToEnd(Join(Count(0, 16), Count(300, 32))).num_cached, 48u);
}

// ---- evicting

TEST(Prefix, TheLeastRecentlyUsedGoesFirstAndTailsBeforeHeads) {
  Decoder decoder(PoolOf(6));
  decoder.RunToEnd(Count(0, 48));
  decoder.RunToEnd(Count(1000, 48));
  decoder.RunToEnd(Count(0, 48));  // now the younger one
  Pager& pager = decoder.pager();
  const uint32_t left_of_0[] = {48, 48, 48, 48, 32, 16, 0};
  const uint32_t left_of_1000[] = {48, 32, 16, 0, 0, 0, 0};
  for (uint32_t pages = 0; pages <= 6; ++pages) {
    pager.BeginStep();
    const SeqId seq = *pager.Open();
    ASSERT_EQ(pager.Reserve(seq, pages * 16).status, ReserveStatus::kOk);
    EXPECT_EQ(pager.MatchPrefix(kTenant, Count(0, 48)), left_of_0[pages]);
    EXPECT_EQ(pager.MatchPrefix(kTenant, Count(1000, 48)), left_of_1000[pages]);
    decoder.GiveUp();
  }
}

TEST(Prefix, APromptThatEndedLastIsFoundWholeWhateverMadeRoomForIt) {
  PagerConfig config = TinyConfig(5);
  config.poison_freed = true;
  Decoder decoder(config);
  for (TokenId round = 0; round < 40; ++round) {
    const Tokens tokens = Count(1000 * round, 128);
    decoder.RunToEnd(tokens);
    EXPECT_EQ(decoder.pager().MatchPrefix(kTenant, tokens), 128u) << round;
  }
}

// ---- several groups

// Group 0 full; group 1 sees 40 tokens, 2.5 pages.
PagerConfig FullAndSliding(uint32_t superblocks) {
  PagerConfig config = TinyConfig(superblocks);
  config.geometry.groups.push_back(TinyGroup());
  config.geometry.groups[1].kind = KvGroupKind::kSliding;
  config.geometry.groups[1].window_tokens = 40;
  config.poison_freed = true;
  return config;
}

TEST(PrefixGroups, OfASlidingGroupTheWindowIsAdoptedAndTheRestIsHoles) {
  Decoder decoder(FullAndSliding(16));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  Stream first = *decoder.Admit(Count(0, 96));
  decoder.Finish();
  EXPECT_EQ(decoder.Index(first), 12u);
  for (const uint32_t length : {20u, 40u, 41u, 64u, 80u, 95u, 96u}) {
    pager.BeginStep();
    Stream stream = *decoder.Admit(Count(0, length));
    EXPECT_EQ(stream.num_cached, length);
    EXPECT_EQ(pager.first_page(stream.seq, 0), 0u);
    EXPECT_EQ(pager.first_page(stream.seq, 1), length < 40 ? 0 : (length - 40) / 16);
    decoder.Finish();
    decoder.ExpectOwn(stream);
    pager.BeginStep();
    ASSERT_TRUE(decoder.Append(stream, 1000));
    decoder.Finish();
    decoder.ExpectOwn(stream);
    decoder.End({stream});
  }
  decoder.End({first});
  decoder.ExpectIdle();
}

// A prompt that ends inside what the sliding group has given up cannot be had.
TEST(PrefixGroups, WithoutItsWindowAPrefixIsNotFound) {
  Decoder decoder(FullAndSliding(16));
  Pager& pager = decoder.pager();
  pager.BeginStep();
  Stream stream = *decoder.Admit(Count(0, 96));
  decoder.Finish();
  for (TokenId token = 96; token < 112; ++token) {  // the first pages slide out, not yet entered
    pager.BeginStep();
    ASSERT_TRUE(decoder.Append(stream, token));
    decoder.Finish();
  }
  ASSERT_EQ(pager.first_page(stream.seq, 1), 4u);
  EXPECT_EQ(decoder.Index(stream), 7u + 3u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, Count(0, 112)), 112u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, Count(0, 104)), 104u);  // sees 64..103
  EXPECT_EQ(pager.MatchPrefix(kTenant, Count(0, 103)), 0u);    // would see 63
  decoder.End({stream});
  pager.BeginStep();
  const Stream again = *decoder.Admit(Join(Count(0, 112), Count(500, 5)));
  EXPECT_EQ(again.num_cached, 112u);
  const SeqId late = *pager.Open();
  EXPECT_EQ(pager.AdoptPrefix(late, kTenant, Count(0, 112), 96).status,
            ReserveStatus::kUnserviceable);
  decoder.Finish();
  decoder.ExpectOwn(again);
}

}  // namespace
}  // namespace kvrm
