// Checksums by which a hub names its files. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kvrm {

class Digest {
 public:
  // The digest whose hexadecimal form `name` is, of a file of `num_bytes`: 64 digits, SHA-256 of
  // its bytes (large files); 40, git's name of a blob, SHA-1 over a header and the bytes (small
  // ones). nullptr where it is neither: such a file has no checksum.
  static std::unique_ptr<Digest> For(std::string_view name, uint64_t num_bytes);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Update(std::span<const char> bytes);
  // Lower-case hexadecimal. Call once, last.
  std::string Finish();

 private:
  struct State;
  explicit Digest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvrm
