// What pager and prefix index should hold, as maps of vectors: slow, and obviously right. Knows no
// superblocks, no runs and no hashes of the pager's: it is told which pages the pager chose and
// which cached ones it gave up, and says whether it could.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "pager/pager.h"
#include "verb_script.h"

namespace kvrm::heart {

// Token `place` of text `text`: texts agree on their first 24 places, in pairs of families on 48,
// and so on, as prompts with a common system message do.
TokenId TokenOf(uint32_t text, uint32_t place);
// What the row of a place computes depends on the salt and every token up to it.
uint64_t ChainOf(PrefixSalt salt);  // before the first place
uint64_t ChainOf(uint64_t before, TokenId token);
PrefixSalt SaltOf(uint32_t number);

struct OracleSequence {
  SeqId id;
  uint32_t slot = 0;
  PrefixSalt salt;
  uint32_t text = 0;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> chain;   // [tokens]
  std::vector<uint64_t> epochs;  // [tokens] epoch whose rows write the place
  uint32_t written = 0;          // places that need no row in this step
  uint32_t entered_tokens = 0;   // IndexPrefix went so far
  bool lossy = false;
  std::vector<std::vector<uint32_t>> pages;  // [group][index from 0 on]; 0 = a hole

  uint32_t length() const { return static_cast<uint32_t>(tokens.size()); }
  uint64_t chain_before(uint32_t place) const {
    return place == 0 ? ChainOf(salt) : chain[place - 1];
  }
  void Append(TokenId token, uint64_t epoch);
  void Truncate(uint32_t from);  // tokens only
};

// One page of tokens that the prefix index knows. Its key is the chain of its last place: 64 bits
// that are not the pager's hash, so that no collision of the pager's is one of the oracle's.
struct OracleNode {
  uint64_t parent = 0;  // chain before its first place
  std::vector<TokenId> tokens;
  std::vector<uint32_t> pages;  // [group] 0 = not indexed there
};

struct OracleGroup {
  std::vector<uint16_t> references;  // [pages] how many table entries name each
  std::map<uint32_t, uint64_t> limbo;
  std::set<uint32_t> cached;
  std::map<uint32_t, uint64_t> indexed;  // page -> key of its node
  std::set<uint32_t> left;               // lost a reference in this step

  bool IsFree(uint32_t page) const {
    return page != 0 && page < references.size() && references[page] == 0 &&
           !limbo.contains(page) && !cached.contains(page);
  }
  uint64_t used() const;
};

struct Oracle {
  explicit Oracle(const PagerConfig& config);

  const KvGroupGeometry& geometry(size_t group) const { return config->geometry.groups[group]; }
  uint32_t PagesFor(size_t group, uint32_t tokens) const;
  // Index of the first page that a row at `place` reads.
  uint32_t FirstPage(size_t group, uint32_t place) const;
  bool Holds(const OracleSequence& sequence, size_t group, uint32_t begin, uint32_t end) const;
  bool CanTrim(const OracleSequence& sequence, uint32_t from) const;
  uint32_t CompletedTokens(const OracleSequence& sequence) const;
  uint32_t OpenSequences() const;

  // Counts references anew. Pages that none names any more rest in limbo.
  void Settle();
  void Complete(uint64_t done);

  // ---- prefix index
  void Enter(const OracleSequence& sequence, size_t group, uint32_t index, uint32_t page);
  void Forget(size_t group, uint32_t page);
  // True when indexed pages hold what a sequence of `tokens` needs in all groups.
  bool CanAdopt(PrefixSalt salt, std::span<const TokenId> tokens) const;
  // The longest prefix of `tokens` for which CanAdopt.
  uint32_t MostToAdopt(PrefixSalt salt, std::span<const TokenId> tokens) const;
  // True when the indexed `page` holds tokens [begin, ...) of it.
  bool Matches(size_t group, uint32_t page, uint64_t chain_before,
               std::span<const TokenId> tokens) const;

  const PagerConfig* config;
  uint64_t epoch = 0, completed = 0;
  std::vector<OracleGroup> groups;
  std::map<uint64_t, OracleNode> nodes;
  std::array<std::optional<OracleSequence>, kRegisters> registers;
  std::set<uint32_t> closing;  // slots that are free after the commit
};

}  // namespace kvrm::heart
