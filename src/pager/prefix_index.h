// The prefix index: which pages hold the keys and values of which tokens, as a tree. One node for
// each page of tokens, below the node of the page before it; the first page's parent is the root of
// its salt. A node names at most one page in each KV group.
//
// It knows tokens and page ids; not whether a page is written, referenced or cached: the pager
// does, and calls Unlink before a page may be written again.
//
// Nodes are found by a chained 128-bit hash (XXH3, not for adversaries) in an open-addressing
// table, and never believed: parent and tokens, or the salt of a root, are compared whole. So equal
// hashes cost time, not answers.
//
// A node lives while it names a page or has a child. One that names none (a *ghost*) keeps its
// children's place: they are out of reach until somebody enters its tokens again.
//
// PREFIX-1  each living node is found by its parent and content, and by no other's.
// PREFIX-2  a living node names a page or has a child; its parent lives and lists it once.
// PREFIX-3  PageOf and NodeOf are inverse to each other; the null page stands in neither.
//
// Thread class: engine-thread-only. Errors: misuse is KVRM_CHECK; running out of nodes is a value.
// Cost: O(1) a page (the table is at most two thirds full). Nothing is allocated after
// construction; what is allocated then takes memory only where it has been used.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/kv_view.h"
#include "pager/pager.h"

namespace kvrm {

using PrefixNode = StrongId<struct PrefixNodeTag>;
inline constexpr PrefixNode kNoPrefixNode{0};

class PrefixIndex {
 public:
  struct Group {
    uint32_t num_pages = 0;      // page ids are below it
    uint32_t window_tokens = 0;  // 0 = full group
  };
  struct Config {
    uint32_t page_tokens = 16;  // at least 4; the same in all groups
    std::vector<Group> groups;  // 1..kMaxKvGroups
    uint32_t max_chain = 0;     // pages of the longest prompt; more are not looked at
    uint32_t hash_bits = 128;   // test hook: bits of the hash that count
  };
  explicit PrefixIndex(const Config& config);

  // ---- looking
  struct Found {
    uint32_t num_tokens = 0;
    // The nodes of [0, num_tokens), ceil(num_tokens / page_tokens) of them. The last one may hold
    // other tokens past num_tokens. Valid until the next Match or MatchExactly.
    std::span<const PrefixNode> nodes;
  };
  // The most tokens of a prompt that can be had: whole pages, then the longest common prefix with
  // one of the kScannedChildren youngest pages that follow. Having n tokens means that each full
  // group has all of their pages, and each sliding group those of [max(0, n - window), n).
  Found Match(const PrefixSalt& salt, std::span<const TokenId> tokens);
  // Exactly `num_tokens` of them, or 0 when they cannot be had; the tokens after them help to find
  // the last page. What Match returned can be had; so can less of it, if no group is sliding.
  Found MatchExactly(const PrefixSalt& salt, std::span<const TokenId> tokens, uint32_t num_tokens);
  static constexpr uint32_t kScannedChildren = 16;

  // The node that holds `tokens` (one page) after `parent`; kNoPrefixNode: none. A first page has
  // parent kNoPrefixNode and is found by `salt`, which does not count for others.
  PrefixNode Find(const PrefixSalt& salt, PrefixNode parent, std::span<const TokenId> tokens);

  // ---- editing
  // Makes that node; it names pages[group] in each group, or none where that is the null page.
  // Requires: Find() is kNoPrefixNode, some page is not null, no page stands in the index.
  // Returns kNoPrefixNode, and changes nothing, when no node is left.
  PrefixNode Insert(const PrefixSalt& salt, PrefixNode parent, std::span<const TokenId> tokens,
                    std::span<const PageId> pages);
  // Names `page` in a group where `node` named none.
  void Link(PrefixNode node, uint32_t group, PageId page);
  // The node names no page in `group` any more; it ends, and so do ghosts above it, if that was all
  // that kept it.
  void Unlink(PrefixNode node, uint32_t group);
  // Undoes Unlink. Requires: undone in reverse order, and no Insert between.
  void Relink(PrefixNode node, uint32_t group, PageId page);
  // Forgets everything. Linear in the nodes that were ever in use at once.
  void Clear();

  // ---- queries
  PageId PageOf(PrefixNode node, uint32_t group) const {
    return PageId{pages_[size_t{node.value} * num_groups_ + group]};
  }
  PrefixNode NodeOf(PageId page, uint32_t group) const {
    return PrefixNode{nodes_of_[group][page.value]};
  }
  // Tells a node from a later one that took its place: a node that is remembered across edits is
  // the same while it `IsAlive` and its generation is.
  uint32_t generation(PrefixNode node) const { return nodes_[node.value].generation; }
  bool IsAlive(PrefixNode node) const { return nodes_[node.value].alive; }
  // True when each full group has the node's page.
  bool HasFullGroups(PrefixNode node) const;
  uint32_t num_groups() const { return num_groups_; }
  uint32_t num_pages(uint32_t group) const { return num_pages_[group]; }
  uint32_t page_tokens() const { return page_tokens_; }
  uint64_t num_nodes() const { return num_nodes_; }    // roots and ghosts included
  uint64_t collisions() const { return collisions_; }  // equal hashes of different content
  // Every violation of PREFIX-1..3, one line each. Linear; tests.
  std::vector<std::string> Violations() const;

 private:
  // Zeroed, and lent by the system page by page as it is touched: a pool of a million pages costs
  // an idle server nothing.
  template <class T>
  class LazyArray {
   public:
    explicit LazyArray(size_t count) : data_(static_cast<T*>(std::calloc(count, sizeof(T)))) {
      if (data_ == nullptr) throw std::bad_alloc();
    }
    T& operator[](size_t i) { return data_.get()[i]; }
    const T& operator[](size_t i) const { return data_.get()[i]; }

   private:
    struct Free {
      void operator()(T* data) const { std::free(data); }
    };
    std::unique_ptr<T, Free> data_;
  };

  struct Hash {
    uint64_t low = 0, high = 0;
    bool operator==(const Hash&) const = default;
  };
  struct Node {
    Hash hash;
    uint32_t parent;       // 0: a root, whose content is its salt
    uint32_t first_child;  // the youngest
    uint32_t next, prev;   // its siblings; a dead node keeps them for Relink
    uint32_t below;        // the next dead one of the stack
    uint32_t generation;
    uint8_t linked;  // pages that it names
    bool alive;
  };
  struct Bucket {
    uint32_t node;  // 0: empty
    uint32_t tag;   // low bits of its hash, the home bucket's number among them
  };

  // Bytes of a page's tokens, or of a salt.
  struct Content {
    const void* data;
    size_t bytes;
  };
  Content ContentOf(std::span<const TokenId> tokens) const;
  size_t ContentBytes(uint32_t parent) const;
  Hash HashOf(const Hash& parent, Content content) const;
  uint32_t FindChild(uint32_t parent, const Hash& hash, Content content);
  uint32_t FindRoot(const PrefixSalt& salt);
  uint32_t Make(uint32_t parent, const Hash& hash, Content content);
  void Remove(uint32_t node);
  void Revive();
  void EnterTable(uint32_t node);
  void LeaveTable(uint32_t node);
  void PrefetchBucket(const Hash& hash) const;
  void PrefetchNode(const Hash& hash) const;

  struct Walked {
    uint32_t num_pages = 0;  // nodes in chain_, all with the pages of the full groups
    uint32_t last = 0;       // the last of them, or the root; 0: no root
  };
  Walked Walk(const PrefixSalt& salt, std::span<const TokenId> tokens);
  // How far into a chain each sliding group is broken: pages up to its last missing one.
  using Gaps = std::array<uint32_t, kMaxKvGroups>;
  void AddGaps(uint32_t node, uint32_t index, Gaps& gaps) const;
  bool WindowsHold(uint32_t num_tokens, const Gaps& gaps) const;
  // The child of `walked` that holds most of `tokens`, its windows given; 0 tokens: none does.
  struct Partial {
    uint32_t node = 0;
    uint32_t num_tokens = 0;
  };
  Partial BestChild(const Walked& walked, std::span<const TokenId> tokens, const Gaps& gaps) const;

  struct Report {
    std::vector<std::string> violations;
    uint64_t linked = 0;  // pages that nodes name
    uint64_t listed = 0;  // children that nodes list
  };
  void CheckNode(uint32_t node, Report& report) const;

  // Constant after construction.
  const uint32_t page_tokens_;
  const uint32_t num_groups_;
  const uint32_t max_chain_;
  const uint32_t max_nodes_;
  const uint32_t bucket_mask_;
  std::array<uint32_t, kMaxKvGroups> windows_ = {};  // [groups] 0 = full
  std::array<uint32_t, kMaxKvGroups> num_pages_ = {};
  bool any_sliding_ = false;
  Hash hash_mask_;

  LazyArray<Bucket> buckets_;                  // [bucket_mask_ + 1], linear probing
  LazyArray<Node> nodes_;                      // [max_nodes_]; 0 is never used
  LazyArray<TokenId> tokens_;                  // [max_nodes_][page_tokens_]
  LazyArray<uint32_t> pages_;                  // [max_nodes_][num_groups_] PageId values
  std::vector<LazyArray<uint32_t>> nodes_of_;  // [groups][num_pages_]
  std::vector<PrefixNode> chain_;              // [max_chain_] what the last match found
  uint32_t made_ = 1;                          // nodes [1, made_) have been used
  uint32_t dead_ = 0;                          // the stack of dead ones, last dead first
  uint64_t num_nodes_ = 0;
  uint64_t collisions_ = 0;
};

}  // namespace kvrm
