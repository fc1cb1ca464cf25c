// One write per step and stream, counted where the server calls the C library: each step that gives
// a stream anything to send costs its socket one write, with all of it, before the next step.
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "server/testing/http_client.h"
#include "server/testing/socket_writes.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::Eventually;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::SocketWrites;
using testing::TestServer;

// Which requests each step gave a token, as the engine's plans tell.
class TokenSteps final : public StepObserver {
 public:
  void OnStep(const StepPlan& plan, const FrameView&, const StepResult&) override {
    if (plan.rows.empty()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    std::set<RequestId>& given = steps_.emplace_back();
    for (const PlannedRows& rows : plan.rows) {
      if (rows.want_logits) given.insert(rows.request);
    }
  }
  size_t count() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return steps_.size();
  }
  // Steps that gave one of the `num` requests from `first` on (in the order of coming) a token.
  size_t For(uint64_t first, uint64_t num) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_t steps = 0;
    for (const std::set<RequestId>& given : steps_) {
      const auto found = given.lower_bound(RequestId(first));
      steps += found != given.end() && found->value < first + num ? 1 : 0;
    }
    return steps;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::set<RequestId>> steps_;
};

struct StreamCase {
  const char* target;
  const char* body;
  uint64_t num_requests;  // that the engine gets for it
};
// Each API, several choices, several prompts, all ways to end.
constexpr StreamCase kStreamCases[] = {
    {testing::kCompletions, R"({"prompt":"abcdefgh","temperature":0,"stream":true})", 1},
    {testing::kChat,
     R"({"messages":[{"role":"user","content":"until.here"}],"temperature":0,"stop":["."],
         "stream":true,"stream_options":{"include_usage":true}})",
     1},
    {testing::kCompletions,
     R"({"prompt":["a.b","until.here","end"],"temperature":0,"stop":".","stream":true})", 3},
    {"/completion", R"({"prompt":"until.here","temperature":0,"stop":["."],"stream":true})", 1},
    {testing::kChat,
     R"({"messages":[{"role":"user","content":"hello"}],"temperature":0,"stream":true,
         "stream_options":{"include_usage":true}})",
     1},
    {testing::kCompletions,
     R"({"prompt":"xyzw","temperature":0,"n":3,"logprobs":2,"max_tokens":20,"stream":true})", 3},
    {testing::kCompletions, R"({"prompt":["ab","cdefg"],"temperature":0,"stream":true})", 2},
    {testing::kCompletions, R"({"prompt":"cut off","temperature":0,"max_tokens":3,"stream":true})",
     1},
    {"/completion", R"({"prompt":"native words","temperature":0,"stream":true})", 1},
    {"/v1/messages",
     R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":9,"temperature":0,
         "stream":true})",
     1},
    {"/v1/responses", R"({"input":"respond","temperature":0,"stream":true})", 1},
};

// A server whose writes are counted, and a stream of each case, sent in order.
struct CountedStreams {
  explicit CountedStreams(uint32_t slots) : server(Config(), {.slots = slots}) {
    server.engine().SetObserver(&steps);
    server.gate().Close();
    uint64_t first = 1;
    for (const StreamCase& each : kStreamCases) {
      clients.push_back(std::make_unique<HttpClient>(server.port()));
      writes.Forget(clients.back()->port());
      clients.back()->SendRequest("POST", each.target, each.body);
      first_requests.push_back(first);
      first += each.num_requests;
      const std::string open = "\nkvrm_requests_open " + std::to_string(clients.size()) + "\n";
      EXPECT_TRUE(Eventually([&] {
        return testing::Get(server.port(), "/metrics").body.find(open) != std::string::npos;
      }));
    }
  }
  static ServerConfig Config() {
    ServerConfig config;
    config.keep_alive_interval = std::chrono::hours(1);  // no comments beside the events
    return config;
  }
  std::vector<std::string> WritesTo(size_t i) const { return writes.To(clients[i]->port()); }
  size_t StepsOf(size_t i) const {
    return steps.For(first_requests[i], kStreamCases[i].num_requests);
  }
  bool Ended(size_t i) const {
    const auto all = WritesTo(i);
    return !all.empty() && all.back().ends_with("\r\n0\r\n\r\n");
  }

  TokenSteps steps;     // outlives the engine's steps
  SocketWrites writes;  // and the server's writes
  TestServer server;
  std::vector<std::unique_ptr<HttpClient>> clients;
  std::vector<uint64_t> first_requests;
};

// Each step is let through alone, so that whatever it made must be sent while the next is held.
TEST(StreamWrites, OneForEachStepThatGaveTheStreamATokenAndBeforeTheNextStep) {
  CountedStreams streams(/*slots=*/8);
  std::vector<size_t> writes_at_end(std::size(kStreamCases));  // 0: it has not ended
  bool all_ended = false;
  for (uint64_t step = 1; !all_ended; ++step) {
    ASSERT_LT(step, 200u);
    streams.server.gate().AwaitArrived(step);
    streams.server.gate().PassOne();
    ASSERT_TRUE(Eventually([&] { return streams.steps.count() == step; }));
    all_ended = true;
    for (size_t i = 0; i < std::size(kStreamCases); ++i) {
      // Behind a stop string the engine may make one more token, which nobody is told of.
      if (writes_at_end[i] > 0) continue;
      ASSERT_TRUE(Eventually([&] { return streams.WritesTo(i).size() == streams.StepsOf(i); }))
          << "step " << step << ", " << kStreamCases[i].body << ": " << streams.StepsOf(i)
          << " steps gave it a token, " << streams.WritesTo(i).size() << " writes";
      if (streams.Ended(i)) writes_at_end[i] = streams.WritesTo(i).size();
      all_ended = all_ended && streams.Ended(i);
    }
  }
  for (size_t i = 0; i < std::size(kStreamCases); ++i) {
    const auto writes = streams.WritesTo(i);
    EXPECT_EQ(writes.size(), writes_at_end[i]) << "and nothing after the end";
    EXPECT_TRUE(writes[0].starts_with("HTTP/1.1 200 OK\r\n")) << "the head travels with the text";
    const HttpAnswer answer = streams.clients[i]->Receive();
    EXPECT_TRUE(answer.complete);
    // A write is one chunk, the last one is followed by the empty chunk.
    EXPECT_EQ(answer.chunk_sizes.size(), writes.size()) << answer.body;
  }
  // The text of a step stands in its write.
  const std::string text = "abcdefgh";
  const auto writes = streams.WritesTo(0);
  ASSERT_EQ(writes.size(), text.size() + 1) << "the end token comes with the end";
  for (size_t k = 0; k < text.size(); ++k) {
    EXPECT_NE(writes[k].find("\"text\":\"" + text.substr(k, 1) + "\""), std::string::npos);
  }
  EXPECT_NE(writes.back().find("[DONE]"), std::string::npos);
}

// At full speed the connection may lag behind the engine, and steps share a write; none is split.
TEST(StreamWrites, NeverMoreThanStepsHoweverFastTheEngineIs) {
  for (int round = 0; round < 10; ++round) {
    CountedStreams streams(/*slots=*/16);
    streams.server.gate().Open();
    for (size_t i = 0; i < std::size(kStreamCases); ++i) {
      EXPECT_TRUE(streams.clients[i]->Receive().complete);
      EXPECT_TRUE(Eventually([&] { return streams.Ended(i); })) << "noted behind its sending";
      EXPECT_LE(streams.WritesTo(i).size(), streams.StepsOf(i)) << kStreamCases[i].body;
    }
  }
}

// A step that takes long to tell: the connection wakes meanwhile, and must not see a part of it.
// Counted in chunks, one a write, for writes as large as these may leave the process in pieces.
TEST(StreamWrites, AStepOfManyChoicesIsOneWrite) {
  TokenSteps steps;
  ServerConfig config = CountedStreams::Config();
  config.max_outbox_bytes = uint64_t{1} << 40;
  TestServer server(config, {.slots = 128, .validate = false});
  server.engine().SetObserver(&steps);
  HttpClient client(server.port());
  client.SendRequest("POST", testing::kCompletions,
                     R"({"prompt":["abcdefghijklmno","bcdefghijklmnop","cdefghijklmnopq",
                         "defghijklmnopqr","efghijklmnopqrs","fghijklmnopqrst","ghijklmnopqrstu",
                         "hijklmnopqrstuv"],"n":16,"logprobs":4,"temperature":0,"stream":true})");
  const HttpAnswer answer = client.Receive();
  EXPECT_TRUE(answer.complete);
  EXPECT_LE(answer.chunk_sizes.size(), steps.For(1, 128));
}

}  // namespace
}  // namespace kvrm
