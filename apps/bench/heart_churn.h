// Churn: sequences join, fork, decode in lock step and end, in a pool that is held at 90 % full,
// and what their pages look like then. One script for each design of a page pool.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "bench/heart.h"

namespace kvrm::cli {

// A page pool with page tables, as the script drives it. A sequence is named by a handle below
// max_seqs. A step's edits stand between BeginStep and EndStep.
class KvDesign {
 public:
  struct Limits {
    uint64_t pages = 0;  // of the pool, the null page not counted
    uint32_t max_seqs = 0;
    uint32_t max_seq_tokens = 0;
    bool shares_prefixes = false;  // pages of ended prompts stay, and new prompts find them
  };
  virtual ~KvDesign() = default;
  virtual std::string name() const = 0;

  virtual void BeginStep() = 0;
  // A new sequence with that prompt. Requires: room, and a free handle.
  virtual uint32_t Join(std::span<const TokenId> prompt) = 0;
  // A new sequence that shares all pages of `source`. Requires: a free handle; `source` has not
  // grown in this step.
  virtual uint32_t Fork(uint32_t source) = 0;
  // One token more: a new page where the last is full, a copy where it is shared. Requires: room.
  virtual void Grow(uint32_t seq, uint32_t num_tokens) = 0;
  virtual void End(uint32_t seq) = 0;
  virtual void EndStep() = 0;
  // Between steps: the prompt of `seq`, which has joined with it, may be shared from now on.
  virtual void Remember(uint32_t seq, std::span<const TokenId> prompt) = 0;

  virtual uint64_t pages_in_use() const = 0;  // named by a sequence, each once
  virtual uint64_t copies() const = 0;        // of shared pages, so far
  virtual uint64_t found_tokens() const = 0;  // of prompts, so far
  // Pages in token order; valid until the next edit.
  virtual std::span<const PageId> pages(uint32_t seq) const = 0;
  // [superblock] bit i set: nobody needs page i of it, now. Linear; also within a step.
  virtual std::vector<uint64_t> FreeMaps() const = 0;
  // Every fault of its books; linear. Between steps.
  virtual std::vector<std::string> Violations() const = 0;
};

std::unique_ptr<KvDesign> MakePagerDesign(const KvDesign::Limits& limits);
// The usual design: a free list of single pages, last freed first taken; a reference count a page;
// a vector of page ids a sequence; a hash map from the chained hash of a full page's tokens to the
// page, and the oldest unreferenced page is forgotten first.
std::unique_ptr<KvDesign> MakeSinglePageDesign(const KvDesign::Limits& limits);

// Read runs of one sequence: adjacent pages of one superblock, as an executor reads them in place.
struct RunCounts {
  uint64_t runs = 0, pages = 0;
  uint64_t good_pages = 0;       // in runs of at least kHeartGoodRunBytes
  double squared_run_pages = 0;  // sum over runs: over `pages` it is the mean run a page lies in
  RunCounts& operator+=(const RunCounts& other);
  double good_share() const;      // of bytes
  double mean_run_bytes() const;  // weighted by bytes
};
RunCounts CountRuns(std::span<const PageId> pages);
// The fewest runs that a fresh sequence could have been given when it was given `pages`: out of
// these and of what is still free.
uint64_t FewestRuns(std::span<const PageId> pages, std::vector<uint64_t> free_maps);

struct ChurnRow {
  std::string design;
  uint64_t pool_pages = 0;
  double full_share = 0;  // at the end of a step, mean
  uint64_t joins = 0, forks = 0, endings = 0, grown_tokens = 0, steps = 0;
  uint64_t live_seqs = 0;
  uint64_t copies = 0;
  uint64_t prompt_tokens = 0, found_tokens = 0;
  RunCounts runs;               // of all sequences at the end
  double least_good_share = 1;  // of 20 looks, once the pool was full
  // Of each join, right after it, against ceil(pages / P) + 2.
  uint64_t fresh_within_bound = 0;
  uint32_t fresh_worst_excess = 0;
  double fresh_mean_runs = 0, fresh_mean_bound = 0;
  // Of the first kMaxExamined joins beyond the bound: runs beyond the fewest that were possible.
  // Where prefixes are shared nothing is examined, because a prompt's pages are not chosen then.
  static constexpr uint64_t kMaxExamined = 2000;
  uint64_t examined = 0;
  uint64_t worst_excess_over_fewest = 0;
  // What the script did, as one number: equal for equal scripts.
  uint64_t script_hash = 0;
  TimeSamples call;  // a join, fork, ending or grown token; one sample a twentieth of the script
};
ChurnRow RunChurn(const HeartSizes& sizes, KvDesign& design, const KvDesign::Limits& limits);
KvDesign::Limits ChurnLimits(const HeartSizes& sizes, bool shares_prefixes);

// Every design on the same script, first without and then with shared prefixes.
std::vector<ChurnRow> MeasureChurn(const HeartSizes& sizes);

}  // namespace kvrm::cli
