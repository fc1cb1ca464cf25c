// server_streams [STREAMS [SECONDS]]: many live streams on a stub executor that gives each one
// token every 250 ms, and what the server adds to that. The server runs in a child process, so that
// its memory is its own; the client is one epoll loop.
//
// Printed as one JSON line: the delay of an event (end of the executor's step to the event's bytes
// at the client, both by the monotonic clock), exact percentiles over all events, and the most
// memory that the server held. Exit code 1: a token was lost, doubled or out of order.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "server/testing/test_server.h"

namespace kvrm::testing {
namespace {

constexpr int64_t kPeriodUs = 250'000;
constexpr uint32_t kMaxSteps = 4096;
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr std::string_view kText = "\"text\":\"";

int64_t NowUs() { return SystemClock().NowUs(); }

// What parent and child share: when each step of the executor ended.
struct Shared {
  std::atomic<uint32_t> num_steps;
  std::atomic<uint32_t> port;
  std::atomic<int64_t> end_us[kMaxSteps];
};

// Every row that wants logits gets the letter of the step; steps end on the beat.
class PacedExecutor final : public Executor {
 public:
  PacedExecutor(uint32_t slots, Shared& shared) : shared_(shared), row_status_(2 * size_t{slots}) {
    info_.name = "paced";
    info_.vocab = kTestVocab;
    info_.max_slots = info_.max_logits = info_.max_rows[0] = slots;
    info_.max_rows[1] = info_.max_rows[2] = 2 * slots;
    logits_.resize(size_t{slots} * kTestVocab);
  }
  const ExecutorInfo& info() const override { return info_; }
  void WarmUp() override {}
  const ExecutorCounters& counters() const override { return counters_; }
  StepResult Replay(const FrameView& frame) override {
    const uint32_t step = shared_.num_steps;
    const TokenId token = kFirstByte + kLetters[step % kLetters.size()];
    for (uint32_t i = 0; i < frame.head->num_rows; ++i) {
      if ((frame.rows[i].flags & kRowWantLogits) == 0) continue;
      float* logits = logits_.data() + size_t{frame.rows[i].logits_idx} * kTestVocab;
      std::fill_n(logits, kTestVocab, 0.0f);
      logits[token] = 1.0f;
    }
    next_us_ = std::max(next_us_ + kPeriodUs, NowUs());
    std::this_thread::sleep_for(std::chrono::microseconds(next_us_ - NowUs()));
    if (step < kMaxSteps) shared_.end_us[step] = NowUs();
    shared_.num_steps = step + 1;
    return {.program = ProgramKind::kPrefill,
            .logits = logits_.data(),
            .logits_stride = kTestVocab,
            .panel_max = nullptr,
            .num_panels = 0,
            .row_status = row_status_.data()};
  }

 private:
  Shared& shared_;
  ExecutorInfo info_;
  ExecutorCounters counters_;
  std::vector<float> logits_;  // [slots, kTestVocab]
  std::vector<uint8_t> row_status_;
  int64_t next_us_ = 0;
};

void RaiseFileLimit() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// The child: serves until it is told to stop by the end of `in`.
int Serve(uint32_t streams, uint32_t tokens, Shared& shared, int in) {
  SystemClock clock;
  const auto tokenizer = MakeByteTokenizer();
  TestOptions options;
  options.slots = streams;
  options.max_seq_tokens = tokens + 16;
  options.pool_tokens = streams * (tokens + 32);
  options.max_queued = streams;
  options.prompt_rows = streams;
  options.validate = false;
  auto engine = MakeEngineOver(options, std::make_unique<PacedExecutor>(streams, shared), clock);
  ServerConfig config;
  config.port = 0;
  config.max_connections = streams + 8;
  config.log = [](std::string_view) {};
  auto server = Server::Bind(config);
  if (!server.ok()) return 1;
  (*server)->Attach(*engine, *tokenizer, nullptr, "paced");
  std::thread engine_thread([&] { engine->Run(); });
  shared.port = (*server)->port();
  char byte = 0;
  while (read(in, &byte, 1) < 0 && errno == EINTR) {
  }
  engine->Stop();
  engine_thread.join();
  (*server)->Stop();
  return 0;
}

struct Stream {
  int fd = -1;
  std::string tail;  // bytes that may be the beginning of an event
  int last_letter = -1;
  uint32_t tokens = 0;
  bool done = false;
};

class Client {
 public:
  Client(uint32_t streams, uint32_t tokens, const Shared& shared)
      : shared_(shared), tokens_(tokens), epoll_(epoll_create1(0)), streams_(streams) {}
  ~Client() {
    for (Stream& stream : streams_) close(stream.fd);
    close(epoll_);
  }

  bool Connect() {
    const std::string body = R"({"prompt":"x","temperature":0,"stream":true,"ignore_eos":true,)"
                             R"("max_tokens":)" +
                             std::to_string(tokens_) + "}";
    const std::string request =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    for (size_t i = 0; i < streams_.size(); ++i) {
      const int fd = streams_[i].fd = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(shared_.port));
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
          send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
              static_cast<ssize_t>(request.size())) {
        std::perror("connect");
        return false;
      }
      fcntl(fd, F_SETFL, O_NONBLOCK);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = i;
      epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }
    return true;
  }

  // Until every stream has ended. False: one of them ended early, or nothing came for 30 s.
  bool Read() {
    std::vector<epoll_event> events(1024);
    for (size_t done = 0; done < streams_.size();) {
      const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 30'000);
      if (count <= 0 && errno != EINTR) return false;
      for (int i = 0; i < count; ++i) {
        Stream& stream = streams_[events[static_cast<size_t>(i)].data.u64];
        if (!ReadSome(stream)) return false;
        if (!stream.done || stream.fd < 0) continue;
        epoll_ctl(epoll_, EPOLL_CTL_DEL, stream.fd, nullptr);
        close(std::exchange(stream.fd, -1));
        ++done;
      }
    }
    return std::all_of(streams_.begin(), streams_.end(),
                       [this](const Stream& stream) { return stream.tokens == tokens_; });
  }

  std::vector<int64_t>& delays_us() { return delays_us_; }
  uint64_t out_of_order() const { return out_of_order_; }

 private:
  bool ReadSome(Stream& stream) {
    char bytes[16'384];
    const ssize_t got = recv(stream.fd, bytes, sizeof(bytes), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    const int64_t now_us = NowUs();
    stream.tail.append(bytes, static_cast<size_t>(got));
    size_t at = 0;
    for (size_t found = 0; (found = stream.tail.find(kText, at)) != std::string::npos;) {
      at = found + kText.size();
      if (at >= stream.tail.size()) {
        at = found;
        break;
      }
      if (stream.tail[at] != '"') NoteToken(stream, stream.tail[at], now_us);
    }
    stream.done = stream.tail.find("[DONE]", at) != std::string::npos;
    stream.tail.erase(0,
                      std::max(at, stream.tail.size() - std::min<size_t>(stream.tail.size(), 16)));
    return true;
  }

  void NoteToken(Stream& stream, char text, int64_t now_us) {
    const int letter = static_cast<int>(kLetters.find(text));
    const int next = (stream.last_letter + 1) % static_cast<int>(kLetters.size());
    if (stream.last_letter >= 0 && letter != next) ++out_of_order_;
    stream.last_letter = letter;
    ++stream.tokens;
    // The last step of this letter.
    for (uint32_t step = std::min<uint32_t>(shared_.num_steps, kMaxSteps); step-- > 0;) {
      if (static_cast<int>(step % kLetters.size()) != letter) continue;
      delays_us_.push_back(now_us - shared_.end_us[step]);
      return;
    }
  }

  const Shared& shared_;
  const uint32_t tokens_;
  const int epoll_;
  std::vector<Stream> streams_;
  std::vector<int64_t> delays_us_;
  uint64_t out_of_order_ = 0;
};

// The most memory that process `pid` has held, in MiB.
double PeakMib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) / 1024;
  }
  return 0;
}

int Main(uint32_t num_streams, uint32_t seconds) {
  RaiseFileLimit();
  const auto tokens = static_cast<uint32_t>(seconds * 1'000'000 / kPeriodUs);
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared& shared = *static_cast<Shared*>(memory);
  int ends[2];
  if (memory == MAP_FAILED || pipe(ends) != 0) return 1;
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    std::_Exit(Serve(num_streams, tokens, shared, ends[0]));
  }
  close(ends[0]);
  while (shared.port == 0 && waitpid(child, nullptr, WNOHANG) == 0) usleep(1000);
  Client client(num_streams, tokens, shared);
  const bool whole = client.Connect() && client.Read();
  const double peak_mib = PeakMib(child);
  close(ends[1]);
  waitpid(child, nullptr, 0);
  auto& delays = client.delays_us();
  std::sort(delays.begin(), delays.end());
  const auto at = [&](double part) {
    if (delays.empty()) return 0.0;
    const auto rank = static_cast<size_t>(part * static_cast<double>(delays.size() - 1));
    return static_cast<double>(delays[rank]) / 1000;
  };
  std::printf(
      "{\"streams\":%u,\"tokens_each\":%u,\"events\":%zu,\"out_of_order\":%llu,"
      "\"delay_ms\":{\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f},"
      "\"server_peak_mib\":%.1f}\n",
      num_streams, tokens, delays.size(), static_cast<unsigned long long>(client.out_of_order()),
      at(0.5), at(0.9), at(0.99), at(1), peak_mib);
  const bool each = delays.size() == uint64_t{num_streams} * tokens;
  return whole && each && client.out_of_order() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kvrm::testing

int main(int argc, char** argv) {
  const auto number = [&](int i, long otherwise) {
    return static_cast<uint32_t>(argc > i ? std::strtol(argv[i], nullptr, 10) : otherwise);
  };
  return kvrm::testing::Main(number(1, 4000), number(2, 60));
}
