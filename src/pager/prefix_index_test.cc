// The prefix index against an oracle: a map from (salt, all tokens up to a page's end) to pages.
#include "pager/prefix_index.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "pager/prefix_testing.h"

namespace kvrm {
namespace {

using testing::Count;
using Tokens = std::vector<TokenId>;

constexpr PrefixSalt kSalt{1, 7};

PrefixIndex::Config SmallConfig(const std::vector<uint32_t>& windows = {0}) {
  PrefixIndex::Config config;
  config.page_tokens = 4;
  for (uint32_t window : windows) config.groups.push_back({64, window});
  config.max_chain = 16;
  return config;
}

// Enters the chain of `tokens` with pages from `page` on, one after the other, in every group.
std::vector<PrefixNode> Enter(PrefixIndex& index, const PrefixSalt& salt, const Tokens& tokens,
                              uint32_t page) {
  std::vector<PrefixNode> chain;
  PrefixNode parent = kNoPrefixNode;
  for (size_t at = 0; at + index.page_tokens() <= tokens.size(); at += index.page_tokens()) {
    const auto held = std::span(tokens).subspan(at, index.page_tokens());
    const std::vector<PageId> pages(index.num_groups(), PageId{page++});
    parent = index.Insert(salt, parent, held, pages);
    chain.push_back(parent);
  }
  return chain;
}

uint32_t Matched(PrefixIndex& index, const PrefixSalt& salt, const Tokens& tokens) {
  return index.Match(salt, tokens).num_tokens;
}

TEST(PrefixIndex, FindsWholePagesThenTheLongestCommonPrefixOfOneMore) {
  PrefixIndex index(SmallConfig());
  Enter(index, kSalt, Count(0, 12), 1);
  for (uint32_t length = 0; length <= 14; ++length) {
    EXPECT_EQ(Matched(index, kSalt, Count(0, length)), std::min(length, 12u));
  }
  Tokens other = Count(0, 12);
  for (uint32_t differs = 0; differs < 12; ++differs) {
    other = Count(0, 12);
    other[differs] = 99;
    EXPECT_EQ(Matched(index, kSalt, other), differs);
  }
  const PrefixIndex::Found found = index.Match(kSalt, other);  // 11 tokens: two pages and a part
  ASSERT_EQ(found.nodes.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(index.PageOf(found.nodes[i], 0), PageId{i + 1});
}

TEST(PrefixIndex, SaltsShareNothing) {
  PrefixIndex index(SmallConfig());
  const Tokens tokens = Count(0, 12);
  Enter(index, {1, 7}, tokens, 1);
  EXPECT_EQ(Matched(index, {2, 7}, tokens), 0u);
  EXPECT_EQ(Matched(index, {1, 8}, tokens), 0u);
  EXPECT_EQ(Matched(index, {7, 1}, tokens), 0u);
  Enter(index, {2, 7}, tokens, 11);
  EXPECT_EQ(index.PageOf(index.Match({1, 7}, tokens).nodes[0], 0), PageId{1});
  EXPECT_EQ(index.PageOf(index.Match({2, 7}, tokens).nodes[0], 0), PageId{11});
}

// The same page of tokens at two places, or after two prefixes, is two nodes.
TEST(PrefixIndex, EqualPagesAfterDifferentPrefixesAreDifferentNodes) {
  PrefixIndex index(SmallConfig());
  const Tokens ones(12, 1);
  Enter(index, kSalt, ones, 1);
  Tokens other(12, 1);
  other[0] = 2;
  Enter(index, kSalt, other, 4);
  EXPECT_EQ(index.PageOf(index.Match(kSalt, ones).nodes[2], 0), PageId{3});
  EXPECT_EQ(index.PageOf(index.Match(kSalt, other).nodes[2], 0), PageId{6});
}

TEST(PrefixIndex, OfManyContinuationsTheYoungestAreLookedAt) {
  PrefixIndex::Config config = SmallConfig();
  PrefixIndex index(config);
  for (TokenId i = 0; i < 20; ++i) Enter(index, kSalt, {i, i, i, i}, 1 + static_cast<uint32_t>(i));
  for (TokenId i = 0; i < 20; ++i) {
    const bool young = i >= 20 - static_cast<TokenId>(PrefixIndex::kScannedChildren);
    EXPECT_EQ(Matched(index, kSalt, {i, i, i, -1}), young ? 3u : 0u) << i;
    EXPECT_EQ(Matched(index, kSalt, {i, i, i, i}), 4u) << i;  // whole pages are all found
  }
}

TEST(PrefixIndex, WhatFollowsAnUnlinkedPageIsOutOfReachUntilItIsEnteredAgain) {
  PrefixIndex index(SmallConfig());
  const Tokens tokens = Count(0, 16);
  const std::vector<PrefixNode> chain = Enter(index, kSalt, tokens, 1);
  index.Unlink(chain[1], 0);
  EXPECT_EQ(Matched(index, kSalt, tokens), 4u);
  EXPECT_TRUE(index.IsAlive(chain[1]));  // keeps the place of its children
  EXPECT_EQ(index.Find(kSalt, chain[0], std::span(tokens).subspan(4, 4)), chain[1]);
  index.Link(chain[1], 0, PageId{40});
  const PrefixIndex::Found found = index.Match(kSalt, tokens);
  ASSERT_EQ(found.num_tokens, 16u);
  EXPECT_EQ(index.PageOf(found.nodes[1], 0), PageId{40});
  EXPECT_EQ(index.PageOf(found.nodes[2], 0), PageId{3});
}

TEST(PrefixIndex, TheLastPageOfAChainTakesItsGhostsWithIt) {
  PrefixIndex index(SmallConfig());
  const std::vector<PrefixNode> chain = Enter(index, kSalt, Count(0, 12), 1);
  const uint32_t generation = index.generation(chain[0]);
  EXPECT_EQ(index.num_nodes(), 4u);  // three and their root
  index.Unlink(chain[0], 0);
  index.Unlink(chain[1], 0);
  EXPECT_EQ(index.num_nodes(), 4u);
  index.Unlink(chain[2], 0);
  EXPECT_EQ(index.num_nodes(), 0u);
  EXPECT_FALSE(index.IsAlive(chain[0]));
  Enter(index, kSalt, Count(50, 12), 1);
  EXPECT_NE(index.generation(chain[0]), generation);  // whoever has its place now is another
  EXPECT_EQ(index.Violations(), std::vector<std::string>{});
}

// Two full pages of window 8 behind the end are enough, and are needed.
TEST(PrefixIndex, ASlidingGroupNeedsItsWindowOnly) {
  PrefixIndex index(SmallConfig({0, 8}));
  const Tokens tokens = Count(0, 20);
  const std::vector<PrefixNode> chain = Enter(index, kSalt, tokens, 1);
  index.Unlink(chain[0], 1);
  index.Unlink(chain[1], 1);
  EXPECT_EQ(Matched(index, kSalt, tokens), 20u);
  EXPECT_EQ(Matched(index, kSalt, Count(0, 19)), 19u);  // sees 11..18
  EXPECT_EQ(Matched(index, kSalt, Count(0, 16)), 16u);  // sees 8..15
  EXPECT_EQ(Matched(index, kSalt, Count(0, 15)), 0u);   // sees 7..14, and 7 is gone
  EXPECT_EQ(index.MatchExactly(kSalt, tokens, 16).num_tokens, 16u);
  EXPECT_EQ(index.MatchExactly(kSalt, tokens, 15).num_tokens, 0u);
  index.Unlink(chain[4], 1);
  EXPECT_EQ(Matched(index, kSalt, tokens), 16u);
  index.Unlink(chain[4], 0);
  index.Unlink(chain[3], 0);  // now a full group ends the chain where the window has gone
  EXPECT_EQ(Matched(index, kSalt, tokens), 0u);
}

TEST(PrefixIndex, WithoutANodeLeftNothingIsEntered) {
  PrefixIndex::Config config = SmallConfig();
  config.groups[0].num_pages = 4;  // nodes for two times as many, roots and ghosts included
  PrefixIndex index(config);
  uint32_t entered = 0;
  // The chain's page is unlinked from each node but the last, so that it becomes a ghost.
  PrefixNode parent = kNoPrefixNode;
  const PageId page[] = {PageId{1}};
  for (TokenId i = 0; i < 20; ++i) {
    const Tokens tokens(4, i);
    const PageId other[] = {PageId{2 + static_cast<uint32_t>(i) % 2}};
    const PrefixNode node = index.Insert(kSalt, parent, tokens, i == 0 ? page : other);
    if (node == kNoPrefixNode) break;
    if (i > 0) index.Unlink(parent, 0);
    parent = node;
    ++entered;
  }
  EXPECT_EQ(entered, 8u);
  EXPECT_EQ(index.num_nodes(), 9u);
  EXPECT_EQ(index.Violations(), std::vector<std::string>{});
}

// ---- the oracle

struct IndexOracle {
  using Key = std::pair<std::pair<uint64_t, uint64_t>, Tokens>;
  std::map<Key, std::vector<uint32_t>> pages;  // [groups] 0 = none
  std::vector<uint32_t> windows;
  uint32_t page_tokens = 0;

  static Key KeyOf(const PrefixSalt& salt, const Tokens& tokens) {
    return {{salt.tenant, salt.model}, tokens};
  }
  const std::vector<uint32_t>* At(const PrefixSalt& salt, const Tokens& tokens, size_t end) const {
    const auto found = pages.find(KeyOf(salt, Tokens(tokens.begin(), tokens.begin() + end)));
    return found == pages.end() ? nullptr : &found->second;
  }
  // Tokens [0, num_tokens) of `tokens`, whose last page is that of `chain`.
  bool Holds(const PrefixSalt& salt, const Tokens& chain, uint32_t num_tokens) const {
    for (size_t g = 0; g < windows.size(); ++g) {
      uint32_t first = 0;
      if (windows[g] != 0 && num_tokens > windows[g]) first = num_tokens - windows[g];
      for (uint32_t p = first / page_tokens; p * page_tokens < num_tokens; ++p) {
        const auto* held = At(salt, chain, (p + 1) * page_tokens);
        if (held == nullptr || (*held)[g] == 0) return false;
      }
    }
    return true;
  }
  bool CanHave(const PrefixSalt& salt, const Tokens& tokens, uint32_t num_tokens) const {
    const size_t end = (num_tokens + page_tokens - 1) / page_tokens * page_tokens;
    if (end == num_tokens) return Holds(salt, tokens, num_tokens);
    return std::any_of(pages.begin(), pages.end(), [&](const auto& entry) {
      const Tokens& chain = entry.first.second;
      return entry.first.first == KeyOf(salt, {}).first && chain.size() == end &&
             std::equal(tokens.begin(), tokens.begin() + num_tokens, chain.begin()) &&
             Holds(salt, chain, num_tokens);
    });
  }
  uint32_t Most(const PrefixSalt& salt, const Tokens& tokens, uint32_t step) const {
    uint32_t most = 0;
    for (uint32_t n = step; n <= tokens.size(); n += step) {
      if (CanHave(salt, tokens, n)) most = n;
    }
    return most;
  }
};

// Random enterings, evictions, undone evictions and look-ups, the same ones in both.
class RandomIndex {
 public:
  RandomIndex(const std::vector<uint32_t>& windows, uint32_t hash_bits, uint32_t seed)
      : random_(seed) {
    PrefixIndex::Config config = SmallConfig(windows);
    config.hash_bits = hash_bits;
    index_ = std::make_unique<PrefixIndex>(config);
    for (const auto& group : config.groups) oracle_.windows.push_back(group.window_tokens);
    oracle_.page_tokens = config.page_tokens;
    num_pages_ = config.groups[0].num_pages;
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      const uint32_t what = Below(40);
      if (what < 12) {
        EnterOne();
      } else if (what < 18) {
        Evict(Below(6), /*undone=*/false);
      } else if (what < 24) {
        Evict(Below(12), /*undone=*/true);
      } else {
        Look();
      }
      if (Below(300) == 0) Clear();
      if (i % 16 == 0) {
        ASSERT_EQ(index_->Violations(), std::vector<std::string>{});
      }
    }
  }
  const PrefixIndex& index() const { return *index_; }
  uint64_t hits() const { return hits_; }

 private:
  using Linked = std::pair<PrefixNode, uint32_t>;  // and the group

  uint32_t Below(uint32_t limit) { return random_() % limit; }
  PrefixSalt RandomSalt() { return {Below(2), 5}; }
  // Of two tokens, so that prefixes are shared and a page has at most 16 continuations: all of
  // them are looked at.
  Tokens RandomTokens() {
    Tokens tokens(Below(21));
    for (TokenId& token : tokens) token = Below(8) == 0 ? 1 : 0;
    return tokens;
  }

  bool IsSliding(uint32_t group) const { return oracle_.windows[group] != 0; }

  std::vector<PageId> FreshPages() {
    std::vector<PageId> pages(oracle_.windows.size());
    for (uint32_t g = 0; g < pages.size(); ++g) {
      if (IsSliding(g) && Below(3) == 0) continue;  // slid out of its sequence already
      const PageId page{1 + Below(num_pages_ - 1)};
      if (index_->NodeOf(page, g) == kNoPrefixNode) pages[g] = page;
    }
    return pages;
  }

  void EnterOne() {
    const PrefixSalt salt = RandomSalt();
    const Tokens tokens = RandomTokens();
    PrefixNode parent = kNoPrefixNode;
    for (size_t at = 0; at + 4 <= tokens.size(); at += 4) {
      const std::span<const TokenId> held = std::span(tokens).subspan(at, 4);
      const IndexOracle::Key key = IndexOracle::KeyOf(
          salt, Tokens(tokens.begin(), tokens.begin() + static_cast<long>(at) + 4));
      const std::vector<PageId> pages = FreshPages();
      PrefixNode node = index_->Find(salt, parent, held);
      if (const auto known = oracle_.pages.find(key); known != oracle_.pages.end()) {
        ASSERT_NE(node, kNoPrefixNode);
      }
      if (node == kNoPrefixNode) {
        if (std::all_of(pages.begin(), pages.end(), [](PageId p) { return p == kNullPage; })) {
          return;
        }
        node = index_->Insert(salt, parent, held, pages);
        ASSERT_NE(node, kNoPrefixNode);
        for (PageId page : pages) oracle_.pages[key].push_back(page.value);
      } else {
        std::vector<uint32_t>& named = oracle_.pages[key];
        named.resize(pages.size());
        for (uint32_t g = 0; g < pages.size(); ++g) {
          ASSERT_EQ(index_->PageOf(node, g), PageId{named[g]});
          if (named[g] != 0 || pages[g] == kNullPage) continue;
          index_->Link(node, g, pages[g]);
          named[g] = pages[g].value;
        }
        if (named == std::vector<uint32_t>(named.size())) oracle_.pages.erase(key);
      }
      parent = node;
    }
  }

  void Evict(uint32_t count, bool undone) {
    struct Evicted {
      PrefixNode node;
      uint32_t group;
      PageId page;
    };
    std::vector<Evicted> evicted;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t group = Below(index_->num_groups());
      const PageId page{1 + Below(num_pages_ - 1)};
      const PrefixNode node = index_->NodeOf(page, group);
      if (node == kNoPrefixNode) continue;
      index_->Unlink(node, group);
      evicted.push_back({node, group, page});
      if (!undone) Forget(group, page);
    }
    if (!undone) return;
    std::reverse(evicted.begin(), evicted.end());
    for (const auto& [node, group, page] : evicted) index_->Relink(node, group, page);
  }

  void Forget(uint32_t group, PageId page) {
    const auto entry =
        std::find_if(oracle_.pages.begin(), oracle_.pages.end(),
                     [&](const auto& each) { return each.second[group] == page.value; });
    ASSERT_NE(entry, oracle_.pages.end());
    entry->second[group] = 0;
    if (entry->second == std::vector<uint32_t>(entry->second.size())) oracle_.pages.erase(entry);
  }

  void Clear() {
    index_->Clear();
    oracle_.pages.clear();
    ASSERT_EQ(index_->num_nodes(), 0u);
  }

  void Look() {
    const PrefixSalt salt = RandomSalt();
    const Tokens tokens = RandomTokens();
    const PrefixIndex::Found found = index_->Match(salt, tokens);
    ExpectPagesOf(salt, tokens, found);
    const uint32_t matched = found.num_tokens;
    const bool any_sliding = std::any_of(oracle_.windows.begin(), oracle_.windows.end(),
                                         [](uint32_t window) { return window != 0; });
    if (any_sliding) {
      ASSERT_GE(matched, oracle_.Most(salt, tokens, /*step=*/4));
      ASSERT_TRUE(oracle_.CanHave(salt, tokens, matched));
    } else {
      ASSERT_EQ(matched, oracle_.Most(salt, tokens, /*step=*/1));
    }
    for (uint32_t n = 0; n <= tokens.size(); ++n) {
      const PrefixIndex::Found exact = index_->MatchExactly(salt, tokens, n);
      ExpectPagesOf(salt, tokens, exact);
      const bool must = n == matched || (!any_sliding && n < matched) ||
                        (n % 4 == 0 && oracle_.CanHave(salt, tokens, n));
      ASSERT_EQ(exact.num_tokens, must || exact.num_tokens == n ? n : 0);
      ASSERT_TRUE(exact.num_tokens == 0 || oracle_.CanHave(salt, tokens, n));
    }
    hits_ += matched > 0 ? 1 : 0;
  }

  // The nodes name the pages that the oracle holds for these tokens.
  void ExpectPagesOf(const PrefixSalt& salt, const Tokens& tokens,
                     const PrefixIndex::Found& found) {
    ASSERT_EQ(found.nodes.size(), (found.num_tokens + 3) / 4);
    for (size_t i = 0; i < found.nodes.size(); ++i) {
      std::vector<uint32_t> named;
      for (uint32_t g = 0; g < index_->num_groups(); ++g) {
        named.push_back(index_->PageOf(found.nodes[i], g).value);
      }
      // Before every window: a place in the chain, and no page (Holds tells where one is needed).
      if (named == std::vector<uint32_t>(named.size())) continue;
      const size_t held = std::min<size_t>(found.num_tokens, (i + 1) * 4);
      const bool known =
          std::any_of(oracle_.pages.begin(), oracle_.pages.end(), [&](const auto& entry) {
            const Tokens& chain = entry.first.second;
            return entry.first.first == IndexOracle::KeyOf(salt, {}).first &&
                   chain.size() == (i + 1) * 4 && entry.second == named &&
                   std::equal(tokens.begin(), tokens.begin() + static_cast<long>(held),
                              chain.begin());
          });
      ASSERT_TRUE(known) << "page " << i;
    }
  }

  std::mt19937 random_;
  std::unique_ptr<PrefixIndex> index_;
  IndexOracle oracle_;
  uint32_t num_pages_ = 0;
  uint64_t hits_ = 0;
};

TEST(PrefixIndexOracle, OneFullGroup) {
  RandomIndex random({0}, /*hash_bits=*/128, /*seed=*/1);
  random.Run(20'000);
  EXPECT_GT(random.hits(), 1'000u);
  EXPECT_EQ(random.index().collisions(), 0u);
}

TEST(PrefixIndexOracle, FullAndSlidingGroups) {
  RandomIndex random({0, 8, 6}, /*hash_bits=*/128, /*seed=*/2);
  random.Run(20'000);
  EXPECT_GT(random.hits(), 1'000u);
}

TEST(PrefixIndexOracle, FourHashBitsChangeNoAnswer) {
  RandomIndex full({0}, /*hash_bits=*/4, /*seed=*/3);
  full.Run(10'000);
  EXPECT_GT(full.hits(), 500u);
  EXPECT_GT(full.index().collisions(), 1'000u);
  RandomIndex only_sliding({8}, /*hash_bits=*/6, /*seed=*/5);
  only_sliding.Run(10'000);
  EXPECT_GT(only_sliding.hits(), 300u);
  RandomIndex sliding({6, 0}, /*hash_bits=*/4, /*seed=*/4);
  sliding.Run(10'000);
  EXPECT_GT(sliding.index().collisions(), 1'000u);
}

// ---- two different prompts with one hash must not share

TEST(B004, WithFourHashBitsEveryPromptFindsItsOwnPagesOnly) {
  PrefixIndex::Config config;
  config.page_tokens = 8;
  config.groups = {{2048, 0}};
  config.max_chain = 5;
  config.hash_bits = 4;
  PrefixIndex index(config);
  std::mt19937 random(4);
  std::vector<Tokens> prompts(200, Tokens(40));
  for (Tokens& prompt : prompts) {
    for (TokenId& token : prompt) token = static_cast<TokenId>(random() % 50'000);
  }
  std::vector<uint32_t> order(400);  // each twice
  for (uint32_t i = 0; i < 400; ++i) order[i] = i % 200;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<bool> entered(200);
  for (uint32_t i : order) {
    const PrefixIndex::Found found = index.Match(kSalt, prompts[i]);
    ASSERT_EQ(found.num_tokens, entered[i] ? 40u : 0u) << i;
    for (uint32_t page = 0; page < found.nodes.size(); ++page) {
      ASSERT_EQ(index.PageOf(found.nodes[page], 0), PageId{1 + 5 * i + page});
    }
    ASSERT_EQ(Matched(index, {2, 7}, prompts[i]), 0u);
    if (!entered[i]) Enter(index, kSalt, prompts[i], 1 + 5 * i);
    entered[i] = true;
  }
  EXPECT_GT(index.collisions(), 0u);
}

}  // namespace
}  // namespace kvrm
