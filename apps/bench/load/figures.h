// What a run amounts to: figures made of its records, and of nothing else. Pure.
//
// A record counts unless it was due during the warm-up; its gaps count from the warm-up's end on
// all the same, because a stream may outlast the run. TTFT: from the intended time to the first
// text. Gaps: between two texts of one request, also of one that was cancelled or failed later. E2E
// and TPOT: of answers that came whole. TPOT: first to last text, over the tokens behind the first.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/load/load_run.h"
#include "bench/load/percentiles.h"
#include "bench/load/request_record.h"
#include "bench/load/workload.h"

namespace kvrm::cli {

// Milliseconds; nullopt where the record has none.
std::optional<double> TtftMs(const RequestRecord& record);
std::optional<double> TpotMs(const RequestRecord& record);
// Of the gaps that begin at `from_us` or later.
std::optional<double> LongestGapMs(const RequestRecord& record, int64_t from_us);
double E2eMs(const RequestRecord& record);
// Whole, and every objective met. An answer without a first text is held to E2E alone.
bool IsGood(const RequestRecord& record, const Objectives& objectives);

struct RequestFigures {
  std::string name;  // of the source; "all"
  std::array<uint64_t, kNumOutcomes> outcomes{};
  uint64_t due = 0;
  uint64_t good = 0;
  // Requests with a gap and with one above itl-ms, those of the warm-up among them.
  uint64_t with_gaps = 0, over_gap = 0;
  uint64_t warmup_due = 0, warmup_errors = 0;  // not counted elsewhere

  Distribution ttft_ms, itl_ms, longest_gap_ms, tpot_ms, e2e_ms;
  Distribution wait_ms;        // from the intended time to the sending: this client's own part
  Distribution server_itl_ms;  // between the server's own send stamps, where it gives them

  uint64_t output_tokens = 0, text_events = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0;  // by usage
  uint64_t asked_prompt_tokens = 0;               // of the requests whose usage came
  uint64_t cut_requests = 0, cut_tokens = 0, wanted_tokens = 0;

  uint64_t errors() const;
  uint64_t cancelled() const { return outcomes[static_cast<size_t>(Outcome::kCancelled)]; }
  // Of the requests that were not given up by us. nullopt: there is none.
  std::optional<double> good_share() const;
};

struct LoadFigures {
  RequestFigures all;
  std::vector<RequestFigures> sources;
  double window_s = 0;  // from the warm-up's end while requests were due
  double total_s = 0;   // from the warm-up's end to the last answer
  // Tokens that came in each; the window has no quiet tail in it. 0 where the time is 0.
  double window_tokens_per_s = 0, total_tokens_per_s = 0;
  double peak_tokens_per_s = 0;  // of the equal parts of total_s, each at most a second long
  double requests_per_s = 0;     // answered whole, over total_s
  double goodput_per_s = 0;
  std::vector<double> tokens_by_part;  // tokens/s, one a part of `part_s`
  double part_s = 0;
  double own_cpu_percent = 0;  // of one core
};

LoadFigures FiguresOf(const LoadRun& run, const Workload& workload);

}  // namespace kvrm::cli
