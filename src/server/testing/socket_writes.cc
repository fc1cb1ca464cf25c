#include "server/testing/socket_writes.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace kvrm::testing {
namespace {

// Who counts now. The lock keeps it there while it is told.
std::mutex counting_mutex;
SocketWrites* counting = nullptr;         // guarded by counting_mutex
std::atomic<bool> anybody_counts{false};  // a look beforehand

uint16_t PeerPort(int fd) {
  sockaddr_in peer{};
  socklen_t bytes = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return 0;
  return peer.sin_family == AF_INET ? ntohs(peer.sin_port) : uint16_t{0};
}

void NoteWrite(int fd, std::string bytes) {
  const std::lock_guard<std::mutex> lock(counting_mutex);
  if (counting != nullptr) counting->Note(PeerPort(fd), std::move(bytes));
}

// What the program would have called: the C library's, or a sanitizer's in front of it.
template <class Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

SocketWrites::SocketWrites() {
  const std::lock_guard<std::mutex> lock(counting_mutex);
  counting = this;
  anybody_counts = true;
}

SocketWrites::~SocketWrites() {
  const std::lock_guard<std::mutex> lock(counting_mutex);
  counting = nullptr;
  anybody_counts = false;
}

std::vector<std::string> SocketWrites::To(uint16_t port) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_peer_.find(port);
  return found == by_peer_.end() ? std::vector<std::string>() : found->second;
}

void SocketWrites::Forget(uint16_t port) {
  const std::lock_guard<std::mutex> lock(mutex_);
  by_peer_.erase(port);
}

void SocketWrites::Note(uint16_t peer_port, std::string bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  by_peer_[peer_port].push_back(std::move(bytes));
}

}  // namespace kvrm::testing

extern "C" ssize_t send(int fd, const void* data, size_t size, int flags) {
  using Send = ssize_t (*)(int, const void*, size_t, int);
  static const Send next = kvrm::testing::Next<Send>("send");
  const ssize_t sent = next(fd, data, size, flags);
  if (sent > 0 && kvrm::testing::anybody_counts) {
    kvrm::testing::NoteWrite(
        fd, std::string(static_cast<const char*>(data), static_cast<size_t>(sent)));
  }
  return sent;
}

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  using SendMessage = ssize_t (*)(int, const msghdr*, int);
  static const SendMessage next = kvrm::testing::Next<SendMessage>("sendmsg");
  const ssize_t sent = next(fd, message, flags);
  if (sent <= 0 || !kvrm::testing::anybody_counts) return sent;
  std::string bytes;
  auto left = static_cast<size_t>(sent);
  for (size_t i = 0; i < message->msg_iovlen && left > 0; ++i) {
    const iovec& piece = message->msg_iov[i];
    const size_t taken = std::min(left, piece.iov_len);
    bytes.append(static_cast<const char*>(piece.iov_base), taken);
    left -= taken;
  }
  kvrm::testing::NoteWrite(fd, std::move(bytes));
  return sent;
}
