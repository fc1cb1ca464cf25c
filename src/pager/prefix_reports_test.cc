// Field reports about other engines' prefix caches, on the pager alone. The suite's name is the
// report's number.
#include <algorithm>
#include <optional>
#include <random>
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
using testing::Tokens;
using Stream = Decoder::Stream;

const Tokens kPrefix = Count(0, 32);

// Pages that a look-up found must not be handed out as fresh ones before they are taken.
TEST(B001, APageIsAHitOrRoomButNeverBoth) {
  for (const uint32_t unrelated : {75u, 110u}) {
    for (const bool prefix_first : {true, false}) {
      Decoder decoder(PoolOf(8));
      decoder.RunToEnd(kPrefix);
      ASSERT_EQ(decoder.pager().books(0).cached, 2u);
      const Tokens a = Join(kPrefix, Count(500, 5)), b = Count(1000, unrelated);
      decoder.pager().BeginStep();
      std::vector<std::optional<Stream>> admitted;
      for (const Tokens& tokens : prefix_first ? std::vector{a, b} : std::vector{b, a}) {
        admitted.push_back(decoder.Admit(tokens));
      }
      decoder.Finish();
      EXPECT_TRUE(admitted[0]);
      EXPECT_EQ(admitted[1].has_value(), unrelated == 75);  // 7 pages and 3: one of them waits
      std::vector<Stream> running;
      for (const auto& stream : admitted) {
        if (stream) running.push_back(*stream);
      }
      for (const Stream& stream : running) decoder.ExpectOwn(stream);
      decoder.End(running);
      decoder.ExpectIdle();
    }
  }
}

// The gap itself: between the look-up and the taking somebody else needs the pages.
TEST(B001, WhatWasEvictedSinceTheMatchCannotBeAdopted) {
  Decoder decoder(PoolOf(8));
  decoder.RunToEnd(kPrefix);
  Pager& pager = decoder.pager();
  pager.BeginStep();
  ASSERT_EQ(pager.MatchPrefix(kTenant, kPrefix), 32u);
  const std::optional<Stream> other = decoder.Admit(Count(1000, 110));
  ASSERT_TRUE(other);
  const SeqId late = *pager.Open();
  EXPECT_EQ(pager.AdoptPrefix(late, kTenant, kPrefix, 32).status, ReserveStatus::kUnserviceable);
  EXPECT_EQ(pager.num_tokens(late), 0u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, kPrefix), 16u);  // its tail went first
  EXPECT_EQ(pager.AdoptPrefix(late, kTenant, kPrefix, 16).status, ReserveStatus::kOk);
  decoder.Finish();
  decoder.ExpectOwn(*other);
  decoder.ExpectOwn({late, Count(0, 16), kTenant});
}

// Idle cached pages are not counted twice, as hits and as room; a failed try leaves no count.
TEST(B002, AFailedAdmissionGivesItsHitsBack) {
  Decoder decoder(PoolOf(6));
  decoder.RunToEnd(kPrefix);
  Pager& pager = decoder.pager();
  pager.BeginStep();
  const Stream other = *decoder.Admit(Count(1000, 32));
  decoder.Finish();
  const Tokens a = Join(kPrefix, Count(500, 48));  // 5 pages, 2 of them cached; 2 are free
  pager.BeginStep();
  const SeqId seq = *pager.Open();
  const PagerSnapshot before = pager.Snapshot();
  for (int i = 0; i < 100; ++i) {
    const Pager::Savepoint mark = pager.Mark(seq);
    ASSERT_EQ(pager.MatchPrefix(kTenant, a), 32u);
    ASSERT_EQ(pager.AdoptPrefix(seq, kTenant, a, 32).status, ReserveStatus::kOk);
    const Reservation reservation = pager.Reserve(seq, 80);
    ASSERT_EQ(reservation.status, ReserveStatus::kDeferred);
    ASSERT_EQ(reservation.missing_pages, 1u);
    pager.Rollback(mark);
    ASSERT_EQ(pager.Snapshot(), before);
  }
  pager.Close(seq);
  decoder.Finish();
  decoder.End({other});
  pager.BeginStep();
  const std::optional<Stream> admitted = decoder.Admit(a);
  ASSERT_TRUE(admitted);
  EXPECT_EQ(admitted->num_cached, 32u);
  decoder.Finish();
  decoder.ExpectOwn(*admitted);
  decoder.End({*admitted});
  decoder.ExpectIdle();
}

// A page is found once its contents are written, not once it is planned.
TEST(B003, AnAbortedPromptLeavesNothingToFind) {
  const Tokens prompt = Count(0, 48);
  Decoder decoder(PoolOf(16), /*depth=*/1);
  Pager& pager = decoder.pager();
  pager.BeginStep();
  ASSERT_TRUE(decoder.Admit(prompt));
  EXPECT_EQ(pager.MatchPrefix(kTenant, prompt), 0u);
  decoder.GiveUp();
  EXPECT_EQ(pager.MatchPrefix(kTenant, prompt), 0u);

  pager.BeginStep();
  const Stream running = *decoder.Admit(prompt);
  decoder.Finish();  // committed; the executor has not run it
  EXPECT_EQ(pager.completed_tokens(running.seq), 0u);
  EXPECT_EQ(decoder.Index(running), 0u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, prompt), 0u);
  pager.BeginStep();
  pager.Close(running.seq);  // preempted there
  const Stream again = *decoder.Admit(prompt);
  EXPECT_EQ(again.num_cached, 0u);
  decoder.Finish();
  decoder.FinishAll();
  EXPECT_EQ(decoder.Index(again), 3u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, prompt), 48u);
  decoder.ExpectOwn(again);
}

TEST(B003, OnlyTheChunksThatHaveRunAreFound) {
  Decoder decoder(PoolOf(16), /*depth=*/1);
  Pager& pager = decoder.pager();
  pager.BeginStep();
  Stream stream = *decoder.Admit(Count(0, 40));
  decoder.Finish();
  pager.BeginStep();
  for (TokenId token = 40; token < 64; ++token) ASSERT_TRUE(decoder.Append(stream, token));
  decoder.Finish();  // the first chunk has run, the second one has not
  EXPECT_EQ(pager.completed_tokens(stream.seq), 40u);
  EXPECT_EQ(decoder.Index(stream), 2u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, stream.tokens), 32u);
  decoder.FinishAll();
  EXPECT_EQ(decoder.Index(stream), 2u);
  EXPECT_EQ(pager.MatchPrefix(kTenant, stream.tokens), 64u);
}

// Equal hashes of different prompts: each finds its own pages, or none.
TEST(B004, WithFourHashBitsEveryAnswerEqualsTheSoloRun) {
  PagerConfig config = PoolOf(500);
  config.prefix_hash_bits = 4;
  Decoder decoder(config);
  std::mt19937 random(4);
  std::vector<Tokens> prompts(200, Tokens(40));
  for (Tokens& prompt : prompts) {
    for (TokenId& token : prompt) token = static_cast<TokenId>(random() % 50'000);
  }
  std::vector<uint32_t> order(400);  // each twice
  for (uint32_t i = 0; i < 400; ++i) order[i] = i % 200;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<bool> known(200);
  for (uint32_t i : order) {
    const Stream stream = decoder.RunToEnd(prompts[i]);  // compares its bytes
    ASSERT_EQ(stream.num_cached, known[i] ? 32u : 0u);
    known[i] = true;
  }
  EXPECT_EQ(decoder.RunToEnd(prompts[0], {2, 7}).num_cached, 0u);
  EXPECT_EQ(decoder.RunToEnd(prompts[0], {1, 8}).num_cached, 0u);
  EXPECT_EQ(decoder.RunToEnd(prompts[0], {2, 7}).num_cached, 32u);
  EXPECT_GT(decoder.pager().counters().prefix_collisions, 0u);
  decoder.ExpectIdle();
}

// What a batch used is free or cached afterwards, and what is cached can be had back.
TEST(B006, UsedPagesReturnToTheirStartWithThePrefixCacheOn) {
  Decoder decoder(PoolOf(64));
  Pager& pager = decoder.pager();
  constexpr uint32_t kLengths[] = {15, 16, 17, 31, 32, 33};
  for (uint32_t batch = 0; batch < 15; ++batch) {
    std::vector<Stream> streams;
    pager.BeginStep();
    for (uint32_t i = 0; i < 8; ++i) {
      const Tokens shared = Count(0, 10);
      const uint32_t length = kLengths[(batch + i) % 6];
      streams.push_back(
          *decoder.Admit(Join(shared, Count(static_cast<TokenId>(i % 3) * 100, length - 10))));
    }
    decoder.Finish();
    for (Stream& stream : streams) decoder.Index(stream);
    pager.BeginStep();
    for (Stream& stream : streams) ASSERT_TRUE(decoder.Append(stream, 7));
    decoder.Finish();
    for (Stream& stream : streams) decoder.ExpectOwn(stream);
    decoder.End(streams);
    decoder.ExpectIdle();
  }
  EXPECT_GT(pager.counters().prefix_hit_tokens, 0u);
  EXPECT_GT(pager.books(0).cached, 0u);
  pager.ClearPrefixIndex();
  EXPECT_EQ(pager.books(0).cached, 0u);
  EXPECT_EQ(pager.available_pages(/*with_limbo=*/false), 64u);
  decoder.ExpectIdle();
}

// A half-filled last page of a cached prompt has many readers and no writer but its copies' owners.
TEST(B008, EachStreamOfOneCachedPromptWritesAPageOfItsOwn) {
  Decoder decoder(PoolOf(64));
  const Tokens cached = Count(0, 32);
  decoder.RunToEnd(cached);
  Pager& pager = decoder.pager();
  std::vector<Stream> streams;
  pager.BeginStep();
  for (int i = 0; i < 4; ++i) {
    streams.push_back(*decoder.Admit(Count(0, 20)));
    EXPECT_EQ(streams.back().num_cached, 20u);
    ASSERT_TRUE(decoder.Append(streams.back(), 100 + i));
  }
  decoder.Finish();
  EXPECT_EQ(decoder.num_copies(), 4u);
  for (uint32_t length = 21; length < 70; ++length) {
    pager.BeginStep();
    for (Stream& stream : streams) ASSERT_TRUE(decoder.Append(stream, stream.tokens.back()));
    decoder.Finish();
  }
  for (const Stream& stream : streams) decoder.ExpectOwn(stream);
  EXPECT_EQ(decoder.num_copies(), 4u);
  EXPECT_EQ(decoder.RunToEnd(cached).num_cached, 32u);  // and what is cached is as it was
}

// Whole pages, one less and one more; nothing is left to compute where all of it is cached.
TEST(B010, PromptsAroundAWholePageGiveTheSameColdAndWarm) {
  for (const uint32_t length : {15u, 16u, 17u, 31u, 32u, 33u}) {
    for (const uint32_t num_output : {1u, 20u}) {
      Decoder decoder(PoolOf(32));
      const Tokens prompt = Count(0, length);
      for (int time = 0; time < 3; ++time) {
        decoder.pager().BeginStep();
        Stream stream = *decoder.Admit(prompt);
        EXPECT_LE(stream.num_cached, length);
        EXPECT_GE(stream.num_cached, time == 0 ? 0 : length / 16 * 16);
        decoder.Finish();
        for (uint32_t i = 0; i < num_output; ++i) {
          decoder.ExpectOwn(stream);
          decoder.Index(stream);
          decoder.pager().BeginStep();
          ASSERT_TRUE(decoder.Append(stream, 1000));
          decoder.Finish();
        }
        decoder.ExpectOwn(stream);
        decoder.Index(stream);
        decoder.End({stream});
        decoder.ExpectIdle();
      }
    }
  }
}

// The executor is one step behind: what it still writes for cancelled requests must not land in
// pages of the retry, and the retry may share only what was written before.
TEST(B013, ARetryRightAfterACancelWaitsForTheRunningStep) {
  Decoder decoder(PoolOf(40, /*max_slots=*/16), /*depth=*/1);
  Pager& pager = decoder.pager();
  std::mt19937 random(13);
  std::vector<Tokens> prompts;
  for (TokenId i = 0; i < 5; ++i) prompts.push_back(Join(Count(0, 16), Count(100 * i, 20)));
  std::vector<Stream> running;
  for (int round = 0; round < 200; ++round) {
    pager.BeginStep();
    for (const Stream& stream : running) pager.Close(stream.seq);
    running.clear();
    for (const Tokens& prompt : prompts) {
      if (const auto stream = decoder.Admit(prompt)) running.push_back(*stream);
    }
    decoder.Finish();
    for (uint32_t step = random() % 8; step > 0; --step) {
      for (const Stream& stream : running) decoder.Index(stream);
      pager.BeginStep();
      for (Stream& stream : running) {
        (void)decoder.Append(stream, static_cast<TokenId>(random() % 3));
      }
      decoder.Finish();
    }
    if (random() % 2 == 0) continue;  // cancelled while its step runs
    decoder.FinishAll();
    for (const Stream& stream : running) decoder.ExpectOwn(stream);
  }
  EXPECT_GT(pager.counters().prefix_hit_tokens, 0u);
  decoder.FinishAll();
  decoder.End(running);
  decoder.ExpectIdle();
}

// A refusal gives back what the prompt had taken on arrival.
TEST(B014, RefusedPromptsLeaveTheirCachedPrefixAsItWas) {
  Decoder decoder(PoolOf(40));
  Pager& pager = decoder.pager();
  const Tokens prefix = Count(0, 64);
  decoder.RunToEnd(prefix);
  pager.BeginStep();
  const Stream load = *decoder.Admit(Count(2000, 32 * 16));  // with the prefix, 36 of 40 pages
  decoder.Finish();
  const PagerBooks before = pager.books(0);
  ASSERT_EQ(before.cached, 4u);
  for (TokenId i = 0; i < 200; ++i) {
    pager.BeginStep();
    ASSERT_FALSE(decoder.Admit(Join(prefix, Count(10'000 + i, 16 * 16))));
    decoder.Finish();
    ASSERT_EQ(pager.books(0), before);
  }
  pager.BeginStep();
  const std::optional<Stream> fits = decoder.Admit(Join(prefix, Count(500, 64)));
  ASSERT_TRUE(fits);
  EXPECT_EQ(fits->num_cached, 64u);
  decoder.Finish();
  decoder.ExpectOwn(*fits);
  decoder.ExpectOwn(load);
  decoder.End({load, *fits});
  decoder.ExpectIdle();
}

}  // namespace
}  // namespace kvrm
