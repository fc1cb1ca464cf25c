// A plain HTTP/1.1 client over a blocking socket, for tests: requests as text or raw bytes, answers
// read as they come, server-sent events apart. Every wait is bounded, so a lost answer fails a test
// and does not hang it. Test code only.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kvrm::testing {

struct HttpAnswer {
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;                       // ended as its framing says
  std::vector<size_t> chunk_sizes;
  boost::json::value json() const;  // of the body; fails the test when it is none
};

class HttpClient {
 public:
  explicit HttpClient(uint16_t port, uint32_t receive_buffer_bytes = 0);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  uint16_t port() const;              // of this end
  bool Send(std::string_view bytes);  // false: the server closed
  void SendRequest(std::string_view method, std::string_view target, std::string_view body = {},
                   std::string_view headers = {});
  // The next answer. `head`: it has no body whatever its head says.
  HttpAnswer Receive(bool head = false);
  // Reads until `text` has come in (in the raw bytes); false: the connection ended first.
  bool ReceiveUntil(std::string_view text);
  bool ReceiveMore() { return Fill(); }
  const std::string& received() const { return buffer_; }  // and not yet read as an answer
  // True when the server closes within the bound; bytes on the way are dropped.
  bool AwaitClose();
  void HalfClose();
  void Close();
  // With a reset instead of an orderly end.
  void Reset();

 private:
  bool Fill();
  bool FillLine(std::string& line);

  int fd_ = -1;
  std::string buffer_;
};

HttpAnswer Get(uint16_t port, std::string_view target);
HttpAnswer Post(uint16_t port, std::string_view target, std::string_view body);

// One streamed answer, taken apart.
struct StreamAnswer {
  int status = 0;
  std::vector<boost::json::value> chunks;      // in order, [DONE] left out
  bool done = false;                           // [DONE] came last
  std::string text(uint32_t index = 0) const;  // of a choice, either API
  std::vector<std::string> finish_reasons(uint32_t index = 0) const;
};
StreamAnswer ParseStream(const HttpAnswer& answer);
StreamAnswer PostStream(uint16_t port, std::string_view target, std::string_view body);

// Calls `condition` until it is true; false after a long time.
template <class Condition>
bool Eventually(Condition condition);

}  // namespace kvrm::testing

#include <chrono>
#include <thread>

template <class Condition>
bool kvrm::testing::Eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}
