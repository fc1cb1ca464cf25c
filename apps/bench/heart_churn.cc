#include "bench/heart_churn.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "base/check.h"

namespace kvrm::cli {
namespace {

constexpr double kFullShare = 0.9;
constexpr double kForkShare = 0.25;  // of arrivals
constexpr uint32_t kMinPromptTokens = 16;
constexpr uint32_t kMaxGrownTokens = 4096;  // a sequence ends at the longest prompt and so many
constexpr uint32_t kLooks = 20;
constexpr uint32_t kNumDocuments = 256;  // a prompt is the beginning of one

// Each step: sequences end, at random, until the pool is at most 90 % full; then one arrives, a
// prompt of log-uniform length or a fork; then every other sequence grows by a token. So as many
// sequences live as have room, and a sequence decodes for as many steps as sequences live, on
// average.
class Script {
 public:
  Script(const HeartSizes& sizes, KvDesign& design, const KvDesign::Limits& limits)
      : sizes_(sizes), design_(design), limits_(limits) {
    row_.design = design.name();
    row_.pool_pages = limits.pages;
    std::mt19937 tokens(1);
    for (TokenId& token : documents_) token = static_cast<TokenId>(tokens() % 49'152);
  }

  ChurnRow Run() {
    uint64_t calls_before = 0;
    for (uint32_t look = 1; look <= kLooks;) {
      arrived_.clear();
      watch_.Start();
      Step();
      watch_.Stop();
      full_pages_ += static_cast<double>(design_.pages_in_use());
      if (operations() * kLooks < sizes_.churn_operations * look) continue;
      ++look;
      row_.call.Add(watch_, calls() - calls_before);
      watch_ = Stopwatch();
      calls_before = calls();
      LookAtAll();
    }
    Finish();
    return row_;
  }

 private:
  struct Live {
    uint32_t handle;
    uint32_t num_tokens;
  };
  struct Arrived {
    uint32_t handle;
    std::span<const TokenId> prompt;
  };

  uint64_t operations() const { return row_.joins + row_.forks + row_.endings; }
  uint64_t calls() const { return operations() + row_.grown_tokens; }
  // Where prefixes are shared, designs that forget different ones would end different sequences:
  // there the pages that sequences name count as often as they are named.
  uint64_t counted_pages() const {
    return limits_.shares_prefixes ? named_pages_ : design_.pages_in_use();
  }
  bool has_room() const {
    return static_cast<double>(counted_pages()) <= kFullShare * static_cast<double>(limits_.pages);
  }
  static uint64_t PagesOf(uint32_t num_tokens) {
    return (num_tokens + kHeartPageTokens - 1) / kHeartPageTokens;
  }
  uint64_t Draw(uint64_t below) { return random_() % below; }
  void Note(uint64_t what) { row_.script_hash = (row_.script_hash ^ what) * 0x100'0000'01B3u; }

  void Step() {
    design_.BeginStep();
    while (!has_room() || live_.size() == limits_.max_seqs) End(Draw(live_.size()));
    Arrive();
    for (size_t i = 0; i < live_.size() - arrived_.size();) {
      Live& seq = live_[i];
      if (seq.num_tokens == limits_.max_seq_tokens) {
        End(i);
        continue;
      }
      if (seq.num_tokens % kHeartPageTokens == 0) ++named_pages_;
      design_.Grow(seq.handle, ++seq.num_tokens);
      ++row_.grown_tokens;
      ++i;
    }
    design_.EndStep();
    for (const Arrived& arrived : arrived_) design_.Remember(arrived.handle, arrived.prompt);
    ++row_.steps;
    Note(counted_pages());
  }

  void End(size_t i) {
    design_.End(live_[i].handle);
    named_pages_ -= PagesOf(live_[i].num_tokens);
    Note(live_[i].num_tokens);
    live_.erase(live_.begin() + static_cast<ptrdiff_t>(i));
    ++row_.endings;
  }

  // The last in `live_`: it does not grow in its first step.
  void Arrive() {
    if (!live_.empty() && std::uniform_real_distribution()(random_) < kForkShare) {
      const Live source = live_[Draw(live_.size())];
      live_.push_back({design_.Fork(source.handle), source.num_tokens});
      ++row_.forks;
    } else {
      const double octaves = std::log2(sizes_.churn_max_prompt) - std::log2(kMinPromptTokens);
      const double octave = std::uniform_real_distribution(0.0, octaves)(random_);
      const auto tokens = static_cast<uint32_t>(kMinPromptTokens * std::exp2(octave));
      const size_t document = Draw(kNumDocuments) * sizes_.churn_max_prompt;
      const auto prompt = std::span<const TokenId>(documents_).subspan(document, tokens);
      live_.push_back({design_.Join(prompt), tokens});
      arrived_.push_back({live_.back().handle, prompt});
      ++row_.joins;
      row_.prompt_tokens += tokens;
      watch_.Stop();
      LookAtArrival(design_.pages(live_.back().handle));
      watch_.Start();
    }
    named_pages_ += PagesOf(live_.back().num_tokens);
    Note(live_.back().num_tokens);
  }

  // ---- looking, which is not timed

  void LookAtArrival(std::span<const PageId> pages) {
    const RunCounts runs = CountRuns(pages);
    const uint64_t bound = (runs.pages + kHeartSuperblockPages - 1) / kHeartSuperblockPages + 2;
    row_.fresh_mean_runs += static_cast<double>(runs.runs);
    row_.fresh_mean_bound += static_cast<double>(bound);
    if (runs.runs <= bound) {
      ++row_.fresh_within_bound;
      return;
    }
    row_.fresh_worst_excess =
        std::max(row_.fresh_worst_excess, static_cast<uint32_t>(runs.runs - bound));
    if (limits_.shares_prefixes || row_.examined == ChurnRow::kMaxExamined) return;
    ++row_.examined;
    const uint64_t fewest = FewestRuns(pages, design_.FreeMaps());
    KVRM_CHECK(fewest <= runs.runs, "bench: nobody does better than the best choice");
    row_.worst_excess_over_fewest = std::max(row_.worst_excess_over_fewest, runs.runs - fewest);
  }

  void LookAtAll() {
    row_.runs = {};
    for (const Live& seq : live_) {
      const std::span<const PageId> pages = design_.pages(seq.handle);
      KVRM_CHECK(pages.size() == PagesOf(seq.num_tokens),
                 "bench: a sequence holds the pages of its tokens");
      row_.runs += CountRuns(pages);
    }
    row_.least_good_share = std::min(row_.least_good_share, row_.runs.good_share());
  }

  void Finish() {
    const std::vector<std::string> violations = design_.Violations();
    KVRM_CHECK(violations.empty(), violations.front().c_str());
    row_.live_seqs = live_.size();
    row_.copies = design_.copies();
    row_.found_tokens = design_.found_tokens();
    row_.full_share = full_pages_ / static_cast<double>(row_.steps * limits_.pages);
    const auto joins = static_cast<double>(std::max<uint64_t>(row_.joins, 1));
    row_.fresh_mean_runs /= joins;
    row_.fresh_mean_bound /= joins;
  }

  const HeartSizes& sizes_;
  KvDesign& design_;
  const KvDesign::Limits limits_;
  std::mt19937_64 random_{20'260'101};
  Stopwatch watch_;
  std::vector<TokenId> documents_ =
      std::vector<TokenId>(size_t{kNumDocuments} * sizes_.churn_max_prompt);
  std::vector<Live> live_;
  std::vector<Arrived> arrived_;  // joined in this step
  uint64_t named_pages_ = 0;      // table entries of all sequences
  double full_pages_ = 0;
  ChurnRow row_;
};

}  // namespace

RunCounts& RunCounts::operator+=(const RunCounts& other) {
  runs += other.runs;
  pages += other.pages;
  good_pages += other.good_pages;
  squared_run_pages += other.squared_run_pages;
  return *this;
}

double RunCounts::good_share() const {
  return pages == 0 ? 1 : static_cast<double>(good_pages) / static_cast<double>(pages);
}

double RunCounts::mean_run_bytes() const {
  return pages == 0 ? 0
                    : squared_run_pages / static_cast<double>(pages) *
                          static_cast<double>(kHeartPartPageBytes);
}

RunCounts CountRuns(std::span<const PageId> pages) {
  RunCounts counts;
  counts.pages = pages.size();
  for (size_t begin = 0; begin < pages.size();) {
    size_t end = begin + 1;
    while (end < pages.size() && pages[end].value == pages[end - 1].value + 1 &&
           pages[end].value % kHeartSuperblockPages != 0) {
      ++end;
    }
    const size_t length = end - begin;
    ++counts.runs;
    if (length * kHeartPartPageBytes >= kHeartGoodRunBytes) counts.good_pages += length;
    counts.squared_run_pages += static_cast<double>(length * length);
    begin = end;
  }
  return counts;
}

uint64_t FewestRuns(std::span<const PageId> pages, std::vector<uint64_t> free_maps) {
  for (PageId page : pages) {
    free_maps[page.value / kHeartSuperblockPages] |= uint64_t{1}
                                                     << page.value % kHeartSuperblockPages;
  }
  // How many runs of each length there are; the longest are taken first.
  uint64_t num_runs[kHeartSuperblockPages + 1] = {};
  for (uint64_t map : free_maps) {
    while (map != 0) {
      map >>= std::countr_zero(map);
      const int length = std::countr_one(map);
      ++num_runs[length];
      map >>= length;
    }
  }
  uint64_t fewest = 0;
  auto left = static_cast<int64_t>(pages.size());
  for (uint32_t length = kHeartSuperblockPages; left > 0; --length) {
    for (uint64_t i = 0; i < num_runs[length] && left > 0; ++i, ++fewest) left -= length;
  }
  return fewest;
}

KvDesign::Limits ChurnLimits(const HeartSizes& sizes, bool shares_prefixes) {
  // The pages that kv_bytes gives the pager, so that both designs have as many.
  const uint64_t pages =
      HeartKvBytes(sizes.churn_pages) / HeartGroup().superblock_bytes * kHeartSuperblockPages - 1;
  return {pages, static_cast<uint32_t>(std::min<uint64_t>(pages / 4, 4096)),
          sizes.churn_max_prompt + kMaxGrownTokens, shares_prefixes};
}

ChurnRow RunChurn(const HeartSizes& sizes, KvDesign& design, const KvDesign::Limits& limits) {
  return Script(sizes, design, limits).Run();
}

std::vector<ChurnRow> MeasureChurn(const HeartSizes& sizes) {
  std::vector<ChurnRow> rows;
  for (const bool shares_prefixes : {false, true}) {
    const KvDesign::Limits limits = ChurnLimits(sizes, shares_prefixes);
    for (const auto& make : {MakePagerDesign, MakeSinglePageDesign}) {
      rows.push_back(RunChurn(sizes, *make(limits), limits));
    }
    KVRM_CHECK(rows.end()[-1].script_hash == rows.end()[-2].script_hash,
               "bench: both designs did the same script");
  }
  return rows;
}

}  // namespace kvrm::cli
