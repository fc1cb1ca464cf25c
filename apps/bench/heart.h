// The parts of `kvrm bench heart`: what pager and frame cost and how they place pages, without a
// model and without kernels. Each part checks its result (pages, lengths, books), so that it cannot
// measure nothing; a wrong result stops the program as any bug does.
//
// docs/heart-bench.md says what each figure means. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/kv_view.h"
#include "bench/heart_timing.h"
#include "pager/pager.h"

namespace kvrm::cli {

inline constexpr uint32_t kHeartPageTokens = 16;
// SmolLM2-135M at fp16: P pages in a superblock, b bytes of a page in one part.
inline constexpr uint32_t kHeartSuperblockPages = 17;
inline constexpr uint64_t kHeartPartPageBytes = 12'288;
inline constexpr uint64_t kHeartGoodRunBytes = 16 * 1024;
inline constexpr PrefixSalt kBenchSalt{.tenant = 1, .model = 7};

// That geometry with pages of one byte: no part of the heart looks into a page, so a pool of a
// million pages costs a megabyte, and 12,288 stands in for the byte where runs are reckoned.
KvGroupGeometry HeartGroup();
// What kv_bytes gives `pages` pages beside the null page.
uint64_t HeartKvBytes(uint64_t pages);

struct HeartSizes {
  std::string name;        // "full", "quick", "checked"
  uint32_t repeats = 0;    // samples of each figure
  uint64_t max_pages = 0;  // a combination that needs more in one pool is skipped
  std::vector<uint32_t> num_seqs, contexts;
  uint32_t verb_seqs = 0;   // sequences that a verb is timed on, in one piece
  uint32_t verb_calls = 0;  // calls of a sample, at least
  std::vector<uint32_t> match_tokens;
  std::vector<uint64_t> match_pools;
  uint64_t churn_operations = 0;  // joins, forks and endings
  uint64_t churn_pages = 0;
  uint32_t churn_max_prompt = 0;
};
// A build whose checks walk the pool (tier 2 and 3) gets sizes that it can bear: its times are not
// those of a release, its results are.
HeartSizes SizesFor(bool quick, int check_tier);

// ---- verbs

struct VerbRow {
  std::string verb;    // "Reserve"
  std::string of;      // "one page of decode growth"
  uint32_t pages = 0;  // that one call changes
  TimeSamples call;
};
std::vector<VerbRow> MeasureVerbs(const HeartSizes& sizes);

// ---- a step of sequences that all decode

struct StepRow {
  uint32_t num_seqs = 0, context = 0;
  uint64_t pool_pages = 0;
  TimeSamples commit, publish;  // a step: edit + commit, edit + commit + publish
};
struct StepGrid {
  struct Skipped {
    uint32_t num_seqs = 0, context = 0;
    uint64_t pages = 0;  // that it would need
  };
  std::vector<StepRow> rows;
  std::vector<Skipped> skipped;
};
StepGrid MeasureSteps(const HeartSizes& sizes);

// Largest over smallest median of `num_seqs`' rows, of edit + commit; nullopt: fewer than two rows.
std::optional<double> GrowthWithContext(const StepGrid& grid, uint32_t num_seqs);

// ---- prefix match

struct MatchRow {
  uint64_t pool_pages = 0;
  uint32_t tokens = 0;
  TimeSamples hit;   // of all tokens
  TimeSamples miss;  // the first page is unknown
};
std::vector<MatchRow> MeasureMatch(const HeartSizes& sizes);

}  // namespace kvrm::cli
