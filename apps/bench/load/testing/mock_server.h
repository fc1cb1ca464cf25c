// A server whose answers a test scripts, byte by byte: what a load generator may meet in the wild,
// broken answers included. It binds a free port of the loopback address. Test code only.
//
// Each connection has a thread; the script runs on it, once for every request, and may wait there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace kvrm::testing {

struct MockRequest {
  std::string method, path, body;
  uint64_t number = 0;  // of all connections, from 0
};

// One request's connection, while its script runs.
class MockAnswer {
 public:
  explicit MockAnswer(int fd) : fd_(fd) {}

  // False: the client is gone.
  bool Send(std::string_view bytes);
  void Status(int status, std::string_view body);  // whole, with a length
  void BeginStream();                              // the head of a chunked event stream
  bool Chunk(std::string_view bytes);
  bool Event(std::string_view data);  // "data: ...\n\n" as one chunk
  // An event with `text`, and in front of it the stamp of the moment just before it is sent, which
  // is returned (microseconds of the monotonic clock).
  int64_t StampedText(std::string_view text);
  // Finish reason, usage, [DONE], the last chunk.
  void EndStream(uint32_t prompt_tokens, uint32_t output_tokens);
  // The connection ends after the script: in order, or by a reset.
  void Close() { close_ = true; }
  void Reset();
  // Until the client hangs up or `limit_ms` have passed; true: it hung up.
  bool AwaitHangUp(int limit_ms = 60'000);
  bool closes() const { return close_; }

 private:
  const int fd_;
  bool close_ = false;
};

class MockServer {
 public:
  using Script = std::function<void(const MockRequest&, MockAnswer&)>;
  explicit MockServer(Script script);
  ~MockServer();  // ends all connections
  MockServer(const MockServer&) = delete;
  MockServer& operator=(const MockServer&) = delete;

  uint16_t port() const { return port_; }
  uint64_t num_requests() const { return num_requests_; }
  uint64_t num_connections() const { return num_connections_; }

 private:
  void Accept();
  void Serve(int fd);

  const Script script_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<uint64_t> num_requests_{0}, num_connections_{0};
  std::mutex mutex_;
  std::vector<int> fds_;              // guarded by mutex_; of connections under way
  std::vector<std::thread> threads_;  // guarded by mutex_
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
};

}  // namespace kvrm::testing
