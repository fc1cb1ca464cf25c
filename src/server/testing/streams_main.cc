// server_streams [STREAMS [SECONDS [BESIDE]]]: many live streams on a stub executor that gives each
// one token every 250 ms, and what the server adds to that. The server runs in a child process, so
// that its memory is its own; the client is one epoll loop.
//
// Printed as one JSON line: the delay of an event (end of the executor's step to the event's bytes
// at the client, both by the monotonic clock), exact percentiles over all events, and the most
// memory that the server held. Exit code 1: a token was lost, doubled or out of order.
//
// With BESIDE that many more streams with large events run, which are not measured: in turns their
// readers read, and stall. Both kinds of turns have the same load, so what differs between the two
// lines is what stalling costs the others; the last line is the quotient.
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
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/resident_memory.h"
#include "server/testing/http_client.h"
#include "server/testing/test_server.h"

namespace kvrm::testing {
namespace {

constexpr int64_t kPeriodUs = 250'000;
constexpr uint32_t kMaxSteps = 4096;
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr std::string_view kText = "\"text\":\"";
// Of streams beside: small, so that a reader that stalls is cut within a run.
constexpr int kBesideBufferBytes = 4096;
constexpr uint64_t kBesideOutboxBytes = 16u << 10;
constexpr int kPauseMs = 20;
constexpr int64_t kSilenceUs = 30'000'000;  // then the server has failed

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

struct Load {
  uint32_t streams = 0;
  uint32_t tokens = 0;  // of each
  uint32_t beside = 0;  // more streams, with large events
  bool stall = false;   // their readers do not read
};

// The child: serves until it is told to stop by the end of `in`.
int Serve(const Load& load, Shared& shared, int in) {
  SystemClock clock;
  const auto tokenizer = MakeByteTokenizer();
  const uint32_t all = load.streams + load.beside;
  TestOptions options;
  options.slots = all;
  options.max_seq_tokens = load.tokens + 16;
  options.pool_tokens = all * (load.tokens + 32);
  options.max_queued = all;
  options.prompt_rows = all;
  options.validate = false;
  auto engine = MakeEngineOver(options, std::make_unique<PacedExecutor>(all, shared), clock);
  ServerConfig config;
  config.port = 0;
  config.max_connections = all + 8;
  if (load.beside > 0) {
    config.send_buffer_bytes = kBesideBufferBytes;
    config.max_outbox_bytes = kBesideOutboxBytes;
  }
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
  Client(const Load& load, const Shared& shared)
      : shared_(shared),
        load_(load),
        epoll_(epoll_create1(0)),
        streams_(load.streams),
        beside_(load.beside, -1) {}
  ~Client() {
    for (Stream& stream : streams_) close(stream.fd);
    for (const int fd : beside_) close(fd);
    close(epoll_);
  }

  bool Connect() {
    for (int& fd : beside_) {
      fd = Open(kBesideBufferBytes, R"(,"logprobs":20)");
      if (fd < 0) return false;
    }
    for (size_t i = 0; i < streams_.size(); ++i) {
      streams_[i].fd = Open(0, "");
      if (streams_[i].fd < 0 || !Watch(streams_[i].fd, i)) return false;
    }
    return true;
  }

  // Until every stream has ended. False: one of them ended early, or nothing came for 30 s.
  bool Read() {
    std::vector<epoll_event> events(1024);
    int64_t heard_us = NowUs();
    for (size_t done = 0; done < streams_.size();) {
      const int count =
          epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), kPauseMs);
      if (count > 0) heard_us = NowUs();
      if ((count < 0 && errno != EINTR) || NowUs() - heard_us > kSilenceUs) return false;
      // Between two beats, so that reading them delays nothing that is measured.
      if (count == 0 && !load_.stall) ReadBeside();
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
                       [this](const Stream& stream) { return stream.tokens == load_.tokens; });
  }

  std::vector<int64_t>& delays_us() { return delays_us_; }
  uint64_t out_of_order() const { return out_of_order_; }

 private:
  // A connection on which a stream was asked for; -1: there is none.
  int Open(int receive_buffer_bytes, const std::string& fields) const {
    const std::string body = R"({"prompt":"x","temperature":0,"stream":true,"ignore_eos":true,)"
                             R"("max_tokens":)" +
                             std::to_string(load_.tokens) + fields + "}";
    const std::string request =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer_bytes > 0) {
      setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(shared_.port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
            static_cast<ssize_t>(request.size())) {
      std::perror("connect");
      close(fd);
      return -1;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
  }

  bool Watch(int fd, size_t index) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = index;
    return epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0;
  }

  void ReadBeside() const {
    char bytes[16'384];
    for (const int fd : beside_) {
      while (recv(fd, bytes, sizeof(bytes), 0) > 0) {
      }
    }
  }

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
  const Load load_;
  const int epoll_;
  std::vector<Stream> streams_;
  std::vector<int> beside_;  // their connections
  std::vector<int64_t> delays_us_;
  uint64_t out_of_order_ = 0;
};

// The value of a series of /metrics; 0 when it is not there.
double MetricOf(uint16_t port, const std::string& series) {
  const std::string text = Get(port, "/metrics").body;
  const size_t at = text.find("\n" + series + " ");
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + series.size() + 2, nullptr);
}

struct Outcome {
  bool whole = false;  // each stream got each token, in order
  std::vector<int64_t> delays_us;
  uint64_t out_of_order = 0;
  double peak_mib = 0;
  double streams_cut = 0;  // because their reader stalled
};

Outcome RunLoad(const Load& load) {
  Outcome outcome;
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared& shared = *static_cast<Shared*>(memory);
  int ends[2];
  if (memory == MAP_FAILED || pipe(ends) != 0) return outcome;
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    std::_Exit(Serve(load, shared, ends[0]));
  }
  close(ends[0]);
  while (shared.port == 0 && waitpid(child, nullptr, WNOHANG) == 0) usleep(1000);
  {
    Client client(load, shared);
    outcome.whole = client.Connect() && client.Read();
    outcome.delays_us = std::move(client.delays_us());
    outcome.out_of_order = client.out_of_order();
    outcome.peak_mib = static_cast<double>(PeakResidentBytes(child)) / (1 << 20);
    outcome.streams_cut =
        MetricOf(static_cast<uint16_t>(shared.port), "kvrm_outbox_overflow_total{bound=\"bytes\"}");
  }
  close(ends[1]);
  waitpid(child, nullptr, 0);
  munmap(memory, sizeof(Shared));
  outcome.whole = outcome.whole && outcome.out_of_order == 0 &&
                  outcome.delays_us.size() == uint64_t{load.streams} * load.tokens;
  std::sort(outcome.delays_us.begin(), outcome.delays_us.end());
  return outcome;
}

double DelayMs(const Outcome& outcome, double part) {
  if (outcome.delays_us.empty()) return 0;
  const auto rank = static_cast<size_t>(part * static_cast<double>(outcome.delays_us.size() - 1));
  return static_cast<double>(outcome.delays_us[rank]) / 1000;
}

void Print(const Load& load, const Outcome& outcome) {
  std::printf("{\"streams\":%u,\"tokens_each\":%u,", load.streams, load.tokens);
  if (load.beside > 0) {
    std::printf("\"beside\":%u,\"stalled\":%s,\"cut\":%.0f,", load.beside,
                load.stall ? "true" : "false", outcome.streams_cut);
  }
  std::printf(
      "\"events\":%zu,\"out_of_order\":%llu,"
      "\"delay_ms\":{\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f},"
      "\"server_peak_mib\":%.1f}\n",
      outcome.delays_us.size(), static_cast<unsigned long long>(outcome.out_of_order),
      DelayMs(outcome, 0.5), DelayMs(outcome, 0.9), DelayMs(outcome, 0.99), DelayMs(outcome, 1),
      outcome.peak_mib);
}

// Turns of both kinds, one after the other: what the machine does besides falls on both.
int CompareStalls(Load load) {
  constexpr int kRounds = 2;
  Outcome sums[2];
  bool whole = true;
  for (int turn = 0; turn < 2 * kRounds; ++turn) {
    load.stall = turn % 2 == 1;
    const Outcome outcome = RunLoad(load);
    whole = whole && outcome.whole && outcome.streams_cut == (load.stall ? load.beside : 0);
    Outcome& sum = sums[load.stall ? 1 : 0];
    sum.delays_us.insert(sum.delays_us.end(), outcome.delays_us.begin(), outcome.delays_us.end());
    sum.peak_mib = std::max(sum.peak_mib, outcome.peak_mib);
    sum.streams_cut += outcome.streams_cut;
  }
  for (const bool stall : {false, true}) {
    Outcome& sum = sums[stall ? 1 : 0];
    std::sort(sum.delays_us.begin(), sum.delays_us.end());
    load.stall = stall;
    Print(load, sum);
  }
  std::printf("{\"p99_stalled_over_reading\":%.3f}\n",
              DelayMs(sums[1], 0.99) / DelayMs(sums[0], 0.99));
  return whole ? 0 : 1;
}

int Main(uint32_t num_streams, uint32_t seconds, uint32_t beside) {
  RaiseFileLimit();
  const Load load{.streams = num_streams,
                  .tokens = static_cast<uint32_t>(seconds * 1'000'000 / kPeriodUs),
                  .beside = beside};
  if (beside > 0) return CompareStalls(load);
  const Outcome outcome = RunLoad(load);
  Print(load, outcome);
  return outcome.whole ? 0 : 1;
}

}  // namespace
}  // namespace kvrm::testing

int main(int argc, char** argv) {
  const auto number = [&](int i, long otherwise) {
    return static_cast<uint32_t>(argc > i ? std::strtol(argv[i], nullptr, 10) : otherwise);
  };
  return kvrm::testing::Main(number(1, 4000), number(2, 60), number(3, 0));
}
