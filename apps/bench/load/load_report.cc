#include "bench/load/load_report.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "bench/result.h"

namespace kvrm::cli {
namespace {

namespace json = boost::json;

struct Metric {
  const char* name;
  const char* key;
  Distribution RequestFigures::* samples;
};
constexpr Metric kMetrics[] = {
    {"TTFT", "ttft_ms", &RequestFigures::ttft_ms},
    {"gap (ITL)", "itl_ms", &RequestFigures::itl_ms},
    {"longest gap", "longest_gap_ms", &RequestFigures::longest_gap_ms},
    {"TPOT", "tpot_ms", &RequestFigures::tpot_ms},
    {"e2e", "e2e_ms", &RequestFigures::e2e_ms},
    {"wait here", "wait_ms", &RequestFigures::wait_ms},
    {"server's gap", "server_itl_ms", &RequestFigures::server_itl_ms},
};
constexpr std::pair<const char*, uint32_t> kPerMilles[] = {
    {"p50", 500}, {"p90", 900}, {"p99", 990}, {"p99.9", 999}, {"max", 1000}};

// The whole run, then its sources where there are several.
std::vector<const RequestFigures*> Parts(const LoadFigures& figures) {
  std::vector<const RequestFigures*> parts = {&figures.all};
  for (const RequestFigures& source : figures.sources) {
    if (figures.sources.size() > 1) parts.push_back(&source);
  }
  return parts;
}

std::string PercentileTable(const LoadFigures& figures) {
  std::vector<std::vector<std::string>> rows = {{"ms", "source"}};
  for (const auto& [name, per_mille] : kPerMilles) rows[0].push_back(name);
  rows[0].push_back("samples");
  for (const Metric& metric : kMetrics) {
    for (const RequestFigures* part : Parts(figures)) {
      const Distribution& samples = part->*metric.samples;
      if (samples.empty()) continue;
      std::vector<std::string> row = {metric.name, part->name};
      for (const auto& [name, per_mille] : kPerMilles) {
        row.push_back(fmt::format("{:.1f}", samples.PerMille(per_mille)));
      }
      row.push_back(std::to_string(samples.size()));
      rows.push_back(std::move(row));
    }
  }
  return MarkdownTable(rows);
}

std::string Percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "none";
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string ErrorText(const RequestFigures& part) {
  std::string text;
  for (size_t i = 0; i < kNumOutcomes; ++i) {
    const auto outcome = static_cast<Outcome>(i);
    if (!IsError(outcome) || part.outcomes[i] == 0) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", part.outcomes[i], OutcomeName(outcome));
  }
  return text.empty() ? "0" : text;
}

std::string CountTable(const LoadReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"requests", "due", "done", "cancelled", "errors", "good", "any gap over itl-ms"}};
  const double limit_ms = report.workload.objectives.itl_ms;
  for (const RequestFigures* part : Parts(report.figures)) {
    rows.push_back({part->name, std::to_string(part->due),
                    std::to_string(part->outcomes[static_cast<size_t>(Outcome::kDone)]),
                    std::to_string(part->cancelled()), ErrorText(*part),
                    Percent(part->good, part->due - part->cancelled()),
                    limit_ms > 0 ? Percent(part->over_gap, part->with_gaps) : "no objective"});
  }
  return MarkdownTable(rows);
}

std::string ObjectiveText(const Objectives& objectives) {
  std::string text;
  const auto add = [&](const char* name, double ms) {
    if (ms > 0) text += fmt::format("{}{} <= {:g} ms", text.empty() ? "" : ", ", name, ms);
  };
  add("TTFT", objectives.ttft_ms);
  add("every gap", objectives.itl_ms);
  add("TPOT", objectives.tpot_ms);
  add("e2e", objectives.e2e_ms);
  return text.empty() ? "none" : text;
}

// What a reader must know to trust the figures.
std::string Notes(const LoadReport& report) {
  const LoadFigures& figures = report.figures;
  const RequestFigures& all = figures.all;
  std::string text;
  if (report.interrupted) text += "interrupted: a part of the workload was never due\n";
  if (all.warmup_due > 0) {
    text += fmt::format("of the warm-up only gaps behind its end count: {} requests, {} errors\n",
                        all.warmup_due, all.warmup_errors);
  }
  if (all.prompt_tokens > 0) {
    text += fmt::format(
        "prompts: {} tokens asked for ({}), {} by the server's usage, {} of them cached\n",
        all.asked_prompt_tokens,
        report.counted_words ? "words counted by the server's tokenizer" : "one word taken for one",
        all.prompt_tokens, all.cached_tokens);
  }
  if (all.cut_requests > 0) {
    text +=
        fmt::format("cut to a context of {}: {} of requests, {} of tokens\n", report.context_tokens,
                    Percent(all.cut_requests, all.due), Percent(all.cut_tokens, all.wanted_tokens));
  }
  if (report.dropped_turns > 0) {
    text += fmt::format("turns not sent (no room in the context, or due too late): {}\n",
                        report.dropped_turns);
  }
  if (all.text_events > 0) {
    const double per_event =
        static_cast<double>(all.output_tokens) / static_cast<double>(all.text_events);
    text += fmt::format("an event held {:.2f} tokens on average; a gap is between two events\n",
                        per_event);
  }
  std::string others = "an unknown part";
  if (report.others_percent) {
    others = fmt::format("{:.1f} % of the machine{}{}", *report.others_percent,
                         report.server_cpu_percent ? "" : " (a server on it included)",
                         report.noisy() ? ", NOISY" : "");
  }
  text += fmt::format("this client took {:.2f} % of a core", figures.own_cpu_percent);
  if (report.server_cpu_percent) {
    text += fmt::format(", the server {:.1f} %", *report.server_cpu_percent);
  }
  return text + "; others took " + others + "\n";
}

json::object DistributionJson(const Distribution& samples) {
  json::object object{{"samples", samples.size()}};
  if (samples.empty()) return object;
  for (const auto& [name, per_mille] : kPerMilles) object[name] = samples.PerMille(per_mille);
  return object;
}

json::object PartJson(const RequestFigures& part) {
  json::object outcomes;
  for (size_t i = 0; i < kNumOutcomes; ++i) {
    outcomes[OutcomeName(static_cast<Outcome>(i))] = part.outcomes[i];
  }
  json::object object{{"name", part.name},
                      {"due", part.due},
                      {"outcomes", std::move(outcomes)},
                      {"errors", part.errors()},
                      {"good", part.good},
                      {"warmup_due", part.warmup_due},
                      {"warmup_errors", part.warmup_errors},
                      {"requests_with_gaps", part.with_gaps},
                      {"requests_over_gap", part.over_gap},
                      {"output_tokens", part.output_tokens},
                      {"text_events", part.text_events},
                      {"prompt_tokens", part.prompt_tokens},
                      {"asked_prompt_tokens", part.asked_prompt_tokens},
                      {"cached_tokens", part.cached_tokens},
                      {"cut_requests", part.cut_requests},
                      {"cut_tokens", part.cut_tokens}};
  if (const auto share = part.good_share()) object["good_share"] = *share;
  for (const Metric& metric : kMetrics) {
    object[metric.key] = DistributionJson(part.*metric.samples);
  }
  return object;
}

}  // namespace

std::string LoadText(const LoadReport& report) {
  const LoadFigures& figures = report.figures;
  return fmt::format("{} on {} ({}), {} requests due in {:.1f} s\n\n", report.workload.name,
                     report.model, report.url, figures.all.due, figures.window_s) +
         PercentileTable(figures) + "\n" + CountTable(report) +
         fmt::format(
             "\ngood: {}\ngoodput {:.3f} requests/s of {:.3f} answered\noutput {:.1f} tokens/s "
             "while "
             "requests were due, {:.1f} to the last answer ({:.1f} s), {:.1f} in the best second\n",
             ObjectiveText(report.workload.objectives), figures.goodput_per_s,
             figures.requests_per_s, figures.window_tokens_per_s, figures.total_tokens_per_s,
             figures.total_s, figures.peak_tokens_per_s) +
         Notes(report) + report.machine_text + ", " + report.date + "\n";
}

json::object LoadJson(const LoadReport& report) {
  const LoadFigures& figures = report.figures;
  const Objectives& objectives = report.workload.objectives;
  json::array sources;
  for (const RequestFigures& source : figures.sources) sources.push_back(PartJson(source));
  json::object object{{"schema", kResultSchema},
                      {"test", "serve " + report.workload.name},
                      {"command", report.command},
                      {"url", report.url},
                      {"model", report.model},
                      {"context_tokens", report.context_tokens},
                      {"counted_words", report.counted_words},
                      {"objectives_ms",
                       {{"ttft", objectives.ttft_ms},
                        {"itl", objectives.itl_ms},
                        {"tpot", objectives.tpot_ms},
                        {"e2e", objectives.e2e_ms}}},
                      {"window_s", figures.window_s},
                      {"total_s", figures.total_s},
                      {"tokens_per_s",
                       {{"window", figures.window_tokens_per_s},
                        {"total", figures.total_tokens_per_s},
                        {"peak", figures.peak_tokens_per_s}}},
                      {"requests_per_s", figures.requests_per_s},
                      {"goodput_per_s", figures.goodput_per_s},
                      {"all", PartJson(figures.all)},
                      {"sources", std::move(sources)},
                      {"dropped_turns", report.dropped_turns},
                      {"interrupted", report.interrupted},
                      {"own_cpu_percent", figures.own_cpu_percent}};
  if (report.server_cpu_percent) object["server_cpu_percent"] = *report.server_cpu_percent;
  if (report.others_percent) object["others_percent"] = *report.others_percent;
  object["noisy"] = report.noisy();
  object["machine"] = report.machine;
  object["date"] = report.date;
  return object;
}

std::string SampleLine(const RequestRecord& record, const LoadRun& run, const Workload& workload) {
  const auto since = [&](int64_t us) { return us - run.start_us; };
  json::array texts, sent;
  for (const TextEvent& event : record.events) {
    texts.push_back(since(event.arrived_us));
    if (event.sent_us) sent.push_back(*event.sent_us);
  }
  json::object object{{"id", record.id},
                      {"source", workload.sources[record.source].name},
                      {"turn", record.turn},
                      {"counted", record.counted},
                      {"due_us", since(record.intended_us)},
                      {"sent_us", since(record.sent_us)},
                      {"end_us", since(record.end_us)},
                      {"outcome", OutcomeName(record.outcome)},
                      {"asked_prompt_tokens", record.asked_prompt_tokens},
                      {"asked_output_tokens", record.asked_output_tokens},
                      {"cut_tokens", record.cut_tokens},
                      {"texts_us", std::move(texts)}};
  if (!sent.empty()) object["server_sent_us"] = std::move(sent);
  if (record.http_status != 0) object["status"] = record.http_status;
  if (!record.finish_reason.empty()) object["finish_reason"] = record.finish_reason;
  if (!record.detail.empty()) object["detail"] = record.detail;
  if (record.prompt_tokens) object["prompt_tokens"] = *record.prompt_tokens;
  if (record.output_tokens) object["output_tokens"] = *record.output_tokens;
  if (record.cached_tokens) object["cached_tokens"] = *record.cached_tokens;
  return json::serialize(object);
}

}  // namespace kvrm::cli
