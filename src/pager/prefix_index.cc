#include "pager/prefix_index.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvrm {
namespace {

constexpr uint32_t kMaxPageTokens = 128;
// Hashes that are computed ahead, so that the memory that they lead to is fetched side by side. A
// prompt that misses at once has hashed so many pages in vain.
constexpr uint32_t kLookahead = 16;

uint64_t LowBits(uint32_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

// Every page may be the only one of its salt, so two nodes for each page; ghosts use what that
// leaves.
uint32_t MaxNodes(const PrefixIndex::Config& config) {
  uint64_t pages = 0;
  for (const PrefixIndex::Group& group : config.groups) pages += group.num_pages;
  return static_cast<uint32_t>(std::min<uint64_t>(2 * pages + 2, uint64_t{1} << 30));
}

}  // namespace

PrefixIndex::PrefixIndex(const Config& config)
    : page_tokens_(config.page_tokens),
      num_groups_(static_cast<uint32_t>(config.groups.size())),
      max_chain_(config.max_chain),
      max_nodes_(MaxNodes(config)),
      bucket_mask_(std::bit_ceil(max_nodes_ + max_nodes_ / 2) - 1),
      hash_mask_{LowBits(config.hash_bits),
                 config.hash_bits <= 64 ? 0 : LowBits(config.hash_bits - 64)},
      buckets_(size_t{bucket_mask_} + 1),
      nodes_(max_nodes_),
      tokens_(size_t{max_nodes_} * page_tokens_),
      pages_(size_t{max_nodes_} * num_groups_),
      chain_(size_t{max_chain_}) {
  KVRM_CHECK(num_groups_ >= 1 && num_groups_ <= kMaxKvGroups, "PREFIX: 1 to 4 KV groups");
  KVRM_CHECK(page_tokens_ * sizeof(TokenId) >= sizeof(PrefixSalt) && page_tokens_ <= kMaxPageTokens,
             "PREFIX: a page holds 4 to 128 tokens");
  nodes_of_.reserve(num_groups_);
  for (uint32_t g = 0; g < num_groups_; ++g) {
    windows_[g] = config.groups[g].window_tokens;
    num_pages_[g] = config.groups[g].num_pages;
    if (windows_[g] != 0) any_sliding_ = true;
    nodes_of_.emplace_back(size_t{num_pages_[g]});
  }
}

// ---- hashing and the table

PrefixIndex::Content PrefixIndex::ContentOf(std::span<const TokenId> tokens) const {
  return {tokens.data(), page_tokens_ * sizeof(TokenId)};
}

size_t PrefixIndex::ContentBytes(uint32_t parent) const {
  return parent == 0 ? sizeof(PrefixSalt) : page_tokens_ * sizeof(TokenId);
}

PrefixIndex::Hash PrefixIndex::HashOf(const Hash& parent, Content content) const {
  // One buffer, because a seed would let only half of the parent's bits through.
  alignas(16) unsigned char buffer[sizeof(Hash) + kMaxPageTokens * sizeof(TokenId)];
  std::memcpy(buffer, &parent, sizeof parent);
  std::memcpy(buffer + sizeof parent, content.data, content.bytes);
  const XXH128_hash_t hash = XXH3_128bits(buffer, sizeof parent + content.bytes);
  return {hash.low64 & hash_mask_.low, hash.high64 & hash_mask_.high};
}

uint32_t PrefixIndex::FindChild(uint32_t parent, const Hash& hash, Content content) {
  const auto tag = static_cast<uint32_t>(hash.low);
  for (uint32_t at = tag & bucket_mask_; buckets_[at].node != 0; at = (at + 1) & bucket_mask_) {
    if (buckets_[at].tag != tag) continue;
    const uint32_t id = buckets_[at].node;
    if (nodes_[id].hash != hash) continue;
    if (nodes_[id].parent == parent &&
        std::memcmp(&tokens_[size_t{id} * page_tokens_], content.data, content.bytes) == 0) {
      return id;
    }
    ++collisions_;
  }
  return 0;
}

uint32_t PrefixIndex::FindRoot(const PrefixSalt& salt) {
  const Content content{&salt, sizeof salt};
  return FindChild(0, HashOf({}, content), content);
}

void PrefixIndex::PrefetchBucket(const Hash& hash) const {
  __builtin_prefetch(&buckets_[static_cast<uint32_t>(hash.low) & bucket_mask_]);
}

// What FindChild will read, as far as the home bucket tells.
void PrefixIndex::PrefetchNode(const Hash& hash) const {
  const auto tag = static_cast<uint32_t>(hash.low);
  const Bucket& bucket = buckets_[tag & bucket_mask_];
  if (bucket.tag != tag) return;
  __builtin_prefetch(&nodes_[bucket.node]);
  __builtin_prefetch(&tokens_[size_t{bucket.node} * page_tokens_]);
  __builtin_prefetch(&pages_[size_t{bucket.node} * num_groups_]);
}

void PrefixIndex::EnterTable(uint32_t node) {
  const auto tag = static_cast<uint32_t>(nodes_[node].hash.low);
  uint32_t at = tag & bucket_mask_;
  while (buckets_[at].node != 0) at = (at + 1) & bucket_mask_;
  buckets_[at] = {node, tag};
}

// Those that follow move up, as far as their home buckets let them, so that no search ends early
// and no mark is left behind.
void PrefixIndex::LeaveTable(uint32_t node) {
  uint32_t hole = static_cast<uint32_t>(nodes_[node].hash.low) & bucket_mask_;
  while (buckets_[hole].node != node) hole = (hole + 1) & bucket_mask_;
  for (uint32_t at = (hole + 1) & bucket_mask_; buckets_[at].node != 0;
       at = (at + 1) & bucket_mask_) {
    const uint32_t from_home = (at - buckets_[at].tag) & bucket_mask_;
    if (from_home < ((at - hole) & bucket_mask_)) continue;
    buckets_[hole] = buckets_[at];
    hole = at;
  }
  buckets_[hole] = {};
}

// ---- matching

PrefixIndex::Walked PrefixIndex::Walk(const PrefixSalt& salt, std::span<const TokenId> tokens) {
  Walked walked;
  walked.last = FindRoot(salt);
  if (walked.last == 0) return walked;
  const auto whole_pages =
      static_cast<uint32_t>(std::min<size_t>(tokens.size() / page_tokens_, max_chain_));
  Hash last = nodes_[walked.last].hash;
  Hash ahead[kLookahead];
  for (uint32_t begin = 0; begin < whole_pages; begin += kLookahead) {
    const uint32_t count = std::min(kLookahead, whole_pages - begin);
    for (uint32_t i = 0; i < count; ++i) {
      last = ahead[i] = HashOf(last, ContentOf(tokens.subspan(size_t{begin + i} * page_tokens_)));
      PrefetchBucket(ahead[i]);
    }
    for (uint32_t i = 0; i < count; ++i) PrefetchNode(ahead[i]);
    for (uint32_t i = 0; i < count; ++i) {
      const Content content = ContentOf(tokens.subspan(size_t{begin + i} * page_tokens_));
      const PrefixNode node{FindChild(walked.last, ahead[i], content)};
      if (node == kNoPrefixNode || !HasFullGroups(node)) return walked;
      chain_[walked.num_pages++] = node;
      walked.last = node.value;
    }
  }
  return walked;
}

bool PrefixIndex::HasFullGroups(PrefixNode node) const {
  for (uint32_t g = 0; g < num_groups_; ++g) {
    if (windows_[g] == 0 && PageOf(node, g) == kNullPage) return false;
  }
  return true;
}

// `node` holds page `index` of the chain.
void PrefixIndex::AddGaps(uint32_t node, uint32_t index, Gaps& gaps) const {
  for (uint32_t g = 0; g < num_groups_; ++g) {
    if (windows_[g] != 0 && PageOf(PrefixNode{node}, g) == kNullPage) gaps[g] = index + 1;
  }
}

// True when each sliding group has the pages of the last window of `num_tokens` tokens.
bool PrefixIndex::WindowsHold(uint32_t num_tokens, const Gaps& gaps) const {
  for (uint32_t g = 0; g < num_groups_; ++g) {
    if (windows_[g] == 0) continue;
    const uint32_t first = num_tokens > windows_[g] ? num_tokens - windows_[g] : 0;
    if (gaps[g] > first / page_tokens_) return false;
  }
  return true;
}

PrefixIndex::Partial PrefixIndex::BestChild(const Walked& walked, std::span<const TokenId> tokens,
                                            const Gaps& gaps) const {
  Partial best;
  const auto rest = tokens.first(std::min<size_t>(tokens.size(), page_tokens_));
  if (walked.last == 0 || rest.empty() || walked.num_pages == max_chain_) return best;
  uint32_t child = nodes_[walked.last].first_child;
  for (uint32_t i = 0; i < kScannedChildren && child != 0; ++i, child = nodes_[child].next) {
    const TokenId* held = &tokens_[size_t{child} * page_tokens_];
    const auto common =
        static_cast<uint32_t>(std::mismatch(rest.begin(), rest.end(), held).first - rest.begin());
    if (common <= best.num_tokens || !HasFullGroups(PrefixNode{child})) continue;
    Gaps with_child = gaps;
    AddGaps(child, walked.num_pages, with_child);
    if (!WindowsHold(walked.num_pages * page_tokens_ + common, with_child)) continue;
    best = {child, common};
  }
  return best;
}

PrefixIndex::Found PrefixIndex::Match(const PrefixSalt& salt, std::span<const TokenId> tokens) {
  const Walked walked = Walk(salt, tokens);
  Gaps gaps{};
  uint32_t pages = walked.num_pages;
  if (any_sliding_) {
    pages = 0;
    for (uint32_t i = 0; i < walked.num_pages; ++i) {
      AddGaps(chain_[i].value, i, gaps);
      if (WindowsHold((i + 1) * page_tokens_, gaps)) pages = i + 1;
    }
  }
  const Partial partial =
      BestChild(walked, tokens.subspan(size_t{walked.num_pages} * page_tokens_), gaps);
  if (partial.num_tokens == 0) {
    return {pages * page_tokens_, std::span(chain_).first(pages)};
  }
  chain_[walked.num_pages] = PrefixNode{partial.node};
  return {walked.num_pages * page_tokens_ + partial.num_tokens,
          std::span(chain_).first(walked.num_pages + 1)};
}

PrefixIndex::Found PrefixIndex::MatchExactly(const PrefixSalt& salt,
                                             std::span<const TokenId> tokens, uint32_t num_tokens) {
  KVRM_CHECK(num_tokens <= tokens.size(), "PREFIX: more tokens are asked for than are given");
  const size_t pages = (size_t{num_tokens} + page_tokens_ - 1) / page_tokens_;
  if (pages > max_chain_) return {};
  tokens = tokens.first(std::min(tokens.size(), pages * page_tokens_));
  const Walked walked = Walk(salt, tokens);
  Gaps gaps{};
  for (uint32_t i = 0; i < walked.num_pages; ++i) AddGaps(chain_[i].value, i, gaps);
  if (walked.num_pages == pages) {
    if (!WindowsHold(num_tokens, gaps)) return {};
    return {num_tokens, std::span(chain_).first(pages)};
  }
  if (walked.num_pages + 1 < pages) return {};
  const auto rest = tokens.first(num_tokens).subspan(size_t{walked.num_pages} * page_tokens_);
  const Partial partial = BestChild(walked, rest, gaps);
  if (partial.num_tokens < rest.size()) return {};
  chain_[walked.num_pages] = PrefixNode{partial.node};
  return {num_tokens, std::span(chain_).first(pages)};
}

PrefixNode PrefixIndex::Find(const PrefixSalt& salt, PrefixNode parent,
                             std::span<const TokenId> tokens) {
  KVRM_CHECK(tokens.size() == page_tokens_, "PREFIX: a node holds one page of tokens");
  const uint32_t above = parent == kNoPrefixNode ? FindRoot(salt) : parent.value;
  if (above == 0) return kNoPrefixNode;
  const Content content = ContentOf(tokens);
  return PrefixNode{FindChild(above, HashOf(nodes_[above].hash, content), content)};
}

// ---- editing

PrefixNode PrefixIndex::Insert(const PrefixSalt& salt, PrefixNode parent,
                               std::span<const TokenId> tokens, std::span<const PageId> pages) {
  KVRM_CHECK(tokens.size() == page_tokens_, "PREFIX: a node holds one page of tokens");
  KVRM_CHECK(parent == kNoPrefixNode || IsAlive(parent), "PREFIX-2: a dead node gets a child");
  uint32_t above = parent == kNoPrefixNode ? FindRoot(salt) : parent.value;
  const uint64_t nodes_left = max_nodes_ - 1 - num_nodes_;
  if (nodes_left < (above == 0 ? 2 : 1)) return kNoPrefixNode;
  if (above == 0) {
    const Content content{&salt, sizeof salt};
    above = Make(0, HashOf({}, content), content);
  }
  const Content content = ContentOf(tokens);
  const Hash hash = HashOf(nodes_[above].hash, content);
  KVRM_DCHECK(2, FindChild(above, hash, content) == 0, "PREFIX-1: a node is entered twice");
  const PrefixNode node{Make(above, hash, content)};
  for (uint32_t g = 0; g < num_groups_; ++g) {
    if (pages[g] != kNullPage) Link(node, g, pages[g]);
  }
  KVRM_CHECK(nodes_[node.value].linked > 0, "PREFIX-2: a node is entered without a page");
  return node;
}

uint32_t PrefixIndex::Make(uint32_t parent, const Hash& hash, Content content) {
  uint32_t id = dead_;
  if (id != 0) {
    dead_ = nodes_[id].below;
  } else {
    id = made_++;
  }
  Node& node = nodes_[id];
  const uint32_t first_sibling = parent == 0 ? 0 : nodes_[parent].first_child;
  node = {.hash = hash,
          .parent = parent,
          .first_child = 0,
          .next = first_sibling,
          .prev = 0,
          .below = 0,
          .generation = node.generation + 1,
          .linked = 0,
          .alive = true};
  if (first_sibling != 0) nodes_[first_sibling].prev = id;
  if (parent != 0) nodes_[parent].first_child = id;
  std::memcpy(&tokens_[size_t{id} * page_tokens_], content.data, content.bytes);
  EnterTable(id);
  ++num_nodes_;
  return id;
}

void PrefixIndex::Link(PrefixNode node, uint32_t group, PageId page) {
  KVRM_CHECK(IsAlive(node), "PREFIX-2: a dead node names a page");
  KVRM_CHECK(page != kNullPage && page.value < num_pages_[group], "PREFIX-3: no page of the group");
  KVRM_CHECK(NodeOf(page, group) == kNoPrefixNode, "PREFIX-3: two nodes name one page");
  uint32_t& named = pages_[size_t{node.value} * num_groups_ + group];
  KVRM_CHECK(named == 0, "PREFIX-3: a node names two pages of one group");
  named = page.value;
  nodes_of_[group][page.value] = node.value;
  ++nodes_[node.value].linked;
}

void PrefixIndex::Unlink(PrefixNode node, uint32_t group) {
  uint32_t& named = pages_[size_t{node.value} * num_groups_ + group];
  KVRM_CHECK(named != 0, "PREFIX-3: a page leaves the index that is not in it");
  nodes_of_[group][named] = 0;
  named = 0;
  --nodes_[node.value].linked;
  for (uint32_t id = node.value; id != 0;) {
    const Node& each = nodes_[id];
    if (each.linked > 0 || each.first_child != 0) return;
    const uint32_t parent = each.parent;
    Remove(id);
    id = parent;
  }
}

// The node leaves its neighbours' lists but keeps its own links, content and hash: until another
// takes its place, Revive puts it back exactly where it was.
void PrefixIndex::Remove(uint32_t id) {
  Node& node = nodes_[id];
  LeaveTable(id);
  if (node.next != 0) nodes_[node.next].prev = node.prev;
  if (node.prev != 0) {
    nodes_[node.prev].next = node.next;
  } else if (node.parent != 0) {
    nodes_[node.parent].first_child = node.next;
  }
  node.alive = false;
  node.below = dead_;
  dead_ = id;
  --num_nodes_;
}

// The last one that Remove took comes back: a parent before its child, as they went the other way.
void PrefixIndex::Revive() {
  KVRM_CHECK(dead_ != 0, "PREFIX-2: an unlink is undone that never was");
  const uint32_t id = dead_;
  Node& node = nodes_[id];
  dead_ = node.below;
  if (node.next != 0) nodes_[node.next].prev = id;
  if (node.prev != 0) {
    nodes_[node.prev].next = id;
  } else if (node.parent != 0) {
    nodes_[node.parent].first_child = id;
  }
  node.alive = true;
  EnterTable(id);
  ++num_nodes_;
}

void PrefixIndex::Relink(PrefixNode node, uint32_t group, PageId page) {
  while (!IsAlive(node)) Revive();
  Link(node, group, page);
}

void PrefixIndex::Clear() {
  for (uint32_t id = 1; id < made_; ++id) {
    if (!nodes_[id].alive) continue;
    LeaveTable(id);
    nodes_[id].alive = false;
    for (uint32_t g = 0; g < num_groups_; ++g) {
      uint32_t& named = pages_[size_t{id} * num_groups_ + g];
      nodes_of_[g][named] = 0;  // of the null page when it names none: 0 anyway
      named = 0;
    }
  }
  // The generations stay, so that what is remembered of old nodes fits none of the next ones.
  made_ = 1;
  dead_ = 0;
  num_nodes_ = 0;
}

// ---- laws

void PrefixIndex::CheckNode(uint32_t id, Report& report) const {
  const Node& node = nodes_[id];
  const auto violates = [&](const char* law, const char* what) {
    report.violations.push_back(std::string(law) + " node " + std::to_string(id) + ": " + what);
  };
  const Hash above = node.parent == 0 ? Hash{} : nodes_[node.parent].hash;
  const Content content{&tokens_[size_t{id} * page_tokens_], ContentBytes(node.parent)};
  if (HashOf(above, content) != node.hash) violates("PREFIX-1", "its hash is not its own");
  if (node.parent != 0 && !nodes_[node.parent].alive) violates("PREFIX-2", "its parent is dead");
  uint32_t linked = 0;
  for (uint32_t g = 0; g < num_groups_; ++g) {
    const PageId page = PageOf(PrefixNode{id}, g);
    if (page == kNullPage) continue;
    ++linked;
    if (NodeOf(page, g).value != id) violates("PREFIX-3", "its page names another node");
  }
  if (linked != node.linked) violates("PREFIX-3", "it miscounts its pages");
  if (linked == 0 && node.first_child == 0) violates("PREFIX-2", "nothing keeps it");
  report.linked += linked;
  uint32_t prev = 0;
  for (uint32_t child = node.first_child; child != 0; child = nodes_[child].next) {
    ++report.listed;
    if (nodes_[child].parent != id || nodes_[child].prev != prev || !nodes_[child].alive) {
      violates("PREFIX-2", "it lists a stranger");
      return;  // the list may not end
    }
    prev = child;
  }
}

std::vector<std::string> PrefixIndex::Violations() const {
  Report report;
  uint64_t alive = 0, roots = 0, in_table = 0, mapped = 0;
  for (uint32_t id = 1; id < made_; ++id) {
    if (!nodes_[id].alive) continue;
    ++alive;
    roots += nodes_[id].parent == 0 ? 1 : 0;
    CheckNode(id, report);
  }
  for (uint32_t at = 0; at <= bucket_mask_; ++at) {
    if (buckets_[at].node != 0 && nodes_[buckets_[at].node].alive) ++in_table;
  }
  for (uint32_t g = 0; g < num_groups_; ++g) {
    for (uint32_t page = 0; page < num_pages_[g]; ++page) {
      mapped += nodes_of_[g][page] != 0 ? 1 : 0;
    }
  }
  const auto compare = [&](const char* law, uint64_t counted, uint64_t expected) {
    if (counted == expected) return;
    report.violations.push_back(std::string(law) + std::to_string(counted) + " of " +
                                std::to_string(expected));
  };
  compare("PREFIX-1: nodes in the table: ", in_table, num_nodes_);
  compare("PREFIX-2: nodes alive: ", alive, num_nodes_);
  compare("PREFIX-2: nodes that are roots or in a list: ", roots + report.listed, alive);
  compare("PREFIX-3: pages in the reverse map: ", mapped, report.linked);
  return std::move(report.violations);
}

}  // namespace kvrm
