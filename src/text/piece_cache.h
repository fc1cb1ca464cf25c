// Pieces met before in the same text: their tokens are copied from where they stand in the output.
// Direct-mapped; a lost entry costs a merge, nothing else. One object per text; thread-compatible.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

namespace kvrm {

class PieceCache {
 public:
  struct Hit {
    size_t out_begin = 0;
    uint32_t count = 0;  // 0 = not found
  };

  // Returns where the tokens of `piece` stand. The entry is `piece`'s from now on: the caller
  // passes the place at which its tokens will begin, and calls Filled() when they are there.
  Hit FindOrClaim(std::string_view piece, size_t out_begin) {
    claimed_ = nullptr;
    if (piece.size() > kMaxPiece) return {};
    if (entries_.empty()) entries_.resize(kSize);
    Entry& entry = entries_[std::hash<std::string_view>{}(piece) % kSize];
    if (entry.count > 0 && entry.size == piece.size() &&
        std::memcmp(entry.bytes, piece.data(), piece.size()) == 0) {
      return {entry.out_begin, entry.count};
    }
    entry.size = static_cast<uint8_t>(piece.size());
    std::memcpy(entry.bytes, piece.data(), piece.size());
    entry.out_begin = out_begin;
    entry.count = 0;
    claimed_ = &entry;
    return {};
  }
  void Filled(size_t out_end) {
    if (claimed_ != nullptr) claimed_->count = static_cast<uint32_t>(out_end - claimed_->out_begin);
  }

 private:
  static constexpr size_t kMaxPiece = 19;
  static constexpr size_t kSize = 4096;
  struct Entry {
    size_t out_begin;
    uint32_t count;
    uint8_t size;
    char bytes[kMaxPiece];
  };
  static_assert(sizeof(Entry) == 32);
  std::vector<Entry> entries_;
  Entry* claimed_ = nullptr;
};

}  // namespace kvrm
