// An order of things that have a number (pages, slots): a doubly linked list whose links stand in
// an array that the owner sized once, so that nothing is allocated and anything leaves from
// anywhere in O(1). A thing is in at most one of the lists that share an array; who is in which is
// the owner's to know.
//
// Thread class: thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "base/kv_view.h"

namespace kvrm {

struct ListLinks {
  uint32_t previous = kNone32, next = kNone32;
};

class IndexList {
 public:
  uint32_t first() const { return first_; }  // kNone32: empty
  uint32_t last() const { return last_; }
  uint64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // Inserts `index` behind `previous`, in front of all when that is kNone32. Requires: `index` is
  // in no list of `links`, `previous` in this one.
  void InsertAfter(std::vector<ListLinks>& links, uint32_t previous, uint32_t index) {
    const uint32_t next = previous == kNone32 ? first_ : links[previous].next;
    links[index] = {previous, next};
    (previous == kNone32 ? first_ : links[previous].next) = index;
    (next == kNone32 ? last_ : links[next].previous) = index;
    ++size_;
  }
  void PushFront(std::vector<ListLinks>& links, uint32_t index) {
    InsertAfter(links, kNone32, index);
  }
  void PushBack(std::vector<ListLinks>& links, uint32_t index) { InsertAfter(links, last_, index); }

  // Requires: `index` is in this list.
  void Remove(std::vector<ListLinks>& links, uint32_t index) {
    const ListLinks around = links[index];
    (around.previous == kNone32 ? first_ : links[around.previous].next) = around.next;
    (around.next == kNone32 ? last_ : links[around.next].previous) = around.previous;
    links[index] = {};
    --size_;
  }

 private:
  uint32_t first_ = kNone32, last_ = kNone32;
  uint64_t size_ = 0;
};

}  // namespace kvrm
