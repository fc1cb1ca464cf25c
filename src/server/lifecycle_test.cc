// Beginning and ending: ports, loading, draining, signals.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "model/random_model.h"
#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm {
namespace {

using testing::Eventually;
using testing::Get;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::Post;
using testing::StreamAnswer;
using testing::TestServer;

using testing::kCompletions;

std::string Body(const std::string& prompt, const std::string& fields = "") {
  return R"({"temperature":0,"prompt":")" + prompt + "\"" + fields + "}";
}

// ---- in this process
TEST(B067, UsedPortIsNamedBeforeAnythingIsLoaded) {
  TestServer first;
  ServerConfig config;
  config.port = first.port();
  RuntimeOptions options;
  options.model_path = "/nowhere/no-model.gguf";
  bool listening = false;
  config.on_listening = [&listening](const std::string&) { listening = true; };
  const auto second = RunServer(config, options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().kind, ErrorKind::kUnavailable);
  EXPECT_NE(second.error().message.find(std::to_string(first.port())), std::string::npos);
  EXPECT_FALSE(listening);
  EXPECT_EQ(Get(first.port(), "/health").status, 200) << "the first one is not disturbed";
}

TEST(B067, BadHostsAreNamed) {
  ServerConfig config;
  config.port = 0;
  for (const char* host : {"999.1.2.3", "no such host", "203.0.113.1"}) {
    config.host = host;
    const auto server = Server::Bind(config);
    ASSERT_FALSE(server.ok()) << host;
    EXPECT_NE(server.error().message.find(host), std::string::npos) << server.error().message;
  }
}

// Below the first port that anybody may take; in a process of its own, which gives up its rights.
TEST(B067, APortWithoutTheRightToItIsNamed) {
  int first_free = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_unprivileged_port_start") >> first_free;
  if (first_free <= 1) return;  // here every port is anybody's
  constexpr uid_t kNobody = 65534;
  ServerConfig config;
  config.port = static_cast<uint16_t>(std::min(first_free - 1, 80));
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setresuid(kNobody, kNobody, kNobody) != 0) _exit(2);
    const auto server = Server::Bind(config);
    const std::string named = "port " + std::to_string(config.port) + " on ";
    _exit(!server.ok() && server.error().message.find(named) != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(B067, MissingModelIsAnErrorAfterListening) {
  ServerConfig config;
  config.port = 0;
  RuntimeOptions options;
  options.model_path = "/nowhere/no-model.gguf";
  bool listening = false;
  config.on_listening = [&listening](const std::string&) { listening = true; };
  const auto result = RunServer(config, options);
  EXPECT_FALSE(result.ok());
  EXPECT_TRUE(listening);
}

TEST(B068, DrainEndsWhatRunsAndRefusesWhatIsNew) {
  TestServer server({}, {.slots = 2});
  server.gate().Close();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 5; ++i) {  // two run, three wait
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->SendRequest("POST", kCompletions,
                                Body("answer", i % 2 == 0 ? R"(,"stream":true)" : ""));
  }
  HttpClient idle(server.port());
  HttpClient kept(server.port());
  kept.SendRequest("GET", "/health");
  EXPECT_EQ(kept.Receive().status, 200);
  EXPECT_TRUE(Eventually([&] {
    return Get(server.port(), "/metrics").body.find("\nkvrm_requests_open 5\n") !=
           std::string::npos;
  }));
  std::atomic<int> drained{0};
  server.server().Drain([&drained] { ++drained; });
  EXPECT_TRUE(idle.AwaitClose()) << "a connection without a request has nothing to wait for";
  const HttpAnswer refused = Post(server.port(), kCompletions, Body("new"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  EXPECT_EQ(Get(server.port(), "/health").status, 503);
  EXPECT_EQ(drained, 0);
  server.gate().Open();
  for (auto& client : clients) {
    const HttpAnswer answer = client->Receive();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.complete);
    EXPECT_NE(answer.body.find(R"("finish_reason":"stop")"), std::string::npos);
  }
  EXPECT_TRUE(Eventually([&] { return drained == 1; }));
}

TEST(B068, DrainDeadlineEndsStreamsWithAnErrorEvent) {
  ServerConfig config;
  config.drain_timeout = std::chrono::milliseconds(30);
  TestServer server(config, {.slots = 1});
  HttpClient stream(server.port()), whole(server.port());
  server.gate().CloseAfter(20);
  stream.SendRequest("POST", kCompletions,
                     Body(std::string(300, 'x'), R"(,"max_tokens":200,"stream":true)"));
  server.gate().AwaitArrived(21);
  whole.SendRequest("POST", kCompletions, Body("waits"));
  EXPECT_TRUE(Eventually([&] {
    const std::string metrics = Get(server.port(), "/metrics").body;
    return metrics.find("kvrm_requests_total{api=\"completions\"} 2\n") != std::string::npos;
  }));
  std::atomic<int> drained{0};
  server.server().Drain([&drained] { ++drained; });
  EXPECT_TRUE(Eventually([&] { return drained == 1; })) << "the engine hangs and is not waited for";
  const HttpAnswer cut = stream.Receive();
  EXPECT_TRUE(cut.complete);
  EXPECT_NE(cut.body.find(R"("code":"shutting_down")"), std::string::npos) << cut.body;
  EXPECT_EQ(cut.body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(whole.Receive().status, 503);
  server.gate().Open();
}

TEST(B068, StoppingTheEngineEndsAnswersWithAReason) {
  TestServer server({}, {.slots = 1, .run_engine = false});
  HttpClient client(server.port());
  client.SendRequest("POST", kCompletions, Body("waits"));
  EXPECT_TRUE(Eventually([&] {
    return Get(server.port(), "/metrics").body.find("\nkvrm_requests_open 1\n") !=
           std::string::npos;
  }));
  server.engine().Stop();
  server.engine().Run();
  const HttpAnswer answer = client.Receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.json().at("error").at("code").as_string(), "shutting_down");
}

// ---- the whole of RunServer, in a process of its own
class ServerProcess {
 public:
  enum class Until { kListening, kReady };

  // Returns when the child has reached `until`; a child that should stay there waits in its
  // callback.
  ServerProcess(const std::string& model_path, std::chrono::milliseconds drain, Until until,
                uint16_t wanted_port = 0) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      close(pipe_ends[0]);
      RunChild(model_path, drain, until, wanted_port, pipe_ends[1]);
    }
    close(pipe_ends[1]);
    uint16_t port = 0;
    if (read(pipe_ends[0], &port, sizeof(port)) == sizeof(port)) port_ = port;
    close(pipe_ends[0]);
  }
  ~ServerProcess() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  uint16_t port() const { return port_; }
  void Signal(int signal) const { kill(pid_, signal); }
  // Exit code; -1: ended by a signal, or not within the bound.
  int AwaitExit() {
    int status = 0;
    const bool ended = Eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; });
    if (!ended) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  [[noreturn]] static void RunChild(const std::string& model_path, std::chrono::milliseconds drain,
                                    Until until, uint16_t wanted_port, int out) {
    ServerConfig config;
    config.port = wanted_port;
    config.drain_timeout = drain;
    const auto tell = [out](const std::string& url) {
      const auto port = static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
      if (write(out, &port, sizeof(port)) != sizeof(port)) _exit(99);
    };
    if (until == Until::kReady) {
      config.on_ready = tell;
    } else {
      config.on_listening = [tell](const std::string& url) {
        tell(url);
        for (;;) pause();  // a load that takes for ever
      };
    }
    RuntimeOptions options;
    options.model_path = model_path;
    options.num_threads = 1;
    options.max_slots = 4;
    options.kv_bytes = 64u << 20;
    const auto result = RunServer(config, options);
    _exit(result.ok() ? *result : 98);
  }

  pid_t pid_ = -1;
  uint16_t port_ = 0;
};

class Signals : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    RandomModelSpec spec;
    spec.context = 65'536;
    const std::vector<std::byte> bytes = WriteRandomModel(spec);
    std::ofstream file(ModelPath(), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  static void TearDownTestSuite() { std::remove(ModelPath().c_str()); }
  static std::string ModelPath() {
    return ::testing::TempDir() + "server-lifecycle-" + std::to_string(getpid()) + ".gguf";
  }
};

constexpr const char* kLongStream =
    R"({"prompt":"abc","ignore_eos":true,"max_tokens":60000,"stream":true})";

using B068Signals = Signals;

TEST_F(B068Signals, FirstSignalLetsAStreamEndAndExitsWithZero) {
  ServerProcess server(ModelPath(), std::chrono::seconds(60), ServerProcess::Until::kReady);
  ASSERT_NE(server.port(), 0);
  HttpClient client(server.port());
  client.SendRequest("POST", kCompletions,
                     R"({"prompt":"abc","ignore_eos":true,"max_tokens":300,"stream":true})");
  EXPECT_TRUE(client.ReceiveUntil("data: "));
  server.Signal(SIGTERM);
  const StreamAnswer answer = testing::ParseStream(client.Receive());
  EXPECT_TRUE(answer.done);
  EXPECT_EQ(answer.finish_reasons(), std::vector<std::string>{"length"});
  EXPECT_EQ(server.AwaitExit(), 0);
}

TEST_F(B068Signals, DrainDeadlineEndsTheProcess) {
  ServerProcess server(ModelPath(), std::chrono::milliseconds(100), ServerProcess::Until::kReady);
  ASSERT_NE(server.port(), 0);
  HttpClient client(server.port());
  client.SendRequest("POST", kCompletions, kLongStream);
  EXPECT_TRUE(client.ReceiveUntil("data: "));
  server.Signal(SIGINT);
  const HttpAnswer answer = client.Receive();
  EXPECT_TRUE(answer.complete);
  EXPECT_NE(answer.body.find("shutting_down"), std::string::npos);
  EXPECT_EQ(server.AwaitExit(), 0);
}

TEST_F(B068Signals, SecondSignalEndsAtOnce) {
  ServerProcess server(ModelPath(), std::chrono::hours(1), ServerProcess::Until::kReady);
  ASSERT_NE(server.port(), 0);
  HttpClient client(server.port());
  client.SendRequest("POST", kCompletions, kLongStream);
  EXPECT_TRUE(client.ReceiveUntil("data: "));
  server.Signal(SIGINT);
  EXPECT_TRUE(Eventually([&] { return Get(server.port(), "/health").status == 503; }));
  server.Signal(SIGINT);
  EXPECT_EQ(server.AwaitExit(), 1);
}

TEST_F(B068Signals, SignalWhileLoadingEndsAtOnce) {
  ServerProcess server(ModelPath(), std::chrono::hours(1), ServerProcess::Until::kListening);
  ASSERT_NE(server.port(), 0);
  EXPECT_EQ(Get(server.port(), "/health").status, 503);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.AwaitExit(), 0);
}

TEST_F(B068Signals, IdleServerExitsOnTheFirstSignal) {
  ServerProcess server(ModelPath(), std::chrono::hours(1), ServerProcess::Until::kReady);
  ASSERT_NE(server.port(), 0);
  EXPECT_EQ(Get(server.port(), "/health").status, 200);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.AwaitExit(), 0);
}

TEST_F(B068Signals, AKilledServersPortCanBeTakenAtOnce) {
  uint16_t port = 0;
  {
    ServerProcess killed(ModelPath(), std::chrono::hours(1), ServerProcess::Until::kReady);
    port = killed.port();
    ASSERT_NE(port, 0);
    HttpClient client(port);
    client.SendRequest("POST", kCompletions, kLongStream);
    EXPECT_TRUE(client.ReceiveUntil("data: "));
    killed.Signal(SIGKILL);
    EXPECT_TRUE(client.AwaitClose());
    EXPECT_EQ(killed.AwaitExit(), -1) << "by a signal";
  }
  ServerProcess next(ModelPath(), std::chrono::hours(1), ServerProcess::Until::kReady, port);
  ASSERT_EQ(next.port(), port);
  EXPECT_EQ(Post(port, kCompletions, Body("ab")).status, 200);
  next.Signal(SIGTERM);
  EXPECT_EQ(next.AwaitExit(), 0);
}

}  // namespace
}  // namespace kvrm
