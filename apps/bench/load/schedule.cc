#include "bench/load/schedule.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvrm::cli {
namespace {

// Control tokens and the default system message that a chat template may add to a prompt.
constexpr uint32_t kTemplateTokens = 64;

enum Use : uint64_t { kGaps, kPrefix, kText, kLengths, kBlock };

size_t FirstRow(const Source& source, const Trace& trace) {
  const auto from_us = static_cast<int64_t>(source.from_s * 1e6);
  const auto first = std::find_if(trace.rows.begin(), trace.rows.end(),
                                  [&](const TraceRow& row) { return row.arrival_us >= from_us; });
  return static_cast<size_t>(first - trace.rows.begin());
}

uint64_t Seed(const Workload& workload) { return static_cast<uint64_t>(workload.seed); }

}  // namespace

Schedule::Schedule(const Workload& workload, size_t source_idx, const Trace& trace,
                   uint32_t context_tokens, const PromptWords& words)
    : workload_(workload),
      source_(workload.sources[source_idx]),
      source_idx_(source_idx),
      trace_(trace),
      context_tokens_(context_tokens),
      words_(words),
      first_row_(FirstRow(source_, trace)),
      gaps_({Seed(workload), source_idx, kGaps}) {}

Random Schedule::RandomOf(uint64_t use, uint64_t number, uint64_t turn) const {
  return Random({Seed(workload_), source_idx_, use, number, turn});
}

bool Schedule::FitsContext() const {
  return context_tokens_ == 0 || source_.prefix_tokens + kTemplateTokens + 2 <= context_tokens_;
}

std::optional<int64_t> Schedule::NextArrivalUs() {
  KVRM_CHECK(source_.arrivals != Arrivals::kClosed, "only open sources know their arrivals");
  if (workload_.requests > 0 && static_cast<double>(num_arrived_) >= workload_.requests) {
    return std::nullopt;
  }
  const std::optional<int64_t> offset_us = NextOffsetUs();
  if (!offset_us) return std::nullopt;
  const int64_t arrival_us = static_cast<int64_t>(source_.start_s * 1e6) + *offset_us;
  if (static_cast<double>(arrival_us) >= workload_.duration_s * 1e6) return std::nullopt;
  ++num_arrived_;
  return arrival_us;
}

// Since the source's own start.
std::optional<int64_t> Schedule::NextOffsetUs() {
  if (source_.arrivals == Arrivals::kTrace) {
    const size_t row = first_row_ + num_arrived_;
    if (row >= trace_.rows.size()) return std::nullopt;
    const double since_us = static_cast<double>(trace_.rows[row].arrival_us) - source_.from_s * 1e6;
    return static_cast<int64_t>(since_us / source_.speed);
  }
  if (source_.arrivals == Arrivals::kConstant) {  // by multiplication: no error adds up
    return static_cast<int64_t>(static_cast<double>(num_arrived_) * 1e6 / source_.rate);
  }
  const double gap =
      source_.arrivals == Arrivals::kGamma ? gaps_.Gamma(source_.cv) : gaps_.Exponential();
  offset_s_ += gap / source_.rate;
  return static_cast<int64_t>(offset_s_ * 1e6);
}

std::string Schedule::Prefix(uint64_t number) const {
  const uint64_t group = number % static_cast<uint64_t>(source_.prefix_groups);
  return words_.Text(static_cast<uint32_t>(source_.prefix_tokens), RandomOf(kPrefix, group, 0));
}

// Equal block hashes give equal text, whatever the request: that is what a prefix cache sees.
std::string Schedule::TraceText(const TraceRow& row, uint32_t tokens, Random random) const {
  std::string text;
  for (size_t i = 0; tokens > 0; ++i) {
    const bool known = i < row.blocks.size();
    const uint32_t take = known ? std::min(tokens, kTraceBlockTokens) : tokens;
    if (!text.empty()) text += ' ';
    text += words_.Text(take, known ? RandomOf(kBlock, row.blocks[i], 0) : random);
    tokens -= take;
  }
  return text;
}

std::optional<Turn> Schedule::MakeTurn(uint64_t number, uint32_t turn_idx,
                                       uint32_t history_tokens) const {
  Random random = RandomOf(kLengths, number, turn_idx);
  const TraceRow* row = nullptr;
  if (source_.arrivals == Arrivals::kTrace) row = &trace_.rows[first_row_ + number];
  const auto draw = [&](const LengthRule& rule, uint32_t TraceRow::* field) {
    return rule.kind == LengthRule::Kind::kTrace ? std::max(1u, row->*field) : rule.Draw(random);
  };
  const uint32_t prefix = turn_idx == 0 ? static_cast<uint32_t>(source_.prefix_tokens) : 0;
  uint32_t prompt = draw(source_.prompt_tokens, &TraceRow::prompt_tokens);
  Turn turn;
  turn.output_tokens = draw(source_.output_tokens, &TraceRow::output_tokens);
  if (random.Uniform() < source_.cancel_share) {
    turn.cancel_after = source_.cancel_after.Draw(random);
  }
  if (context_tokens_ > 0) {
    const uint32_t taken = history_tokens + prefix + kTemplateTokens;
    if (taken + 2 > context_tokens_) return std::nullopt;
    // The prompt gives way first, down to half of the room; then the answer.
    const uint32_t room = context_tokens_ - taken, wanted = prompt + turn.output_tokens;
    if (wanted > room) {
      const uint32_t beside_prompt = prompt < room ? room - prompt : 0;
      turn.output_tokens = std::min(turn.output_tokens, std::max(room / 2, beside_prompt));
      prompt = std::min(prompt, room - turn.output_tokens);
      turn.cut_tokens = wanted - prompt - turn.output_tokens;
    }
  }
  const Random text_random = RandomOf(kText, number, turn_idx);
  turn.text = row != nullptr && source_.prompt_tokens.kind == LengthRule::Kind::kTrace
                  ? TraceText(*row, prompt, text_random)
                  : words_.Text(prompt, text_random);
  turn.prompt_tokens = prefix + prompt;
  return turn;
}

}  // namespace kvrm::cli
