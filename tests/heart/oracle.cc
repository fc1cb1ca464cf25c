#include "oracle.h"

#include <algorithm>

namespace kvrm::heart {
namespace {

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58'476D'1CE4'E5B9u;
  value = (value ^ (value >> 27)) * 0x94D0'49BB'1331'11EBu;
  return value ^ (value >> 31);
}

}  // namespace

TokenId TokenOf(uint32_t text, uint32_t place) {
  uint32_t family = text;
  if (place < 24) {
    family = 0;
  } else if (place < 48) {
    family = text & 1;
  } else if (place < 80) {
    family = text & 3;
  } else if (place < 144) {
    family = text & 7;
  }
  return static_cast<TokenId>(Mix(uint64_t{family} << 32 | place) & 0xFFFF);
}

uint64_t ChainOf(PrefixSalt salt) { return Mix(salt.tenant * 31 + salt.model + 1); }
uint64_t ChainOf(uint64_t before, TokenId token) {
  return Mix(before + static_cast<uint64_t>(token) + 0x9E37'79B9'7F4A'7C15u);
}
PrefixSalt SaltOf(uint32_t number) {
  const uint32_t salt = number % kSalts;
  return {.tenant = salt == 1 ? 1u : 0u, .model = salt == 2 ? 1u : 0u};
}

void OracleSequence::Append(TokenId token, uint64_t epoch) {
  chain.push_back(ChainOf(chain_before(length()), token));
  tokens.push_back(token);
  epochs.push_back(epoch);
}

void OracleSequence::Truncate(uint32_t from) {
  tokens.resize(from);
  chain.resize(from);
  epochs.resize(from);
  written = std::min(written, from);
  entered_tokens = std::min(entered_tokens, from);
}

uint64_t OracleGroup::used() const {
  return references.size() -
         static_cast<uint64_t>(std::count(references.begin(), references.end(), 0));
}

Oracle::Oracle(const PagerConfig& pager_config) : config(&pager_config) {
  for (const KvGroupGeometry& group : config->geometry.groups) {
    groups.emplace_back().references.resize(config->kv_bytes / group.superblock_bytes *
                                            group.pages_per_superblock);
  }
}

uint32_t Oracle::PagesFor(size_t group, uint32_t tokens) const {
  const uint32_t page_tokens = geometry(group).page_tokens;
  return (tokens + page_tokens - 1) / page_tokens;
}

uint32_t Oracle::FirstPage(size_t group, uint32_t place) const {
  const uint32_t window = geometry(group).window_tokens;
  if (window == 0 || place + 1 <= window) return 0;
  return (place + 1 - window) / geometry(group).page_tokens;
}

bool Oracle::Holds(const OracleSequence& sequence, size_t group, uint32_t begin,
                   uint32_t end) const {
  const auto& pages = sequence.pages[group];
  return std::find(pages.begin() + begin, pages.begin() + end, 0u) == pages.begin() + end;
}

bool Oracle::CanTrim(const OracleSequence& sequence, uint32_t from) const {
  if (from == 0 || from >= sequence.length()) return true;
  for (size_t g = 0; g < groups.size(); ++g) {
    const uint32_t end = PagesFor(g, from);
    const bool slides = geometry(g).window_tokens > 0;
    if (slides && !Holds(sequence, g, FirstPage(g, from), end)) return false;
    if (sequence.pages[g][end - 1] == 0) return false;  // no table ends with a hole
  }
  return true;
}

uint32_t Oracle::CompletedTokens(const OracleSequence& sequence) const {
  return static_cast<uint32_t>(
      std::find_if(sequence.epochs.begin(), sequence.epochs.end(),
                   [&](uint64_t written_in) { return written_in > completed; }) -
      sequence.epochs.begin());
}

uint32_t Oracle::OpenSequences() const {
  return static_cast<uint32_t>(std::count_if(registers.begin(), registers.end(),
                                             [](const auto& each) { return each.has_value(); }));
}

void Oracle::Settle() {
  for (size_t g = 0; g < groups.size(); ++g) {
    OracleGroup& group = groups[g];
    std::vector<uint16_t> counts(group.references.size());
    for (const auto& sequence : registers) {
      if (!sequence) continue;
      for (const uint32_t page : sequence->pages[g]) ++counts[page];
    }
    counts[0] = 0;  // holes
    for (uint32_t page = 1; page < counts.size(); ++page) {
      if (counts[page] < group.references[page]) {
        group.left.insert(page);
        if (counts[page] == 0) group.limbo[page] = epoch + 1;
      } else if (counts[page] > 0 && group.references[page] == 0) {
        group.limbo.erase(page);
        group.cached.erase(page);
      }
    }
    group.references = std::move(counts);
  }
}

void Oracle::Complete(uint64_t done) {
  completed = std::max(completed, done);
  for (OracleGroup& group : groups) {
    for (auto it = group.limbo.begin(); it != group.limbo.end();) {
      if (it->second > completed) {
        ++it;
        continue;
      }
      if (group.indexed.contains(it->first)) group.cached.insert(it->first);
      it = group.limbo.erase(it);
    }
  }
}

void Oracle::Enter(const OracleSequence& sequence, size_t group, uint32_t index, uint32_t page) {
  const uint32_t page_tokens = geometry(group).page_tokens;
  const uint32_t begin = index * page_tokens, end = begin + page_tokens;
  const uint64_t key = sequence.chain[end - 1];
  OracleNode& node = nodes[key];
  node.parent = sequence.chain_before(begin);
  node.tokens.assign(sequence.tokens.begin() + begin, sequence.tokens.begin() + end);
  node.pages.resize(groups.size());
  node.pages[group] = page;
  groups[group].indexed[page] = key;
}

void Oracle::Forget(size_t group, uint32_t page) {
  const auto entry = groups[group].indexed.find(page);
  uint64_t key = entry->second;
  nodes.at(key).pages[group] = 0;
  groups[group].indexed.erase(entry);
  groups[group].cached.erase(page);
  // A node that names no page ends, unless others follow it; then the one before it may end too.
  for (auto node = nodes.find(key); node != nodes.end(); node = nodes.find(key)) {
    const auto& pages = node->second.pages;
    const bool names_none =
        std::all_of(pages.begin(), pages.end(), [](uint32_t each) { return each == 0; });
    const bool is_followed = std::any_of(
        nodes.begin(), nodes.end(), [&](const auto& each) { return each.second.parent == key; });
    if (!names_none || is_followed) return;
    key = node->second.parent;
    nodes.erase(node);
  }
}

bool Oracle::Matches(size_t group, uint32_t page, uint64_t chain_before,
                     std::span<const TokenId> tokens) const {
  const auto entry = groups[group].indexed.find(page);
  if (entry == groups[group].indexed.end()) return false;
  const OracleNode& node = nodes.at(entry->second);
  return node.parent == chain_before && tokens.size() <= node.tokens.size() &&
         std::equal(tokens.begin(), tokens.end(), node.tokens.begin());
}

bool Oracle::CanAdopt(PrefixSalt salt, std::span<const TokenId> tokens) const {
  const uint32_t page_tokens = geometry(0).page_tokens;
  const auto length = static_cast<uint32_t>(tokens.size());
  uint64_t before = ChainOf(salt);
  for (uint32_t begin = 0; begin < length; begin += page_tokens) {
    const uint32_t end = std::min(begin + page_tokens, length);
    const auto part = tokens.subspan(begin, end - begin);
    const auto serves = [&](const OracleNode& node) {
      for (size_t g = 0; g < groups.size(); ++g) {
        // Its last row may be computed once more, without a write.
        const bool is_read = begin / page_tokens >= FirstPage(g, length - 1);
        if (is_read && node.pages[g] == 0) return false;
      }
      return node.parent == before && std::equal(part.begin(), part.end(), node.tokens.begin());
    };
    const bool found = std::any_of(nodes.begin(), nodes.end(),
                                   [&](const auto& entry) { return serves(entry.second); });
    if (!found) return false;
    for (const TokenId token : part) before = ChainOf(before, token);
  }
  return true;
}

uint32_t Oracle::MostToAdopt(PrefixSalt salt, std::span<const TokenId> tokens) const {
  // Nodes alone bound it from above; which of them still hold the pages is asked of each length.
  uint64_t before = ChainOf(salt);
  uint32_t most = 0;
  for (bool whole = true; whole;) {
    whole = false;
    uint32_t longest = 0;
    for (const auto& [key, node] : nodes) {
      if (node.parent != before) continue;
      const auto rest = tokens.subspan(most);
      const auto differ =
          std::mismatch(rest.begin(), rest.end(), node.tokens.begin(), node.tokens.end()).first;
      longest = std::max(longest, static_cast<uint32_t>(differ - rest.begin()));
    }
    for (uint32_t i = 0; i < longest; ++i) before = ChainOf(before, tokens[most + i]);
    most += longest;
    whole = longest == geometry(0).page_tokens;
  }
  while (most > 0 && !CanAdopt(salt, tokens.first(most))) --most;
  return most;
}

}  // namespace kvrm::heart
