#include "server/testing/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

namespace kvrm::testing {
namespace {

constexpr time_t kBoundSeconds = 30;

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

boost::json::value HttpAnswer::json() const {
  boost::json::error_code ec;
  auto value = boost::json::parse(body, ec);
  EXPECT_FALSE(ec) << "status " << status << ", body: " << body;
  return value;
}

HttpClient::HttpClient(uint16_t port, uint32_t receive_buffer_bytes) {
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer_bytes > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  const timeval bound{kBoundSeconds, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) Close();
}

HttpClient::~HttpClient() { Close(); }

uint16_t HttpClient::port() const {
  sockaddr_in address{};
  socklen_t bytes = sizeof(address);
  const bool known = getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
  return known ? ntohs(address.sin_port) : uint16_t{0};
}

void HttpClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void HttpClient::Reset() {
  const linger now{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  Close();
}

void HttpClient::HalfClose() { shutdown(fd_, SHUT_WR); }

bool HttpClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void HttpClient::SendRequest(std::string_view method, std::string_view target,
                             std::string_view body, std::string_view headers) {
  std::string text =
      std::string(method) + " " + std::string(target) + " HTTP/1.1\r\nHost: localhost\r\n";
  if (method == "POST") {
    text +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  text += std::string(headers) + "\r\n" + std::string(body);
  Send(text);
}

bool HttpClient::Fill() {
  char bytes[16'384];
  const ssize_t got = recv(fd_, bytes, sizeof(bytes), 0);
  if (got <= 0) return false;
  buffer_.append(bytes, static_cast<size_t>(got));
  return true;
}

bool HttpClient::FillLine(std::string& line) {
  size_t end = 0;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return false;
  }
  line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return true;
}

HttpAnswer HttpClient::Receive(bool head) {
  HttpAnswer answer;
  std::string line;
  if (!FillLine(line) || !line.starts_with("HTTP/1.1 ")) return answer;
  answer.status = std::stoi(line.substr(9));
  while (FillLine(line) && !line.empty()) {
    const size_t colon = line.find(": ");
    answer.headers[Lower(line.substr(0, colon))] = line.substr(colon + 2);
  }
  if (head || answer.status == 100) {
    answer.complete = true;
  } else if (answer.headers.count("content-length") > 0) {
    const size_t size = std::stoul(answer.headers["content-length"]);
    while (buffer_.size() < size && Fill()) {
    }
    answer.complete = buffer_.size() >= size;
    answer.body = buffer_.substr(0, size);
    buffer_.erase(0, std::min(size, buffer_.size()));
  } else if (answer.headers.count("transfer-encoding") > 0) {
    while (FillLine(line)) {
      const size_t size = std::stoul(line, nullptr, 16);
      while (buffer_.size() < size + 2 && Fill()) {
      }
      if (buffer_.size() < size + 2) break;
      answer.body += buffer_.substr(0, size);
      buffer_.erase(0, size + 2);
      answer.complete = size == 0;
      if (answer.complete) break;
      answer.chunk_sizes.push_back(size);
    }
  } else {
    while (Fill()) {
    }
    answer.body = std::exchange(buffer_, {});
    answer.complete = true;
  }
  return answer;
}

bool HttpClient::ReceiveUntil(std::string_view text) {
  while (buffer_.find(text) == std::string::npos) {
    if (!Fill()) return false;
  }
  return true;
}

bool HttpClient::AwaitClose() {
  char bytes[16'384];
  ssize_t got = 0;
  while ((got = recv(fd_, bytes, sizeof(bytes), 0)) > 0) {
  }
  return got == 0 || errno == ECONNRESET;
}

HttpAnswer Get(uint16_t port, std::string_view target) {
  HttpClient client(port);
  client.SendRequest("GET", target);
  return client.Receive();
}

HttpAnswer Post(uint16_t port, std::string_view target, std::string_view body) {
  HttpClient client(port);
  client.SendRequest("POST", target, body);
  return client.Receive();
}

StreamAnswer ParseStream(const HttpAnswer& answer) {
  StreamAnswer stream;
  stream.status = answer.status;
  EXPECT_TRUE(answer.complete);
  std::string_view rest = answer.body;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    if (end == std::string_view::npos || !rest.starts_with("data: ")) {
      ADD_FAILURE() << "not an event: " << rest;
      break;
    }
    const std::string data(rest.substr(6, end - 6));
    rest.remove_prefix(end + 2);
    EXPECT_FALSE(stream.done) << "an event after [DONE]";
    if (data == "[DONE]") {
      stream.done = true;
      continue;
    }
    boost::json::error_code ec;
    stream.chunks.push_back(boost::json::parse(data, ec));
    EXPECT_FALSE(ec) << data;
  }
  return stream;
}

StreamAnswer PostStream(uint16_t port, std::string_view target, std::string_view body) {
  return ParseStream(Post(port, target, body));
}

namespace {

// The choice `index` of a chunk, or null.
const boost::json::object* ChoiceOf(const boost::json::value& chunk, uint32_t index) {
  const auto* choices = chunk.as_object().if_contains("choices");
  if (choices == nullptr) return nullptr;
  for (const auto& choice : choices->as_array()) {
    if (choice.at("index").as_int64() == index) return &choice.as_object();
  }
  return nullptr;
}

}  // namespace

std::string StreamAnswer::text(uint32_t index) const {
  std::string joined;
  for (const auto& chunk : chunks) {
    const auto* choice = ChoiceOf(chunk, index);
    if (choice == nullptr) continue;
    const auto* delta = choice->if_contains("delta");
    const auto* text =
        delta == nullptr ? choice->if_contains("text") : delta->as_object().if_contains("content");
    if (text != nullptr) joined += std::string(text->as_string());
  }
  return joined;
}

std::vector<std::string> StreamAnswer::finish_reasons(uint32_t index) const {
  std::vector<std::string> reasons;
  for (const auto& chunk : chunks) {
    const auto* choice = ChoiceOf(chunk, index);
    if (choice == nullptr) continue;
    const auto& reason = choice->at("finish_reason");
    if (reason.is_string()) reasons.emplace_back(reason.as_string());
  }
  return reasons;
}

}  // namespace kvrm::testing
