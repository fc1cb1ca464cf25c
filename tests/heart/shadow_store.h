// What bytes each (sequence, place, group, part) should hold, and the hands of an executor: it
// writes rows, copies pages as the engine does, and finds out what really stands there.
//
// A place is 4 bytes of each part of its page. They are a function of the chain of tokens up to it,
// so that a page which is reused too early, copied too late, shared by two writers, or taken for
// another prompt's shows as wrong bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pager/pager.h"

namespace kvrm::heart {

// A live sequence as a step leaves it: what a reader should find.
struct ExpectedSlot {
  uint32_t slot = 0;
  uint32_t first_row = 0;       // places [first_row, length) are written by this step's rows
  bool reads_last_row = false;  // a row that writes nothing computes the last place once more
  bool lossy = false;
  std::vector<uint64_t> chain;  // [length]

  uint32_t length() const { return static_cast<uint32_t>(chain.size()); }
  // The first place that a row of this step, or the next one, reads.
  uint32_t first_reader() const {
    return reads_last_row && first_row == length() ? length() - 1 : first_row;
  }
};

class ShadowStore {
 public:
  // Requires: `pager` outlives it.
  explicit ShadowStore(const Pager& pager);

  void Copy(const Pager::PageCopy& copy) const;
  // Writes place `place` of a sequence into its `page`.
  void Write(uint32_t group, uint32_t page, uint32_t place, uint64_t chain) const;
  // Reads `num_pages` adjacent pages at `offset_bytes` that hold places from `first_place` on, up
  // to chain.size(): what is wrong, or nothing.
  std::optional<std::string> FindWrong(uint32_t group, uint64_t offset_bytes, uint32_t first_place,
                                       uint32_t num_pages, std::span<const uint64_t> chain) const;

 private:
  struct Group {
    KvGroupGeometry geometry;
    std::byte* base;
  };
  static uint32_t ValueOf(uint32_t group, uint32_t part, uint64_t chain) {
    return static_cast<uint32_t>((chain * (2 * (group * 64 + part) + 3)) >> 24);
  }
  std::vector<Group> groups_;
};

}  // namespace kvrm::heart
