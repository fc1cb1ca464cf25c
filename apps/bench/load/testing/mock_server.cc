#include "bench/load/testing/mock_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "base/check.h"

namespace kvrm::testing {
namespace {

int64_t MonotonicUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string TextEvent(std::string_view text) {
  return R"({"choices":[{"index":0,"text":")" + std::string(text) + R"(","finish_reason":null}]})";
}

// Reads on until `buffer` holds `size` bytes; false: the connection ended.
bool ReadTo(int fd, std::string& buffer, size_t size) {
  char chunk[16 * 1024];
  while (buffer.size() < size) {
    const ssize_t got = recv(fd, chunk, sizeof(chunk), 0);
    if (got <= 0) return false;
    buffer.append(chunk, static_cast<size_t>(got));
  }
  return true;
}

// Takes one request with a Content-Length off `buffer`.
std::optional<MockRequest> TakeRequest(int fd, std::string& buffer) {
  size_t head_end = std::string::npos;
  while ((head_end = buffer.find("\r\n\r\n")) == std::string::npos) {
    if (!ReadTo(fd, buffer, buffer.size() + 1)) return std::nullopt;
  }
  const std::string head = buffer.substr(0, head_end);
  size_t length = 0;
  constexpr std::string_view kLength = "Content-Length: ";
  if (const size_t at = head.find(kLength); at != std::string::npos) {
    length = std::stoul(head.substr(at + kLength.size()));
  }
  if (!ReadTo(fd, buffer, head_end + 4 + length)) return std::nullopt;
  MockRequest request;
  request.method = head.substr(0, head.find(' '));
  const size_t path = request.method.size() + 1;
  request.path = head.substr(path, head.find(' ', path) - path);
  request.body = buffer.substr(head_end + 4, length);
  buffer.erase(0, head_end + 4 + length);
  return request;
}

}  // namespace

bool MockAnswer::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void MockAnswer::Status(int status, std::string_view body) {
  Send("HTTP/1.1 " + std::to_string(status) +
       " Scripted\r\nContent-Type: application/json\r\nContent-Length: " +
       std::to_string(body.size()) + "\r\n\r\n" + std::string(body));
}

void MockAnswer::BeginStream() {
  Send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
}

bool MockAnswer::Chunk(std::string_view bytes) {
  char size[16];
  std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  return Send(size + std::string(bytes) + "\r\n");
}

bool MockAnswer::Event(std::string_view data) {
  return Chunk("data: " + std::string(data) + "\n\n");
}

int64_t MockAnswer::StampedText(std::string_view text) {
  const int64_t now_us = MonotonicUs();
  Chunk(": sent-us=" + std::to_string(now_us) + "\ndata: " + TextEvent(text) + "\n\n");
  return now_us;
}

void MockAnswer::EndStream(uint32_t prompt_tokens, uint32_t output_tokens) {
  Event(R"({"choices":[{"index":0,"text":"","finish_reason":"length"}]})");
  Event(R"({"choices":[],"usage":{"prompt_tokens":)" + std::to_string(prompt_tokens) +
        R"(,"completion_tokens":)" + std::to_string(output_tokens) + "}}");
  Event("[DONE]");
  Send("0\r\n\r\n");
}

void MockAnswer::Reset() {
  const linger now{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close_ = true;
}

bool MockAnswer::AwaitHangUp(int limit_ms) {
  pollfd poller{fd_, POLLIN, 0};
  char byte;
  return poll(&poller, 1, limit_ms) > 0 && recv(fd_, &byte, 1, MSG_PEEK) <= 0;
}

MockServer::MockServer(Script script) : script_(std::move(script)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  KVRM_CHECK(bind(listener_, generic, size) == 0 && listen(listener_, 1024) == 0 &&
                 getsockname(listener_, generic, &size) == 0,
             "a loopback port is free");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

MockServer::~MockServer() {
  stopping_ = true;
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  std::vector<std::thread> threads;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int fd : fds_) shutdown(fd, SHUT_RDWR);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
  close(listener_);
}

void MockServer::Accept() {
  while (!stopping_) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    ++num_connections_;
    const std::lock_guard<std::mutex> lock(mutex_);
    fds_.push_back(fd);
    threads_.emplace_back([this, fd] { Serve(fd); });
  }
}

void MockServer::Serve(int fd) {
  std::string buffer;
  bool open = true;
  while (open && !stopping_) {
    std::optional<MockRequest> request = TakeRequest(fd, buffer);
    if (!request) break;
    request->number = num_requests_++;
    MockAnswer answer(fd);
    script_(*request, answer);
    open = !answer.closes();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase(fds_, fd);
  close(fd);
}

}  // namespace kvrm::testing
