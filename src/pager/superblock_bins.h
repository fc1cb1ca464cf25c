// Superblocks by (longest free run, pages in use), so that "the best-fitting run in the fullest
// superblock" is two bit scans and one load, whatever the size of the pool.
//
// Thread class: engine-thread-only. Holds no memory of superblocks, only their order. A superblock
// is filed here exactly while it is taken from the system (PAGER-7 says under which key).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "pager/free_map.h"

namespace kvrm {

using SuperblockId = StrongId<struct SuperblockTag>;  // index within the range of one KV group

// Where a superblock is filed.
struct BinKey {
  uint32_t longest_free_run = 0;  // 0..64
  uint32_t pages_in_use = 0;      // 0..64
  bool operator==(const BinKey&) const = default;
};

class SuperblockBins {
 public:
  explicit SuperblockBins(uint32_t max_superblocks);

  void Insert(SuperblockId id, BinKey key);
  void Remove(SuperblockId id, BinKey key);

  // A superblock whose longest free run is the shortest one >= count; the fullest of those; the
  // last filed of those. nullptr when there is none. Requires: 1 <= count <= 64.
  const SuperblockId* FindFitting(uint32_t count) const;
  // A superblock of which all `pages` are free, the last filed of those; nullptr: there is none.
  const SuperblockId* FindEmpty(uint32_t pages) const {
    const SuperblockId& head = heads_[pages][0];
    return head == kNone ? nullptr : &head;
  }
  // The length of the longest free run anywhere, 0 when every superblock is full.
  uint32_t LongestRun() const;

  // Calls fn(id, key) for each filed superblock, bin by bin. For snapshots: linear.
  template <class Fn>
  void ForEach(Fn&& fn) const {
    for (uint32_t run = 0; run < kKeys; ++run) {
      for (uint32_t used = 0; used < kKeys; ++used) {
        for (SuperblockId id = heads_[run][used]; id != kNone; id = links_[id.value].next) {
          fn(id, BinKey{run, used});
        }
      }
    }
  }

 private:
  static constexpr uint32_t kKeys = kFreeMapBits + 1;
  static constexpr SuperblockId kNone{~0u};
  struct Links {
    SuperblockId previous = kNone, next = kNone;
  };

  std::array<std::array<SuperblockId, kKeys>, kKeys> heads_;  // [longest run][pages in use]
  std::array<uint64_t, kKeys> used_;  // [longest run] bit u set: bin (run, u) is not empty, u < 64
  uint64_t runs_ = 0;                 // bit r - 1 set: some bin (r, *) is not empty
  std::vector<Links> links_;          // [max_superblocks]
};

}  // namespace kvrm
