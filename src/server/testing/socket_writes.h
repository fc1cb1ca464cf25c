// Counts what a server in this process writes to its sockets: send and sendmsg of the C library are
// stood in for in every program that uses this. Test code only.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace kvrm::testing {

// One at a time; thread-safe.
class SocketWrites {
 public:
  SocketWrites();
  ~SocketWrites();
  SocketWrites(const SocketWrites&) = delete;
  SocketWrites& operator=(const SocketWrites&) = delete;

  // The bytes of each write to the peer at `port`, in order; since construction or Forget: a port
  // may have been another client's before.
  std::vector<std::string> To(uint16_t port) const;
  void Forget(uint16_t port);

  void Note(uint16_t peer_port, std::string bytes);  // called by the stand-ins

 private:
  mutable std::mutex mutex_;
  std::map<uint16_t, std::vector<std::string>> by_peer_;  // guarded by mutex_
};

}  // namespace kvrm::testing
