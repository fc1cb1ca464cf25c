// A range of virtual addresses that is reserved once and backed with memory piece by piece, so that
// the pages of a KV group never move. One mapping; no file.
//
// Thread class: engine-thread-only. Ownership: unmaps in the destructor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace kvrm {

class VirtualRange {
 public:
  // Reserves `bytes` at an address that is a multiple of 2 MiB. No memory is used yet. It will be
  // populated and discarded in units of `unit_bytes`: huge pages back it if they fit a unit without
  // a remainder, and never otherwise, because one that reaches into the next unit would be memory
  // that nobody asked for, and that Discard could not return.
  // Errors: kNoRoom when the system refuses.
  static Result<VirtualRange> Reserve(uint64_t bytes, uint64_t unit_bytes);
  VirtualRange(VirtualRange&& other) noexcept;
  VirtualRange& operator=(VirtualRange&&) = delete;
  ~VirtualRange();

  // Backs [offset, offset + bytes) with zeroed memory now, so that no later write faults. Where the
  // system can do neither at once nor by touching, the range stays lazily backed: correct, but the
  // first write faults.
  void Populate(uint64_t offset, uint64_t bytes);
  // Returns the memory of [offset, offset + bytes) to the system; it reads as zeros again. Only OS
  // pages that lie wholly inside are returned.
  void Discard(uint64_t offset, uint64_t bytes);

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }

 private:
  VirtualRange(void* mapping, uint64_t mapping_bytes, std::byte* base, uint64_t bytes)
      : mapping_(mapping), mapping_bytes_(mapping_bytes), base_(base), bytes_(bytes) {}

  void* mapping_;  // what munmap takes; nullptr when moved from
  uint64_t mapping_bytes_;
  std::byte* base_;
  uint64_t bytes_;
};

}  // namespace kvrm
