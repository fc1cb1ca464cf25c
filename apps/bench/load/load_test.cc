// The load generator against a scripted server. Nothing here expects a duration: what the client
// stamps is held between the server's own stamp of the sending and the test's of the arrival, all
// on one clock.
#include "bench/load/load_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "bench/load/exchange.h"
#include "bench/load/figures.h"
#include "bench/load/server_probe.h"
#include "bench/load/testing/mock_server.h"

namespace kvrm::cli {
namespace {

using kvrm::testing::MockAnswer;
using kvrm::testing::MockRequest;
using kvrm::testing::MockServer;
using std::chrono::milliseconds;

Workload ParsedJob(const std::string& text) {
  Result<Workload> workload = ParseWorkload("api = completions\n" + text, "test.toml", {});
  EXPECT_TRUE(workload.ok()) << workload.error().message;
  return *workload;
}

LoadRun RunAgainst(uint16_t port, const Workload& workload, const LoadHooks& hooks = {},
                   uint32_t context_tokens = 0) {
  LoadTarget target = *ParseTarget("http://127.0.0.1:" + std::to_string(port));
  target.model = "mock";
  target.context_tokens = context_tokens;
  const std::vector<Trace> traces(workload.sources.size());
  Result<LoadRun> run = RunLoad(workload, traces, target, PromptWords(), hooks);
  EXPECT_TRUE(run.ok()) << run.error().message;
  return *run;
}

void AnswerWith(MockAnswer& answer, uint32_t num_tokens) {
  answer.BeginStream();
  for (uint32_t i = 0; i < num_tokens; ++i) answer.StampedText("x");
  answer.EndStream(10, num_tokens);
}

// One closed client, one request.
LoadRun OneRequest(const MockServer::Script& script, const std::string& more = "") {
  MockServer server(script);
  return RunAgainst(server.port(), ParsedJob("requests = 1\n" + more + "[a]\n"));
}

TEST(Load, EveryStampLiesBetweenTheServersSendingAndTheTestsSeeing) {
  // Gap 3 waits until the client has stamped token 2 and then for 60 ms more, so it is the longest
  // scripted one, and its length is known to lie between the stamps around it.
  constexpr size_t kTokens = 6, kLongGap = 3;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int64_t> sent_us, seen_us;
  MockServer server([&](const MockRequest&, MockAnswer& answer) {
    answer.BeginStream();
    for (size_t i = 0; i < kTokens; ++i) {
      std::unique_lock<std::mutex> lock(mutex);
      ASSERT_TRUE(
          changed.wait_for(lock, std::chrono::seconds(60), [&] { return seen_us.size() == i; }));
      lock.unlock();
      if (i == kLongGap) std::this_thread::sleep_for(milliseconds(60));
      const int64_t stamp_us = answer.StampedText("tok");
      lock.lock();
      sent_us.push_back(stamp_us);
    }
    answer.EndStream(12, kTokens);
  });
  LoadHooks hooks;
  hooks.on_text = [&](const RequestRecord&) {
    const std::lock_guard<std::mutex> lock(mutex);
    seen_us.push_back(NowUs());
    changed.notify_all();
  };
  const LoadRun run = RunAgainst(server.port(), ParsedJob("requests = 1\n[a]\n"), hooks);
  ASSERT_EQ(run.records.size(), 1u);
  const RequestRecord& record = run.records[0];
  EXPECT_EQ(record.outcome, Outcome::kDone);
  ASSERT_EQ(record.events.size(), kTokens);
  for (size_t i = 0; i < kTokens; ++i) {
    EXPECT_EQ(record.events[i].sent_us, sent_us[i]);
    EXPECT_GE(record.events[i].arrived_us, sent_us[i]);
    EXPECT_LE(record.events[i].arrived_us, seen_us[i]);
  }
  EXPECT_LE(record.intended_us, record.sent_us);
  EXPECT_LE(record.sent_us, record.events[0].arrived_us);
  const auto gap_ms = [&](size_t i) {
    return static_cast<double>(record.events[i].arrived_us - record.events[i - 1].arrived_us) / 1e3;
  };
  EXPECT_GE(gap_ms(kLongGap), 60);
  EXPECT_GE(*LongestGapMs(record, record.intended_us), gap_ms(kLongGap));
  const LoadFigures figures = FiguresOf(run, ParsedJob("[a]\n"));
  EXPECT_EQ(figures.all.itl_ms.size(), kTokens - 1);
  EXPECT_EQ(figures.all.itl_ms.PerMille(1000), *LongestGapMs(record, record.intended_us));
  // The server's own gaps come out exactly as it stamped them.
  double longest_sent_ms = 0;
  for (size_t i = 1; i < kTokens; ++i) {
    longest_sent_ms =
        std::max(longest_sent_ms, static_cast<double>(sent_us[i] - sent_us[i - 1]) / 1e3);
  }
  EXPECT_EQ(figures.all.server_itl_ms.PerMille(1000), longest_sent_ms);
}

// Coordinated omission: requests are due every 20 ms; the server answers one at a time and stands
// still for 500 ms once. Whoever was due meanwhile has the rest of the stall in its latency.
TEST(Load, AStallShowsInEveryRequestThatWasDueMeanwhile) {
  std::mutex one_at_a_time;
  std::atomic<int64_t> stall_begin_us{0}, stall_end_us{0};
  MockServer server([&](const MockRequest& request, MockAnswer& answer) {
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    if (request.number == 5) {
      stall_begin_us = NowUs();
      std::this_thread::sleep_for(milliseconds(500));
      stall_end_us = NowUs();
    }
    AnswerWith(answer, 2);
  });
  const LoadRun run =
      RunAgainst(server.port(), ParsedJob("requests = 60\n[a]\narrivals = constant\nrate = 50\n"));
  ASSERT_EQ(run.records.size(), 60u);
  size_t due_meanwhile = 0;
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RequestRecord& record = run.records[i];
    EXPECT_EQ(record.outcome, Outcome::kDone);
    // Due on the grid, whatever the server did.
    EXPECT_NEAR(static_cast<double>(record.intended_us - run.start_us),
                20'000.0 * static_cast<double>(i), 1);
    if (record.intended_us <= stall_begin_us || record.intended_us >= stall_end_us) continue;
    ++due_meanwhile;
    EXPECT_GE(record.end_us, stall_end_us);
    EXPECT_GE(E2eMs(record), static_cast<double>(stall_end_us - record.intended_us) / 1e3);
    EXPECT_GE(*TtftMs(record), static_cast<double>(stall_end_us - record.intended_us) / 1e3);
  }
  EXPECT_GE(due_meanwhile, 1u);
}

// B082: 8 requests at 10/s, one at a time, 0.5 s each.
TEST(B082, LatencyCountsFromTheIntendedTimeAlsoBehindTheClientsOwnQueue) {
  MockServer server([&](const MockRequest&, MockAnswer& answer) {
    std::this_thread::sleep_for(milliseconds(500));
    AnswerWith(answer, 2);
  });
  const LoadRun run =
      RunAgainst(server.port(),
                 ParsedJob("requests = 8\nmax-open = 1\n[a]\narrivals = constant\nrate = 10\n"));
  ASSERT_EQ(run.records.size(), 8u);
  for (size_t i = 0; i < run.records.size(); ++i) {
    const RequestRecord& record = run.records[i];
    const double due_ms = 100.0 * static_cast<double>(i);
    // The answers before took 500 ms each, and the first began when it was due or later.
    EXPECT_GE(E2eMs(record), 500.0 * static_cast<double>(i + 1) - due_ms);
    if (i == 0) continue;
    EXPECT_GE(record.sent_us, run.records[i - 1].end_us);
  }
  const LoadFigures figures = FiguresOf(run, ParsedJob("[a]\n"));
  EXPECT_GE(figures.all.e2e_ms.PerMille(1000), 3300);
  EXPECT_GE(figures.all.wait_ms.PerMille(1000), 2800);
}

// B084: five tokens a chunk, an empty first chunk, a role-only chunk, one chunk of 100 blanks.
TEST(B084, TokensComeFromUsageAndTheFirstTokenFromTheFirstText) {
  std::atomic<int64_t> first_text_us{0};
  const LoadRun run = OneRequest([&](const MockRequest&, MockAnswer& answer) {
    answer.BeginStream();
    answer.Event(R"({"choices":[{"index":0,"text":""}]})");
    answer.Event(R"({"choices":[{"index":0,"delta":{"role":"assistant"}}]})");
    std::this_thread::sleep_for(milliseconds(20));
    first_text_us = answer.StampedText("one two three four five");
    answer.StampedText(std::string(100, ' '));
    answer.EndStream(7, 105);
  });
  ASSERT_EQ(run.records.size(), 1u);
  const RequestRecord& record = run.records[0];
  EXPECT_EQ(record.events.size(), 2u);
  EXPECT_EQ(record.tokens(), 105u);
  EXPECT_EQ(record.prompt_tokens, 7u);
  EXPECT_GE(record.events[0].arrived_us, first_text_us);
  const LoadFigures figures = FiguresOf(run, ParsedJob("[a]\n"));
  EXPECT_EQ(figures.all.output_tokens, 105u);
  EXPECT_GE(figures.peak_tokens_per_s, figures.total_tokens_per_s * 0.999999);
  EXPECT_NEAR(figures.total_tokens_per_s * figures.total_s, 105, 1e-6);
}

TEST(Load, EachWayToFailIsCountedUnderItsName) {
  struct Case {
    Outcome outcome;
    const char* detail;
    MockServer::Script script;
  };
  const auto bytes = [](const char* text) {
    return [text](const MockRequest&, MockAnswer& answer) {
      answer.Send(text);
      answer.Close();
    };
  };
  const auto in_stream = [](const char* text) {
    return [text](const MockRequest&, MockAnswer& answer) {
      answer.BeginStream();
      answer.StampedText("x");
      answer.Chunk(text);
      answer.Close();
    };
  };
  const std::vector<Case> cases = {
      {Outcome::kHttp429, "slow down",
       [](const MockRequest&, MockAnswer& answer) {
         answer.Status(429, R"({"error":{"message":"slow\ndown"}})");
       }},
      {Outcome::kHttp503, "loading",
       [](const MockRequest&, MockAnswer& answer) {
         answer.Status(503, R"({"error":{"message":"loading"}})");
       }},
      {Outcome::kHttp4xx, "no such model",
       [](const MockRequest&, MockAnswer& answer) {
         answer.Status(404, R"({"detail":"no such model"})");
       }},
      {Outcome::kHttp5xx, "<html>",
       [](const MockRequest&, MockAnswer& answer) { answer.Status(502, "<html>"); }},
      {Outcome::kReset, "",
       [](const MockRequest&, MockAnswer& answer) {
         answer.BeginStream();
         answer.StampedText("x");
         answer.Reset();
       }},
      {Outcome::kReset, "", [](const MockRequest&, MockAnswer& answer) { answer.Reset(); }},
      {Outcome::kReset, "", bytes("HTTP/1.1 200 OK\r\nContent-Le")},
      {Outcome::kReset, "", bytes("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ndata: ")},
      {Outcome::kMalformed, "HTTP", bytes("SSH-2.0-OpenSSH_9\r\n\r\n")},
      {Outcome::kMalformed, "HTTP",
       bytes("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")},
      {Outcome::kMalformed, "no JSON", in_stream("data: {\"choices\n\n")},
      {Outcome::kMalformed, "no JSON", in_stream("data: 17\n\n")},
      {Outcome::kMalformed, "no list", in_stream("data: {\"choices\": 3}\n\n")},
      {Outcome::kStreamError, "out of luck",
       in_stream("data: {\"error\":{\"message\":\"out of luck\"}}\n\n")},
      {Outcome::kTruncated, "[DONE]",
       [](const MockRequest&, MockAnswer& answer) {
         answer.BeginStream();
         answer.StampedText("x");
         answer.Send("0\r\n\r\n");
       }},
      {Outcome::kTruncated, "[DONE]",
       bytes("HTTP/1.1 200 OK\r\n\r\ndata: {\"choices\":[{\"text\":\"x\"}]}\n\n")},
      {Outcome::kEmpty, "no token",
       [](const MockRequest&, MockAnswer& answer) { AnswerWith(answer, 0); }},
      {Outcome::kTimeout, "",
       [](const MockRequest&, MockAnswer& answer) {
         answer.BeginStream();
         answer.AwaitHangUp();
         answer.Close();
       }},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const LoadRun run = OneRequest(
        cases[i].script, cases[i].outcome == Outcome::kTimeout ? "timeout-s = 0.05\n" : "");
    ASSERT_EQ(run.records.size(), 1u) << i;
    EXPECT_STREQ(OutcomeName(run.records[0].outcome), OutcomeName(cases[i].outcome)) << i;
    EXPECT_NE(run.records[0].detail.find(cases[i].detail), std::string::npos)
        << i << ": " << run.records[0].detail;
    EXPECT_EQ(run.records[0].detail.find('\n'), std::string::npos);
    const LoadFigures figures = FiguresOf(run, ParsedJob("[a]\n"));
    EXPECT_EQ(figures.all.errors(), 1u);
    EXPECT_EQ(figures.all.good, 0u);
    EXPECT_TRUE(figures.all.e2e_ms.empty());
  }
}

TEST(Load, AServerThatIsNotThereIsCountedAndAskedAtALimitedRate) {
  uint16_t port = 0;
  {
    port = MockServer([](const MockRequest&, MockAnswer&) {}).port();
  }
  const LoadRun run = RunAgainst(port, ParsedJob("duration-s = 0.35\n[a]\nclients = 2\n"));
  ASSERT_GE(run.records.size(), 2u);
  EXPECT_LE(run.records.size(), 8u);
  for (const RequestRecord& record : run.records) EXPECT_EQ(record.outcome, Outcome::kConnect);
}

TEST(Load, AConnectionThatTheServerClosedMeanwhileIsReplacedUnseen) {
  MockServer server([&](const MockRequest&, MockAnswer& answer) {
    AnswerWith(answer, 3);
    answer.Close();  // without saying so in the head
  });
  const LoadRun run = RunAgainst(server.port(), ParsedJob("requests = 5\n[a]\nthink-s = 0.01\n"));
  ASSERT_EQ(run.records.size(), 5u);
  for (const RequestRecord& record : run.records) EXPECT_EQ(record.outcome, Outcome::kDone);
  EXPECT_EQ(server.num_connections(), 5u);
}

TEST(Load, OneConnectionServesTheRequestsOfOneClient) {
  MockServer server([&](const MockRequest&, MockAnswer& answer) { AnswerWith(answer, 3); });
  const LoadRun run = RunAgainst(server.port(), ParsedJob("requests = 5\n[a]\n"));
  ASSERT_EQ(run.records.size(), 5u);
  EXPECT_EQ(server.num_connections(), 1u);
  EXPECT_EQ(run.reused_connections, 4u);
}

TEST(Load, ACancelledRequestHangsUpAfterItsLastEventAndIsNoError) {
  std::atomic<bool> hung_up{false};
  const LoadRun run = OneRequest(
      [&](const MockRequest&, MockAnswer& answer) {
        answer.BeginStream();
        for (int i = 0; i < 3; ++i) answer.StampedText("x");
        hung_up = answer.AwaitHangUp(/*limit_ms=*/100);
        answer.Close();
      },
      "");
  // Without a wish to cancel the stream of three events just breaks off.
  ASSERT_EQ(run.records.size(), 1u);
  EXPECT_EQ(run.records[0].outcome, Outcome::kReset);
  EXPECT_FALSE(hung_up);

  MockServer server([&](const MockRequest&, MockAnswer& answer) {
    answer.BeginStream();
    for (int i = 0; i < 3; ++i) answer.StampedText("x");
    hung_up = answer.AwaitHangUp();
    answer.Close();
  });
  const LoadRun cancelled = RunAgainst(
      server.port(), ParsedJob("requests = 1\n[a]\ncancel-share = 1\ncancel-after = 3\n"));
  ASSERT_EQ(cancelled.records.size(), 1u);
  EXPECT_EQ(cancelled.records[0].outcome, Outcome::kCancelled);
  EXPECT_EQ(cancelled.records[0].events.size(), 3u);
  EXPECT_EQ(FiguresOf(cancelled, ParsedJob("[a]\n")).all.errors(), 0u);
  EXPECT_FALSE(FiguresOf(cancelled, ParsedJob("[a]\n")).all.good_share().has_value());
}

TEST(Load, WhatIsOpenWhenTheDrainEndsIsUnfinishedNotForgotten) {
  MockServer server([&](const MockRequest&, MockAnswer& answer) {
    answer.BeginStream();
    answer.StampedText("x");
    answer.AwaitHangUp();
    answer.Close();
  });
  const LoadRun run = RunAgainst(
      server.port(),
      ParsedJob(
          "duration-s = 0.1\ndrain-s = 1\nmax-open = 2\n[a]\narrivals = constant\nrate = 50\n"));
  ASSERT_EQ(run.records.size(), 5u);
  size_t sent = 0;
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.outcome, Outcome::kUnfinished);
    sent += record.detail.empty();
  }
  EXPECT_EQ(sent, 2u);
}

TEST(Load, AConversationSendsAllThatWasSaidBefore) {
  std::mutex mutex;
  std::vector<std::string> bodies;
  MockServer server([&](const MockRequest& request, MockAnswer& answer) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      bodies.push_back(request.body);
    }
    EXPECT_EQ(request.path, "/v1/chat/completions");
    answer.BeginStream();
    answer.Event(R"({"choices":[{"index":0,"delta":{"content":"answer)" +
                 std::to_string(request.number) + R"("}}]})");
    answer.EndStream(100, 5);
  });
  Workload workload = ParsedJob(
      "requests = 1\n[a]\nturns = 3\nprefix-tokens = 4\nprompt-tokens = 3\noutput-tokens = 9\n");
  workload.chat = true;
  const LoadRun run = RunAgainst(server.port(), workload);
  ASSERT_EQ(run.records.size(), 3u);
  ASSERT_EQ(bodies.size(), 3u);
  for (const char* part : {"answer0", "answer1"}) {
    EXPECT_NE(bodies[2].find(part), std::string::npos) << bodies[2];
  }
  // The history of each body stands at the beginning of the next one's.
  for (size_t i = 1; i < 3; ++i) {
    const auto messages = [](const std::string& body) {
      const size_t begin = body.find("\"messages\":[");
      return body.substr(begin, body.find("}]", begin) - begin);
    };
    EXPECT_EQ(messages(bodies[i]).find(messages(bodies[i - 1])), 0u);
  }
  EXPECT_NE(bodies[0].find("\"role\":\"system\""), std::string::npos);
  EXPECT_NE(bodies[0].find("\"max_tokens\":9"), std::string::npos);
  EXPECT_EQ(run.records[1].asked_prompt_tokens, 100u + 5u + 3u);
}

TEST(Load, AConversationEndsWhereTheContextHasNoRoomForItsNextTurn) {
  MockServer server([&](const MockRequest&, MockAnswer& answer) {
    answer.BeginStream();
    answer.StampedText("x");
    answer.EndStream(150, 50);
  });
  const LoadRun run = RunAgainst(server.port(), ParsedJob("requests = 1\n[a]\nturns = 4\n"), {},
                                 /*context_tokens=*/256);
  EXPECT_EQ(run.records.size(), 1u);
  EXPECT_EQ(run.dropped_turns, 3u);
}

TEST(Load, RequestsOfTheWarmUpAreSentAndNotCounted) {
  MockServer server([&](const MockRequest&, MockAnswer& answer) { AnswerWith(answer, 3); });
  const Workload workload =
      ParsedJob("requests = 10\nwarmup-s = 0.05\n[a]\narrivals = constant\nrate = 100\n");
  const LoadRun run = RunAgainst(server.port(), workload);
  EXPECT_EQ(run.records.size(), 10u);
  EXPECT_EQ(server.num_requests(), 10u);
  const LoadFigures figures = FiguresOf(run, workload);
  EXPECT_EQ(figures.all.due, 5u);
  EXPECT_EQ(figures.all.warmup_due, 5u);
  EXPECT_EQ(figures.all.e2e_ms.size(), 5u);
}

TEST(Probe, ModelAndContextAreAskedAndWordsOfSeveralTokensLeftOut) {
  MockServer server([&](const MockRequest& request, MockAnswer& answer) {
    if (request.path == "/v1/models") {
      return answer.Status(200, R"({"data":[{"id":"m","meta":{"n_ctx_train":2048}}]})");
    }
    ASSERT_EQ(request.path, "/tokenize");
    // Every word is one token, but "time" is three.
    size_t tokens = 0;
    const size_t begin = request.body.find("\"content\":\"") + 11;
    const std::string text = request.body.substr(begin, request.body.find('"', begin) - begin);
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(' ', at + 1), text.size());
      tokens += text.substr(at, end - at) == " time" ? 3 : 1;
      at = end;
    }
    std::string ids = "1";
    for (size_t i = 1; i < tokens; ++i) ids += ",1";
    answer.Status(200, "{\"tokens\":[" + ids + "]}");
  });
  const LoadTarget target = *ParseTarget("http://127.0.0.1:" + std::to_string(server.port()));
  const auto facts = AskModels(target);
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_EQ(facts->model, "m");
  EXPECT_EQ(facts->context_tokens, 2048u);
  const CountedWords words = CountWords(target);
  EXPECT_TRUE(words.counted);
  EXPECT_EQ(words.words.words().size(), PromptWords().words().size() - 1);
  EXPECT_EQ(server.num_connections(), 2u);
}

TEST(Probe, AServerWithoutTokenizerOrModelsIsSaidSo) {
  MockServer server([&](const MockRequest&, MockAnswer& answer) { answer.Status(404, "{}"); });
  const LoadTarget target = *ParseTarget("http://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_NE(AskModels(target).error().message.find("status 404"), std::string::npos);
  EXPECT_FALSE(CountWords(target).counted);
}

TEST(Target, UrlsAreTakenApartOrRefused) {
  const auto plain = ParseTarget("http://localhost:8080/");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->host, "localhost");
  EXPECT_EQ(plain->port, 8080);
  EXPECT_EQ(plain->base_path, "/v1");
  EXPECT_EQ(ParseTarget("http://h/v3/")->base_path, "/v3");
  EXPECT_EQ(ParseTarget("http://h/v3")->port, 80);
  EXPECT_EQ(ParseTarget("http://[::1]:9")->host, "[::1]");
  EXPECT_EQ(ParseTarget("http://[::1]:9")->port, 9);
  for (const char* bad : {"https://h", "h:80", "http://", "http://:80", "http://h:0",
                          "http://h:70000", "http://h:x", ""}) {
    EXPECT_FALSE(ParseTarget(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace kvrm::cli
