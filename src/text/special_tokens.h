// Finds special tokens in text: at each place the longest that fits, left to right. Immutable after
// creation; thread-safe. Time is at most text length times the longest special token.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace kvrm {

// Bytes [begin, end) of a text in which control tokens are recognised.
struct ControlRange {
  size_t begin;
  size_t end;
};

class SpecialTokenSet {
 public:
  SpecialTokenSet() : nodes_(1) {}
  // Adds a token. A control token is found only inside a ControlRange, any other everywhere.
  // An empty text is never found; of equal texts the first counts.
  void Add(std::string_view text, TokenId id, bool is_control);
  bool empty() const { return nodes_.size() == 1; }

  struct Match {
    size_t begin;
    size_t end;
    TokenId id;  // -1: none until the end of the text, begin == end == text.size()
  };
  // The first match at or after `at`. `control` ranges are ascending and do not overlap; a control
  // token must lie inside one of them as a whole.
  Match FindNext(std::string_view text, size_t at, std::span<const ControlRange> control) const;

 private:
  // A trie in one vector: the children of a node are a chain of siblings.
  struct Node {
    TokenId control_id = -1;
    TokenId plain_id = -1;
    uint32_t first_child = 0;  // 0 = none: node 0 is the root
    uint32_t next_sibling = 0;
    char byte = 0;
  };
  uint32_t Child(uint32_t node, char byte) const;

  std::vector<Node> nodes_;
  bool starts_[256] = {};  // some token begins with this byte
};

}  // namespace kvrm
