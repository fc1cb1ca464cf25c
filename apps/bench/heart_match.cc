// The time of a prefix match against prompt length and pages in the index.
#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "base/check.h"
#include "bench/heart.h"
#include "pager/pager.h"

namespace kvrm::cli {
namespace {

constexpr uint32_t kVocab = 49'152;
constexpr uint32_t kMatchedPrompts = 128;  // in turn: caches hold neither them nor their nodes
constexpr uint32_t kMatchesPerSample = 512;

using Tokens = std::vector<TokenId>;

// Prompt `number`; its first token is its number's alone, so that none is found for another's.
Tokens Prompt(uint32_t number, uint32_t num_tokens) {
  std::mt19937 random(number);
  Tokens tokens(num_tokens);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % kVocab);
  tokens[0] = static_cast<TokenId>(number);
  return tokens;
}

// An index of `pool_pages` cached pages, in prompts of `prompt_tokens`.
class Filled {
 public:
  Filled(uint64_t pool_pages, uint32_t prompt_tokens)
      : prompt_tokens_(prompt_tokens),
        num_prompts_(static_cast<uint32_t>(pool_pages / prompt_pages())) {
    PagerConfig config;
    config.geometry.groups = {HeartGroup()};
    config.max_slots = 1;
    config.max_seq_tokens = prompt_tokens;
    // One prompt of room beside them: a prompt that finds no whole run would evict for one.
    config.kv_bytes = HeartKvBytes(pool_pages + prompt_pages());
    pager_ = std::move(Pager::Create(config)).value();
    for (uint32_t i = 0; i < num_prompts_; ++i) entered_ += Enter(i);
    KVRM_CHECK(entered_ == num_prompts_ * prompt_pages(), "bench: each full page is entered");
    KVRM_CHECK(pager_->books(0).cached == entered_, "bench: and stays when its sequence ends");
  }

  uint32_t num_prompts() const { return num_prompts_; }
  Pager& pager() { return *pager_; }

 private:
  uint64_t prompt_pages() const { return prompt_tokens_ / kHeartPageTokens; }

  uint32_t Enter(uint32_t number) {
    const Tokens tokens = Prompt(number, prompt_tokens_);
    pager_->BeginStep();
    const SeqId seq = *pager_->Open();
    KVRM_CHECK(pager_->Reserve(seq, prompt_tokens_, prompt_tokens_).status == ReserveStatus::kOk,
               "bench: there is room");
    Finish();
    const uint32_t pages = pager_->IndexPrefix(seq, kBenchSalt, tokens);
    pager_->BeginStep();
    pager_->Close(seq);
    Finish();
    return pages;
  }

  void Finish() {
    pager_->Commit(++epoch_);
    pager_->StepDone(epoch_);
  }

  const uint32_t prompt_tokens_;
  const uint32_t num_prompts_;
  std::unique_ptr<Pager> pager_;
  uint64_t epoch_ = 0;
  uint64_t entered_ = 0;
};

// Each prompt's first `num_tokens` in turn; all must be found, or none.
void TimeMatches(Pager& pager, const std::vector<Tokens>& prompts, uint32_t num_tokens,
                 uint32_t found_tokens, uint32_t repeats, TimeSamples& samples) {
  uint32_t next = 0;
  for (uint32_t repeat = 0; repeat <= repeats; ++repeat) {
    Stopwatch watch;
    watch.Start();
    for (uint32_t i = 0; i < kMatchesPerSample; ++i) {
      const std::span<const TokenId> tokens = prompts[next++ % prompts.size()];
      KVRM_CHECK(pager.MatchPrefix(kBenchSalt, tokens.first(num_tokens)) == found_tokens,
                 "bench: a match finds what was entered, and nothing else");
    }
    watch.Stop();
    if (repeat > 0) samples.Add(watch, kMatchesPerSample);
  }
}

}  // namespace

std::vector<MatchRow> MeasureMatch(const HeartSizes& sizes) {
  std::vector<MatchRow> rows;
  const uint32_t longest = *std::max_element(sizes.match_tokens.begin(), sizes.match_tokens.end());
  for (uint64_t pool_pages : sizes.match_pools) {
    Filled filled(pool_pages, longest);
    std::vector<Tokens> known, unknown;
    for (uint32_t i = 0; i < std::min(filled.num_prompts(), kMatchedPrompts); ++i) {
      known.push_back(Prompt(i * 37 % filled.num_prompts(), longest));
      unknown.push_back(Prompt(filled.num_prompts() + i, longest));
    }
    for (uint32_t tokens : sizes.match_tokens) {
      MatchRow& row = rows.emplace_back();
      row.pool_pages = pool_pages;
      row.tokens = tokens;
      TimeMatches(filled.pager(), known, tokens, tokens, sizes.repeats, row.hit);
      TimeMatches(filled.pager(), unknown, tokens, 0, sizes.repeats, row.miss);
    }
  }
  return rows;
}

}  // namespace kvrm::cli
