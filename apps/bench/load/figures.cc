#include "bench/load/figures.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kvrm::cli {
namespace {

double Ms(int64_t us) { return static_cast<double>(us) / 1000; }

// Gathers what distributions are made of, until all records are seen.
class Gatherer {
 public:
  Gatherer(std::string name, const Objectives& objectives, int64_t counted_from_us)
      : objectives_(objectives), counted_from_us_(counted_from_us) {
    figures_.name = std::move(name);
  }

  void Add(const RequestRecord& record) {
    AddGaps(record);
    if (!record.counted) {
      ++figures_.warmup_due;
      if (IsError(record.outcome)) ++figures_.warmup_errors;
      return;
    }
    ++figures_.due;
    ++figures_.outcomes[static_cast<size_t>(record.outcome)];
    if (IsGood(record, objectives_)) ++figures_.good;
    AddTimes(record);
    AddTokens(record);
  }

  RequestFigures Take() {
    figures_.ttft_ms = Distribution(std::move(ttft_));
    figures_.itl_ms = Distribution(std::move(itl_));
    figures_.longest_gap_ms = Distribution(std::move(longest_));
    figures_.tpot_ms = Distribution(std::move(tpot_));
    figures_.e2e_ms = Distribution(std::move(e2e_));
    figures_.wait_ms = Distribution(std::move(wait_));
    figures_.server_itl_ms = Distribution(std::move(server_itl_));
    return std::move(figures_);
  }

 private:
  void AddGaps(const RequestRecord& record) {
    for (size_t i = 1; i < record.events.size(); ++i) {
      const TextEvent &before = record.events[i - 1], &event = record.events[i];
      if (before.arrived_us < counted_from_us_) continue;
      itl_.push_back(Ms(event.arrived_us - before.arrived_us));
      if (event.sent_us && before.sent_us) {
        server_itl_.push_back(Ms(*event.sent_us - *before.sent_us));
      }
    }
    const auto longest = LongestGapMs(record, counted_from_us_);
    if (!longest) return;
    longest_.push_back(*longest);
    ++figures_.with_gaps;
    if (objectives_.itl_ms > 0 && *longest > objectives_.itl_ms) ++figures_.over_gap;
  }

  void AddTimes(const RequestRecord& record) {
    wait_.push_back(Ms(record.sent_us - record.intended_us));
    if (const auto ttft = TtftMs(record)) ttft_.push_back(*ttft);
    if (const auto tpot = TpotMs(record)) tpot_.push_back(*tpot);
    if (record.outcome == Outcome::kDone) e2e_.push_back(E2eMs(record));
  }

  void AddTokens(const RequestRecord& record) {
    figures_.output_tokens += record.tokens();
    figures_.text_events += record.events.size();
    if (record.prompt_tokens) {
      figures_.prompt_tokens += *record.prompt_tokens;
      figures_.asked_prompt_tokens += record.asked_prompt_tokens;
    }
    figures_.cached_tokens += record.cached_tokens.value_or(0);
    if (record.cut_tokens > 0) ++figures_.cut_requests;
    figures_.cut_tokens += record.cut_tokens;
    figures_.wanted_tokens +=
        uint64_t{record.asked_prompt_tokens} + record.asked_output_tokens + record.cut_tokens;
  }

  const Objectives objectives_;
  const int64_t counted_from_us_;
  RequestFigures figures_;
  std::vector<double> ttft_, itl_, longest_, tpot_, e2e_, wait_, server_itl_;
};

// Tokens/s of each of the equal parts of [counted_from, end]; an event stands for its share of its
// request's tokens.
void FillTokenRates(const LoadRun& run, LoadFigures& figures) {
  const auto num_parts = static_cast<size_t>(std::max(1.0, std::ceil(figures.total_s)));
  figures.part_s = figures.total_s / static_cast<double>(num_parts);
  figures.tokens_by_part.assign(num_parts, 0);
  double in_window = 0, in_total = 0;
  for (const RequestRecord& record : run.records) {
    if (record.events.empty()) continue;
    const double tokens =
        static_cast<double>(record.tokens()) / static_cast<double>(record.events.size());
    for (const TextEvent& event : record.events) {
      if (event.arrived_us < run.counted_from_us) continue;
      const double at_s = static_cast<double>(event.arrived_us - run.counted_from_us) / 1e6;
      const auto part = static_cast<size_t>(at_s / figures.part_s);
      figures.tokens_by_part[std::min(part, num_parts - 1)] += tokens / figures.part_s;
      in_total += tokens;
      if (event.arrived_us < run.arrivals_end_us) in_window += tokens;
    }
  }
  figures.total_tokens_per_s = in_total / figures.total_s;
  if (figures.window_s > 0) figures.window_tokens_per_s = in_window / figures.window_s;
  figures.peak_tokens_per_s =
      *std::max_element(figures.tokens_by_part.begin(), figures.tokens_by_part.end());
}

}  // namespace

std::optional<double> TtftMs(const RequestRecord& record) {
  if (record.events.empty()) return std::nullopt;
  return Ms(record.events.front().arrived_us - record.intended_us);
}

std::optional<double> TpotMs(const RequestRecord& record) {
  if (record.outcome != Outcome::kDone || record.events.size() < 2 || record.tokens() < 2) {
    return std::nullopt;
  }
  return Ms(record.events.back().arrived_us - record.events.front().arrived_us) /
         (record.tokens() - 1);
}

std::optional<double> LongestGapMs(const RequestRecord& record, int64_t from_us) {
  std::optional<int64_t> longest_us;
  for (size_t i = 1; i < record.events.size(); ++i) {
    const int64_t before_us = record.events[i - 1].arrived_us;
    if (before_us < from_us) continue;
    longest_us = std::max(longest_us.value_or(0), record.events[i].arrived_us - before_us);
  }
  if (!longest_us) return std::nullopt;
  return Ms(*longest_us);
}

double E2eMs(const RequestRecord& record) { return Ms(record.end_us - record.intended_us); }

bool IsGood(const RequestRecord& record, const Objectives& objectives) {
  if (record.outcome != Outcome::kDone) return false;
  const auto within = [](std::optional<double> ms, double limit) {
    return limit == 0 || !ms || *ms <= limit;
  };
  return within(TtftMs(record), objectives.ttft_ms) &&
         within(LongestGapMs(record, record.intended_us), objectives.itl_ms) &&
         within(TpotMs(record), objectives.tpot_ms) && within(E2eMs(record), objectives.e2e_ms);
}

uint64_t RequestFigures::errors() const {
  uint64_t count = 0;
  for (size_t i = 0; i < kNumOutcomes; ++i) {
    if (IsError(static_cast<Outcome>(i))) count += outcomes[i];
  }
  return count;
}

std::optional<double> RequestFigures::good_share() const {
  const uint64_t held = due - cancelled();
  if (held == 0) return std::nullopt;
  return static_cast<double>(good) / static_cast<double>(held);
}

LoadFigures FiguresOf(const LoadRun& run, const Workload& workload) {
  Gatherer all("all", workload.objectives, run.counted_from_us);
  std::vector<Gatherer> sources;
  for (const Source& source : workload.sources) {
    sources.emplace_back(source.name, workload.objectives, run.counted_from_us);
  }
  for (const RequestRecord& record : run.records) {
    all.Add(record);
    sources[record.source].Add(record);
  }
  LoadFigures figures;
  figures.all = all.Take();
  for (Gatherer& source : sources) figures.sources.push_back(source.Take());
  const auto seconds = [](int64_t us) {
    return static_cast<double>(std::max<int64_t>(us, 0)) / 1e6;
  };
  figures.window_s = seconds(run.arrivals_end_us - run.counted_from_us);
  figures.total_s = seconds(run.end_us - run.counted_from_us);
  const double run_s = seconds(run.end_us - run.start_us);
  if (run_s > 0) figures.own_cpu_percent = 100 * run.own_cpu_s / run_s;
  if (figures.total_s <= 0) return figures;
  FillTokenRates(run, figures);
  const uint64_t done = figures.all.outcomes[static_cast<size_t>(Outcome::kDone)];
  figures.requests_per_s = static_cast<double>(done) / figures.total_s;
  figures.goodput_per_s = static_cast<double>(figures.all.good) / figures.total_s;
  return figures;
}

}  // namespace kvrm::cli
