#include "bench/load/figures.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/load/answer_event.h"
#include "bench/load/random.h"
#include "bench/load/sse_reader.h"

namespace kvrm::cli {
namespace {

// By counting: the smallest sample that at least per_mille of 1,000 samples do not exceed.
double NaivePerMille(const std::vector<double>& samples, uint32_t per_mille) {
  double best = 0;
  bool found = false;
  for (double candidate : samples) {
    size_t not_above = 0;
    for (double sample : samples) not_above += sample <= candidate;
    if (not_above * 1000 < samples.size() * per_mille) continue;
    if (!found || candidate < best) best = candidate;
    found = true;
  }
  return best;
}

TEST(B085, PercentilesEqualANaiveCount) {
  std::vector<std::vector<double>> sets = {{7}, {1, 1, 1, 1}, {3, 1, 2}};
  std::vector<double> ramp;
  for (int i = 1; i <= 100; ++i) ramp.push_back(i);
  sets.push_back(ramp);
  ramp.push_back(10'000);
  sets.push_back(ramp);
  Random random({5});
  for (size_t size : {2u, 10u, 99u, 100u, 101u, 999u, 1000u, 1001u}) {
    std::vector<double> samples;
    for (size_t i = 0; i < size; ++i) {
      samples.push_back(static_cast<double>(random.Between(0, size / 2)));
    }
    sets.push_back(samples);
  }
  for (const std::vector<double>& samples : sets) {
    const Distribution distribution(samples);
    for (uint32_t per_mille : {0u, 1u, 500u, 501u, 900u, 990u, 999u, 1000u}) {
      EXPECT_EQ(distribution.PerMille(per_mille), NaivePerMille(samples, per_mille))
          << samples.size() << " samples, " << per_mille;
    }
  }
  EXPECT_TRUE(Distribution().empty());
  EXPECT_EQ(Distribution(sets[3]).PerMille(990), 99);
  EXPECT_EQ(Distribution(sets[4]).PerMille(1000), 10'000);
}

// A request due at 0 whose texts came at these milliseconds.
RequestRecord Record(const std::vector<int64_t>& texts_ms, uint32_t source = 0) {
  RequestRecord record;
  record.source = source;
  record.sent_us = 1000;
  for (int64_t ms : texts_ms) record.events.push_back({ms * 1000, std::nullopt});
  record.end_us = texts_ms.empty() ? 5000 : texts_ms.back() * 1000 + 2000;
  record.output_tokens = static_cast<uint32_t>(texts_ms.size());
  record.asked_prompt_tokens = 100;
  record.asked_output_tokens = 10;
  return record;
}

Workload TwoSources() {
  return *ParseWorkload("ttft-ms = 50\nitl-ms = 30\ne2e-ms = 200\n[a]\n[b]\n", "w", {});
}

TEST(Figures, ScriptedStampsGiveScriptedFigures) {
  LoadRun run;
  run.records = {Record({10, 20, 40, 50}), Record({40, 45, 100}, 1), Record({60, 70})};
  run.arrivals_end_us = 1'000'000;
  run.end_us = 2'000'000;
  run.own_cpu_s = 0.1;
  const LoadFigures figures = FiguresOf(run, TwoSources());
  EXPECT_EQ(figures.all.ttft_ms.sorted(), (std::vector<double>{10, 40, 60}));
  EXPECT_EQ(figures.all.itl_ms.sorted(), (std::vector<double>{5, 10, 10, 10, 20, 55}));
  EXPECT_EQ(figures.all.longest_gap_ms.sorted(), (std::vector<double>{10, 20, 55}));
  EXPECT_EQ(figures.all.e2e_ms.sorted(), (std::vector<double>{52, 72, 102}));
  EXPECT_EQ(figures.all.wait_ms.sorted(), (std::vector<double>{1, 1, 1}));
  EXPECT_DOUBLE_EQ(figures.all.tpot_ms.sorted()[1], 40.0 / 3);
  EXPECT_EQ(figures.all.good, 1u);  // the second has a gap of 55 ms, the third a first text at 60
  EXPECT_EQ(figures.all.over_gap, 1u);
  EXPECT_EQ(figures.all.with_gaps, 3u);
  EXPECT_DOUBLE_EQ(*figures.all.good_share(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(figures.goodput_per_s, 0.5);
  EXPECT_DOUBLE_EQ(figures.window_tokens_per_s, 9);
  EXPECT_DOUBLE_EQ(figures.total_tokens_per_s, 4.5);
  EXPECT_DOUBLE_EQ(figures.peak_tokens_per_s, 9);
  EXPECT_DOUBLE_EQ(figures.own_cpu_percent, 5);
  ASSERT_EQ(figures.sources.size(), 2u);
  EXPECT_EQ(figures.sources[0].due, 2u);
  EXPECT_EQ(figures.sources[1].ttft_ms.sorted(), (std::vector<double>{40}));
}

TEST(Figures, ARareStallHidesFromP99AndNotFromTheLongestGap) {
  LoadRun run;
  std::vector<int64_t> texts;
  for (int64_t i = 0; i < 1000; ++i) texts.push_back(10 * i + (i > 500 ? 700 : 0));
  run.records = {Record(texts)};
  run.end_us = 20'000'000;
  const LoadFigures figures = FiguresOf(run, TwoSources());
  EXPECT_EQ(figures.all.itl_ms.PerMille(990), 10);
  EXPECT_EQ(figures.all.itl_ms.PerMille(1000), 710);
  EXPECT_EQ(figures.all.longest_gap_ms.PerMille(500), 710);
}

// A stream begun in the warm-up may last for the whole run: its gaps must not be lost.
TEST(Figures, OfTheWarmUpOnlyGapsThatBeginBehindItCount) {
  LoadRun run;
  run.records = {Record({10, 90, 100, 140}), Record({10, 20}), Record({130, 135})};
  run.records[0].counted = run.records[1].counted = false;
  run.records[1].outcome = Outcome::kReset;
  run.counted_from_us = 90'000;
  run.end_us = 1'000'000;
  const LoadFigures figures = FiguresOf(run, TwoSources());
  EXPECT_EQ(figures.all.itl_ms.sorted(), (std::vector<double>{5, 10, 40}));
  EXPECT_EQ(figures.all.longest_gap_ms.sorted(), (std::vector<double>{5, 40}));
  EXPECT_EQ(figures.all.with_gaps, 2u);
  EXPECT_EQ(figures.all.over_gap, 1u);
  EXPECT_EQ(figures.all.due, 1u);
  EXPECT_EQ(figures.all.errors(), 0u);
  EXPECT_EQ(figures.all.warmup_due, 2u);
  EXPECT_EQ(figures.all.warmup_errors, 1u);
  EXPECT_EQ(figures.all.ttft_ms.size(), 1u);
}

TEST(Figures, FailedRequestsCountAsErrorsAndTheirGapsStay) {
  LoadRun run;
  run.records = {Record({10, 90}), Record({})};
  run.records[0].outcome = Outcome::kReset;
  run.records[1].outcome = Outcome::kHttp429;
  run.end_us = 1'000'000;
  const LoadFigures figures = FiguresOf(run, TwoSources());
  EXPECT_EQ(figures.all.errors(), 2u);
  EXPECT_EQ(figures.all.itl_ms.sorted(), (std::vector<double>{80}));
  EXPECT_TRUE(figures.all.e2e_ms.empty());
  EXPECT_TRUE(figures.all.tpot_ms.empty());
  EXPECT_EQ(*figures.all.good_share(), 0);
}

// The average is over a time that may end within the last part.
TEST(B084, ThePeakIsNeverBelowTheAverage) {
  Random random({9});
  for (int round = 0; round < 200; ++round) {
    LoadRun run;
    std::vector<int64_t> texts = {static_cast<int64_t>(random.Between(0, 100))};
    for (int i = 0; i < 20; ++i) {
      texts.push_back(texts.back() + static_cast<int64_t>(random.Between(0, 300)));
    }
    run.records = {Record(texts)};
    run.end_us = texts.back() * 1000 + static_cast<int64_t>(random.Between(1, 500'000));
    const LoadFigures figures = FiguresOf(run, TwoSources());
    EXPECT_GE(figures.peak_tokens_per_s, figures.total_tokens_per_s * (1 - 1e-9));
    EXPECT_NEAR(figures.total_tokens_per_s * figures.total_s, 21, 1e-6);
  }
}

TEST(Figures, AnEmptyRunHasEmptyFigures) {
  const LoadFigures figures = FiguresOf(LoadRun{}, TwoSources());
  EXPECT_EQ(figures.all.due, 0u);
  EXPECT_TRUE(figures.all.ttft_ms.empty());
  EXPECT_FALSE(figures.all.good_share().has_value());
  EXPECT_EQ(figures.total_tokens_per_s, 0);
}

TEST(Answer, WhatAServerSaysWentWrongIsOneLineOfAscii) {
  EXPECT_EQ(ErrorMessage("{\"error\":{\"message\":\"no\\nroom\"}}"), "no room");
  EXPECT_EQ(ErrorMessage("{\"error\":\"busy\"}"), "busy");
  EXPECT_EQ(ErrorMessage("{\"error\":{\"code\":5}}"), "{\"code\":5}");
  EXPECT_EQ(ErrorMessage("caf\xC3"), "caf?");
  EXPECT_EQ(ErrorMessage(std::string(1000, 'x')), std::string(200, 'x'));
}

TEST(Answer, NullIsAbsentAndWrongTypesOfCountsAreNoCounts) {
  const auto event = ParseAnswerEvent(
      R"({"choices":[{"delta":{"content":null},"finish_reason":null}],"usage":null,"error":null})");
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(event->text, "");
  EXPECT_EQ(event->finish_reason, "");
  EXPECT_FALSE(event->output_tokens.has_value());
  const auto odd = ParseAnswerEvent(
      R"({"usage":{"prompt_tokens":-1,"completion_tokens":"7","prompt_tokens_details":[]}})");
  ASSERT_TRUE(odd.ok());
  EXPECT_FALSE(odd->prompt_tokens || odd->output_tokens || odd->cached_tokens);
}

// ---- server-sent events

std::vector<std::string> Events(const std::vector<std::string_view>& pieces) {
  std::vector<std::string> events;
  SseReader reader;
  for (std::string_view piece : pieces) {
    EXPECT_TRUE(reader.Feed(piece, [&](const SseEvent& event) {
      events.push_back((event.sent_us ? std::to_string(*event.sent_us) + ":" : "") +
                       std::string(event.data));
    }));
  }
  return events;
}

TEST(Sse, EveryCutOfAStreamGivesTheSameEvents) {
  const std::string stream =
      ": hello\ndata: one\n\nevent: x\r\ndata:two\r\ndata:  three\r\n\r\n: sent-us=42\rdata\r\r"
      "id: 3\n\n: sent-us=no\ndata: four\n\ndata: never ended\n";
  const std::vector<std::string> expected = {"one", "two\n three", "42:", "four"};
  EXPECT_EQ(Events({stream}), expected);
  for (size_t i = 0; i <= stream.size(); ++i) {
    for (size_t j = i; j <= stream.size(); ++j) {
      const std::string_view all = stream;
      ASSERT_EQ(Events({all.substr(0, i), all.substr(i, j - i), all.substr(j)}), expected)
          << i << " " << j;
    }
  }
}

TEST(Sse, AnEventWithoutEndIsRefusedAtItsLimit) {
  SseReader reader;
  const std::string megabyte(1u << 20, 'x');
  size_t num_events = 0;
  bool fits = reader.Feed("data: ", [&](const SseEvent&) { ++num_events; });
  for (int i = 0; i < 5; ++i) {
    fits = reader.Feed(megabyte, [&](const SseEvent&) { ++num_events; });
    EXPECT_EQ(fits, i < 3);
  }
  EXPECT_FALSE(reader.Feed("\n\n", [&](const SseEvent&) { ++num_events; }));
  EXPECT_EQ(num_events, 0u);
}

}  // namespace
}  // namespace kvrm::cli
