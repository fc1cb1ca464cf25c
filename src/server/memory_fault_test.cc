// Memory that is refused: the k-th allocation of the server's threads fails while a
// request is served beside a stream. At most one answer may pay for it, by 503 or by its
// connection; every other has the bits that it has anyway, and nothing is held afterwards. A
// program of its own: it replaces the allocator.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace {

std::atomic<int64_t> allocations_left{-1};  // until one fails; negative: none will
std::atomic<int64_t> live_allocations{0};   // of operator new, by who is not spared
thread_local bool spared = false;  // the test's own thread, and what the stub executor does

bool Fails() {
  if (spared || allocations_left < 0) return false;
  return allocations_left.fetch_sub(1) == 0;
}

void* Allocate(std::size_t bytes, std::size_t alignment) {
  void* memory = nullptr;
  if (Fails() || posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) {
    throw std::bad_alloc();
  }
  if (!spared) ++live_allocations;
  return memory;
}

void Free(void* memory) {
  if (memory != nullptr && !spared) --live_allocations;
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Free(memory); }
// What Asio keeps its pending operations in.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  void* memory = nullptr;
  return !Fails() && posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

namespace kvrm {
namespace {

using testing::Eventually;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::TestOptions;
using testing::TestServer;

// The copying executor keeps tokens in containers, which no real one does.
class SparedExecutor final : public Executor {
 public:
  explicit SparedExecutor(std::unique_ptr<Executor> inner) : inner_(std::move(inner)) {}
  const ExecutorInfo& info() const override { return inner_->info(); }
  void WarmUp() override { inner_->WarmUp(); }
  const ExecutorCounters& counters() const override { return inner_->counters(); }
  StepResult Replay(const FrameView& frame) override {
    const bool before = std::exchange(spared, true);
    const StepResult result = inner_->Replay(frame);
    spared = before;
    return result;
  }

 private:
  std::unique_ptr<Executor> inner_;
};

constexpr const char* kStream =
    R"({"prompt":"the quick brown fox","temperature":0,"logprobs":1,"max_tokens":20,"stream":true})";

// What of an answer must not depend on anything: all but ids, times and whose event comes first.
std::string BitsOf(const HttpAnswer& answer) {
  const std::string_view body = answer.body;
  const std::string_view key =
      body.find("\"choices\":") != std::string_view::npos ? "\"choices\":" : "\"tokens\":";
  constexpr size_t kNameBytes = std::string_view("\"choices\":[{\"index\":0").size();
  std::map<std::string_view, std::string> by_name;  // a choice is named first
  for (size_t at = 0; (at = body.find(key, at)) != std::string_view::npos; at += key.size()) {
    size_t end = at;
    for (int depth = 0; end < body.size() && depth >= 0; ++end) {
      depth += body[end] == '[' || body[end] == '{' ? 1 : 0;
      depth -= body[end] == ']' || body[end] == '}' ? 1 : 0;
      if (depth == 0 && body[end] == ',') break;
    }
    const std::string_view value = body.substr(at, end - at);
    by_name[value.substr(0, kNameBytes)].append("\n").append(value);
  }
  std::string bits = std::to_string(answer.status) + (answer.complete ? "" : " cut");
  if (body.find("[DONE]") != std::string_view::npos) bits += " done";
  for (const auto& [name, values] : by_name) bits += values;
  return bits;
}

// Closed without an answer, closed in the middle of it, told in it, or 503.
bool IsHonestFailure(const HttpAnswer& answer) {
  if (answer.status == 0) return true;
  const bool told = answer.body.find("{\"error\":") != std::string::npos;
  for (size_t at = 0; !answer.chunk_sizes.empty() && at < answer.body.size();) {
    const std::string_view line(answer.body.data() + at, answer.body.find('\n', at) - at);
    if (!line.empty() && !line.starts_with("data: ")) return false;  // half an event
    at += line.size() + 1;
  }
  if (answer.status == 503 || answer.status == 500) return answer.complete && told;
  return answer.status == 200 && (!answer.complete || told);
}

struct Victim {
  const char* name;
  const char* method;
  const char* target;
  std::string body;
  int64_t stride = 1;  // of k
};
void PrintTo(const Victim& victim, std::ostream* out) { *out << victim.name; }

class MemoryFault : public ::testing::TestWithParam<Victim> {
 protected:
  MemoryFault() { spared = true; }
  ~MemoryFault() override { spared = false; }

  static ServerConfig Config() {
    ServerConfig config;
    // What a request leaves taken of these would refuse the next ones.
    config.api_key_file = ::testing::TempDir() + "kvrm-memory-keys-" + std::to_string(getpid());
    std::ofstream(config.api_key_file) << "key max-requests=2\n";
    config.max_pending_body_bytes = 100'000;
    return config;
  }
  static TestOptions Options() {
    TestOptions options;
    options.keep_log = false;
    options.validate = false;
    options.wrap = [](std::unique_ptr<Executor> inner) -> std::unique_ptr<Executor> {
      return std::make_unique<SparedExecutor>(std::move(inner));
    };
    return options;
  }

  // A stream that is in the middle of its answer while `victim` comes and goes. With `k` >= 0 the
  // k-th allocation in that time fails.
  struct Both {
    HttpAnswer stream, victim;
    bool failed = false;  // an allocation did
  };
  static Both Serve(TestServer& server, const Victim& victim, int64_t k) {
    constexpr const char* kKey = "Authorization: Bearer key\r\n";
    HttpClient stream(server.port()), other(server.port());
    server.gate().CloseAfter(5);
    const uint64_t arrived = server.gate().arrived();
    stream.SendRequest("POST", "/v1/completions", kStream, kKey);
    server.gate().AwaitArrived(arrived + 6);
    allocations_left = k;
    other.SendRequest(victim.method, victim.target, victim.body, kKey);
    server.gate().Open();
    Both both;
    both.victim = other.Receive();
    both.stream = stream.Receive();
    both.failed = k >= 0 && allocations_left < 0;
    allocations_left = -1;
    return both;
  }

  static int64_t FailEach(TestServer& server, const Victim& victim, const Both& expected);

  // What the server says it holds, told on the connection that asks.
  static bool HoldsNothing(TestServer& server) {
    HttpClient client(server.port());
    client.SendRequest("GET", "/metrics", {}, "Authorization: Bearer key\r\n");
    const std::string text = client.Receive().body;
    return text.find("\nkvrm_requests_open 0\n") != std::string::npos &&
           text.find("\nkvrm_http_connections 1\n") != std::string::npos;
  }

  // The fewest in a tenth of a second: connections that are being closed go meanwhile.
  static int64_t SettledAllocations() {
    int64_t fewest = live_allocations;
    for (int look = 0; look < 20; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      fewest = std::min<int64_t>(fewest, live_allocations);
    }
    return fewest;
  }

  static bool IsQuiet(TestServer& server) {
    const EngineMetrics metrics = server.engine().Metrics();
    return server.pages_in_use() == 0 && metrics.running == 0 && metrics.queued == 0;
  }
};

// k from 0 up, until it is more than a request takes. Returns how many answers failed.
int64_t MemoryFault::FailEach(TestServer& server, const Victim& victim, const Both& expected) {
  const bool compares = std::string_view(victim.method) == "POST";
  int64_t paid = 0;
  bool failed = true;
  for (int64_t k = 0; failed && k < 5000; k += victim.stride) {
    const Both both = Serve(server, victim, k);
    failed = both.failed;
    const bool victim_same = compares ? BitsOf(both.victim) == BitsOf(expected.victim)
                                      : both.victim.status == 200 && both.victim.complete;
    const bool stream_same = BitsOf(both.stream) == BitsOf(expected.stream);
    EXPECT_TRUE(victim_same || IsHonestFailure(both.victim))
        << "k " << k << ": " << both.victim.status << " " << both.victim.body;
    EXPECT_TRUE(stream_same || IsHonestFailure(both.stream))
        << "k " << k << ": " << both.stream.status << " " << both.stream.body;
    EXPECT_TRUE(victim_same || stream_same)
        << "k " << k << " cost both answers: " << BitsOf(both.victim) << BitsOf(both.stream);
    EXPECT_TRUE(failed || (victim_same && stream_same));
    EXPECT_TRUE(Eventually([&] { return IsQuiet(server); })) << "k " << k;
    paid += victim_same && stream_same ? 0 : 1;
    if (HasFailure()) break;
  }
  EXPECT_FALSE(failed) << "the range of k was not enough";
  EXPECT_TRUE(Eventually([&] { return HoldsNothing(server); }));
  return paid;
}

TEST_P(MemoryFault, TheKthAllocationThatFailsCostsAtMostItsOwnRequest) {
  const Victim& victim = GetParam();
  const ServerConfig config = Config();
  TestServer server(config, Options());
  std::remove(config.api_key_file.c_str());
  const Both expected = Serve(server, victim, -1);
  EXPECT_EQ(expected.victim.status, 200) << expected.victim.body;
  EXPECT_EQ(expected.stream.status, 200);
  EXPECT_GT(FailEach(server, victim, expected), 3);
  // What is kept for reuse (connections' buffers, tables) rises and falls by a few. What is lost
  // for good rises every time that as many answers fail again.
  bool rises = true;
  for (int round = 0; rises && round < 8 && !HasFailure(); ++round) {
    const int64_t level = SettledAllocations();
    EXPECT_GT(FailEach(server, victim, expected), 0);
    rises = SettledAllocations() > level;
  }
  EXPECT_FALSE(rises) << "allocations stay behind";
}

INSTANTIATE_TEST_SUITE_P(
    Requests, MemoryFault,
    ::testing::Values(
        Victim{"completion", "POST", "/v1/completions",
               R"({"prompt":"abc","temperature":0,"logprobs":2,"echo":true,"timeout":60})"},
        Victim{"prompts", "POST", "/v1/completions",
               R"({"prompt":["ab","xy"],"temperature":0,"stop":["b"],"stream":true})" +
                   std::string(70'000, ' ')},
        Victim{"chat", "POST", "/v1/chat/completions",
               R"({"messages":[{"role":"user","content":"hello"}],"temperature":0})", 7},
        Victim{"tokenize", "POST", "/tokenize", R"({"content":"abc"})", 7},
        Victim{"metrics", "GET", "/metrics", "", 7}),
    [](const ::testing::TestParamInfo<Victim>& victim) { return std::string(victim.param.name); });

}  // namespace
}  // namespace kvrm
