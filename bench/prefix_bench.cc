// What it costs to match, enter and forget prefixes, against the pages that the index holds. Goal:
// a match of 8,192 tokens (512 pages) in less than 100 us at a million pages.
//
//   ninja prefix_bench && bench/prefix_bench
//
// Each benchmark checks its result: the tokens and pages that it found.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/check.h"
#include "pager/prefix_index.h"

namespace kvrm {
namespace {

constexpr uint32_t kPageTokens = 16;
constexpr uint32_t kChainPages = 512;
constexpr PrefixSalt kSalt{1, 7};

using Tokens = std::vector<TokenId>;

// The prompt that chain `number` was entered with: nothing is shared but what `shared` says.
Tokens Prompt(uint32_t number) {
  std::mt19937 random(number);
  Tokens tokens(size_t{kChainPages} * kPageTokens);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 49'152);
  return tokens;
}

// `num_pages` pages in chains of 512, entered page by page in turn, so that neighbours in a chain
// lie far apart in memory.
struct Filled {
  explicit Filled(uint32_t num_pages) : num_chains(num_pages / kChainPages) {
    PrefixIndex::Config config;
    config.page_tokens = kPageTokens;
    config.groups = {{num_pages + 2 * kChainPages, 0}};
    config.max_chain = kChainPages;
    index = std::make_unique<PrefixIndex>(config);
    std::vector<Tokens> prompts;
    for (uint32_t i = 0; i < num_chains; ++i) prompts.push_back(Prompt(i));
    std::vector<PrefixNode> parents(num_chains);
    for (uint32_t p = 0; p < kChainPages; ++p) {
      for (uint32_t i = 0; i < num_chains; ++i) parents[i] = Enter(prompts[i], p, parents[i]);
    }
  }

  PrefixNode Enter(const Tokens& tokens, uint32_t page, PrefixNode parent) {
    const PageId pages[] = {PageId{++last_page}};
    return index->Insert(kSalt, parent,
                         std::span(tokens).subspan(size_t{page} * kPageTokens, kPageTokens), pages);
  }

  const uint32_t num_chains;
  std::unique_ptr<PrefixIndex> index;
  uint32_t last_page = 0;
};

void Match8192Tokens(benchmark::State& state) {
  Filled filled(static_cast<uint32_t>(state.range(0)));
  std::vector<Tokens> prompts;  // enough that caches hold neither them nor their nodes
  for (uint32_t i = 0; i < std::min(filled.num_chains, 1024u); ++i) {
    prompts.push_back(Prompt(i * 37 % filled.num_chains));
  }
  uint32_t next = 0;
  for (auto _ : state) {
    const Tokens& prompt = prompts[next++ % prompts.size()];
    KVRM_CHECK(filled.index->Match(kSalt, prompt).num_tokens == prompt.size(), "bench: all of it");
  }
}

void MissAtOnce(benchmark::State& state) {
  Filled filled(static_cast<uint32_t>(state.range(0)));
  const Tokens prompt = Prompt(1'000'000);
  for (auto _ : state) {
    KVRM_CHECK(filled.index->Match(kSalt, prompt).num_tokens == 0, "bench: none of it");
  }
}

// A chain of 512 pages that comes and goes, tail first: per page.
void EnterAndUnlink(benchmark::State& state) {
  Filled filled(static_cast<uint32_t>(state.range(0)));
  const Tokens prompt = Prompt(1'000'000);
  const uint32_t first_page = filled.last_page;
  std::vector<PrefixNode> chain(kChainPages);
  for (auto _ : state) {
    PrefixNode parent = kNoPrefixNode;
    filled.last_page = first_page;
    for (uint32_t p = 0; p < kChainPages; ++p) {
      parent = chain[p] = filled.Enter(prompt, p, parent);
    }
    for (uint32_t p = kChainPages; p-- > 0;) filled.index->Unlink(chain[p], 0);
  }
  KVRM_CHECK(filled.index->num_nodes() == uint64_t{filled.num_chains} * kChainPages + 1,
             "bench: what came has gone");
  state.SetItemsProcessed(state.iterations() * kChainPages);
}

BENCHMARK(Match8192Tokens)->Arg(1 << 10)->Arg(1 << 15)->Arg(1 << 20)->Unit(benchmark::kMicrosecond);
BENCHMARK(MissAtOnce)->Arg(1 << 10)->Arg(1 << 20);
BENCHMARK(EnterAndUnlink)->Arg(1 << 10)->Arg(1 << 20)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvrm
