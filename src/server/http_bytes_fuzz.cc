// Fuzz target: raw bytes on a connection, to a server that answers. Whatever a client sends, the
// connection ends; what comes back is a sequence of well-formed answers; a request whose end two
// readers could see in different places is refused and nothing behind it is answered; and nothing
// of it stays behind. Seeds: tests/fuzz/http_bytes.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/check.h"
#include "server/http_text.h"
#include "server/testing/http_client.h"
#include "server/testing/test_server.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

constexpr size_t kMaxInputBytes = 32u << 10;
constexpr uint32_t kMaxHeaderBytes = 1024, kMaxBodyBytes = 2048;
constexpr time_t kBoundSeconds = 30;

ServerConfig SmallConfig() {
  ServerConfig config;
  config.max_header_bytes = kMaxHeaderBytes;
  config.max_body_bytes = kMaxBodyBytes;
  config.header_timeout = config.body_timeout = config.idle_timeout = std::chrono::seconds(1);
  return config;
}

// Behind the input: a request that closes the connection, when the input ended with its last one;
// else enough bytes to end what the input began (a head, a body, a chunk), and then no request.
std::string Tail() {
  return "GET /live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" +
         std::string(kMaxBodyBytes + kMaxHeaderBytes, 'z') + "\r\n\r\n";
}

// Again where the driver's timer interrupts a call, or thousands of connections that were closed a
// moment ago hold all ports.
int Connect(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  constexpr int kTries = 600;
  for (int tries = 0; tries < kTries; ++tries) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, to, sizeof(address)) == 0) return fd;
    KVRM_CHECK(errno == EINTR || errno == EADDRNOTAVAIL, "the server accepts connections");
    close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  KVRM_CHECK(false, "a port becomes free within a minute");
  return -1;
}

// All that the server says to `bytes` until it closes the connection.
std::string Exchange(uint16_t port, std::string_view bytes) {
  const int fd = Connect(port);
  const timeval bound{kBoundSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) break;  // it has closed already
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  std::string said;
  char chunk[16'384];
  ssize_t got = 0;
  do {
    got = recv(fd, chunk, sizeof(chunk), 0);
    if (got > 0) said.append(chunk, static_cast<size_t>(got));
  } while (got > 0 || (got < 0 && errno == EINTR));
  KVRM_CHECK(got == 0 || errno == ECONNRESET, "each connection is answered or closed");
  close(fd);
  return said;
}

std::vector<std::string_view> Lines(std::string_view head) {
  std::vector<std::string_view> lines;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    lines.push_back(head.substr(0, end));
    head.remove_prefix(std::min(head.size(), end + 2));
  }
  return lines;
}

struct Field {
  std::string_view name, value;
};
Field FieldOf(std::string_view line) {
  const size_t colon = std::min(line.find(':'), line.size());
  std::string_view value = line.substr(std::min(line.size(), colon + 1));
  const size_t begin = std::min(value.find_first_not_of(" \t"), value.size());
  value.remove_prefix(begin);
  value = value.substr(0, value.find_last_not_of(" \t") + 1);
  return {line.substr(0, colon), value};
}

// A reader of its own, stricter than need be where it is sure: whether the first request of `bytes`
// is one that some reader would frame differently.
bool IsDoubtful(std::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos || bytes[0] == '\r' || bytes[0] == '\n') return false;
  const std::string_view head = bytes.substr(0, end);
  for (size_t i = 0; i < head.size(); ++i) {
    const bool lone_lf = head[i] == '\n' && (i == 0 || head[i - 1] != '\r');
    const bool lone_cr = head[i] == '\r' && head.substr(i + 1, 1) != "\n";
    if (head[i] == '\0' || lone_lf || lone_cr) return true;
  }
  const auto lines = Lines(head);
  size_t hosts = 0, lengths = 0, encodings = 0;
  bool folded = false, odd = false;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].starts_with(' ') || lines[i].starts_with('\t')) folded = true;
    const Field field = FieldOf(lines[i]);
    if (field.name.empty() || field.name.find_first_of(" \t") != std::string_view::npos) odd = true;
    if (EqualsIgnoreCase(field.name, "host")) ++hosts;
    if (EqualsIgnoreCase(field.name, "content-length")) {
      ++lengths;
      if (field.value.empty() ||
          field.value.find_first_not_of("0123456789") != std::string_view::npos) {
        odd = true;
      }
    }
    if (EqualsIgnoreCase(field.name, "transfer-encoding")) {
      ++encodings;
      if (!EqualsIgnoreCase(field.value, "chunked")) odd = true;
    }
  }
  if (folded) return false;  // its lines are joined before they are read
  const bool modern = lines[0].ends_with(" HTTP/1.1");
  return odd || lengths > 1 || encodings > 1 || lengths + encodings > 1 ||
         (modern ? hosts != 1 : encodings > 0);
}

// One answer taken off the front of `said`; its status.
struct Answer {
  int status = 0;
  bool closes = false;
};

std::string_view TakeChunkedBody(std::string_view& said, std::string& body) {
  while (true) {
    const size_t end = said.find("\r\n");
    if (end == std::string_view::npos) return said = {};  // a stream that was cut
    const size_t size = std::stoul(std::string(said.substr(0, end)), nullptr, 16);
    said.remove_prefix(end + 2);
    if (said.size() < size + 2) return said = {};
    body.append(said.substr(0, size));
    said.remove_prefix(size);
    KVRM_CHECK(said.starts_with("\r\n"), "a chunk ends where its size says");
    said.remove_prefix(2);
    if (size == 0) return said;
  }
}

Answer TakeAnswer(std::string_view& said) {
  KVRM_CHECK(said.starts_with("HTTP/1.1 "), "answers follow each other without a byte between");
  const size_t end = said.find("\r\n\r\n");
  KVRM_CHECK(end != std::string_view::npos, "a head is sent whole");
  const auto lines = Lines(said.substr(0, end));
  said.remove_prefix(end + 4);
  Answer answer;
  answer.status = std::stoi(std::string(lines[0].substr(9)));
  std::string body, length;
  bool chunked = false;
  for (const std::string_view line : lines) {
    const Field field = FieldOf(line);
    if (field.name == "Content-Length") length = field.value;
    if (field.name == "Transfer-Encoding") chunked = true;
    if (field.name == "Connection") answer.closes = field.value == "close";
  }
  if (chunked) {
    TakeChunkedBody(said, body);
  } else if (!length.empty()) {
    // The answer to HEAD has the length and not the body; no body begins as an answer does.
    const size_t size = std::stoul(length);
    if (said.empty() || said.starts_with("HTTP/1.1 ")) return answer;
    KVRM_CHECK(said.size() >= size, "a body is sent whole");
    body = said.substr(0, size);
    said.remove_prefix(size);
  } else if (answer.status != 100) {
    body = said;  // an old client's stream ends with the connection
    said = {};
  }
  KVRM_CHECK(IsValidUtf8(body), "answers are valid UTF-8");
  if (answer.status >= 400) {
    boost::json::error_code ec;
    const boost::json::value parsed = boost::json::parse(body, ec);
    KVRM_CHECK(!ec && parsed.is_object() && parsed.get_object().contains("error"),
               "errors are JSON objects");
  }
  KVRM_CHECK(answer.status != 500, "no client makes the server fail");
  return answer;
}

void CheckConversation(std::string_view sent, std::string_view said) {
  const bool doubtful = IsDoubtful(sent);
  size_t count = 0;
  bool closed = false;
  while (!said.empty()) {
    KVRM_CHECK(!closed, "nothing comes behind an answer that closes");
    const Answer answer = TakeAnswer(said);
    if (answer.status == 100) continue;
    ++count;
    closed = answer.closes;
    KVRM_CHECK(!doubtful || answer.status >= 400, "a request of doubtful length is refused");
  }
  KVRM_CHECK(!doubtful || count <= 1, "nothing is answered behind a request of doubtful length");
}

}  // namespace
}  // namespace kvrm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > kvrm::kMaxInputBytes) return 0;
  static kvrm::testing::TestServer server(kvrm::SmallConfig(),
                                          {.slots = 4, .max_seq_tokens = 64, .keep_log = false});
  const std::string sent = std::string(reinterpret_cast<const char*>(data), size) + kvrm::Tail();
  kvrm::CheckConversation(sent, kvrm::Exchange(server.port(), sent));
  static uint64_t runs = 0;
  if (++runs % 256 == 0) {
    KVRM_CHECK(kvrm::testing::Eventually([] { return server.pages_in_use() == 0; }),
               "all pages come back");
  }
  return 0;
}
