#include "bench/load/workload.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "options/option_table.h"

namespace kvrm::cli {
namespace {

constexpr double kMaxTokens = 16'777'216;
constexpr double kMaxSeconds = 1'000'000;

template <class Owner>
struct NumberKey {
  std::string_view name;
  double Owner::* field;
  double min, max;
  bool whole;
};
constexpr NumberKey<Workload> kRunNumbers[] = {
    {"context", &Workload::context, 0, kMaxTokens, true},
    {"duration-s", &Workload::duration_s, 0.001, kMaxSeconds, false},
    {"requests", &Workload::requests, 0, 1e9, true},
    {"warmup-s", &Workload::warmup_s, 0, kMaxSeconds, false},
    {"drain-s", &Workload::drain_s, 0, kMaxSeconds, false},
    {"timeout-s", &Workload::timeout_s, 0.001, kMaxSeconds, false},
    {"seed", &Workload::seed, 0, 9007199254740992.0, true},
    {"max-open", &Workload::max_open, 0, 1e6, true},
    {"temperature", &Workload::temperature, 0, 100, false},
};
constexpr NumberKey<Objectives> kObjectives[] = {
    {"ttft-ms", &Objectives::ttft_ms, 0, 1e9, false},
    {"itl-ms", &Objectives::itl_ms, 0, 1e9, false},
    {"tpot-ms", &Objectives::tpot_ms, 0, 1e9, false},
    {"e2e-ms", &Objectives::e2e_ms, 0, 1e9, false},
};
constexpr NumberKey<Source> kSourceNumbers[] = {
    {"clients", &Source::clients, 1, 100'000, true},
    {"think-s", &Source::think_s, 0, kMaxSeconds, false},
    {"rate", &Source::rate, 1e-6, 1e6, false},
    {"cv", &Source::cv, 0.01, 100, false},
    {"start-s", &Source::start_s, 0, kMaxSeconds, false},
    {"from-s", &Source::from_s, 0, kMaxSeconds, false},
    {"speed", &Source::speed, 1e-6, 1e6, false},
    {"prefix-tokens", &Source::prefix_tokens, 0, kMaxTokens, true},
    {"prefix-groups", &Source::prefix_groups, 1, 1e6, true},
    {"turns", &Source::turns, 1, 1'000, true},
    {"turn-pause-s", &Source::turn_pause_s, 0, kMaxSeconds, false},
    {"cancel-share", &Source::cancel_share, 0, 1, false},
};
struct LengthKey {
  std::string_view name;
  LengthRule Source::* field;
};
constexpr LengthKey kSourceLengths[] = {
    {"prompt-tokens", &Source::prompt_tokens},
    {"output-tokens", &Source::output_tokens},
    {"cancel-after", &Source::cancel_after},
};
constexpr std::pair<std::string_view, Arrivals> kArrivals[] = {
    {"closed", Arrivals::kClosed},     {"poisson", Arrivals::kPoisson}, {"gamma", Arrivals::kGamma},
    {"constant", Arrivals::kConstant}, {"trace", Arrivals::kTrace},
};

Result<double> ParseNumber(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) {
    return InvalidInput("'" + text + "' is no number");
  }
  return value;
}

std::string Plain(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

template <class Owner>
Status SetNumber(const NumberKey<Owner>& key, Owner& owner, const std::string& text) {
  KVRM_ASSIGN_OR_RETURN(const double value, ParseNumber(text));
  if (value < key.min || value > key.max || (key.whole && value != std::floor(value))) {
    return InvalidInput("'" + text + "': takes a " + (key.whole ? "whole " : "") + "number, " +
                        Plain(key.min) + " to " + Plain(key.max));
  }
  owner.*key.field = value;
  return Ok();
}

// nullptr: no key of that name.
template <class Table>
auto Find(const Table& table, std::string_view name) -> decltype(std::data(table)) {
  const auto found = std::find_if(std::begin(table), std::end(table),
                                  [&](const auto& key) { return key.name == name; });
  return found == std::end(table) ? nullptr : &*found;
}

Status SetRunKey(Workload& workload, const std::string& name, const std::string& text) {
  if (const auto* key = Find(kRunNumbers, name)) return SetNumber(*key, workload, text);
  if (const auto* key = Find(kObjectives, name)) return SetNumber(*key, workload.objectives, text);
  if (name == "name") {
    workload.name = text;
    return Ok();
  }
  if (name == "api") {
    workload.chat = text == "chat";
    if (workload.chat || text == "completions") return Ok();
    return InvalidInput("'" + text + "': takes chat or completions");
  }
  if (name == "ignore-eos") {
    workload.ignore_eos = text == "true";
    if (workload.ignore_eos || text == "false") return Ok();
    return InvalidInput("'" + text + "': takes true or false");
  }
  return InvalidInput("is no key of a workload");
}

Status SetSourceKey(Source& source, const std::string& name, const std::string& text) {
  if (const auto* key = Find(kSourceNumbers, name)) return SetNumber(*key, source, text);
  if (const auto* key = Find(kSourceLengths, name)) {
    KVRM_ASSIGN_OR_RETURN(source.*key->field, ParseLengthRule(text));
    return Ok();
  }
  if (name == "trace") {
    source.trace = text;
    return Ok();
  }
  if (name == "arrivals") {
    std::string names;
    for (const auto& [word, arrivals] : kArrivals) {
      if (word == text) {
        source.arrivals = arrivals;
        return Ok();
      }
      names += (names.empty() ? "" : ", ") + std::string(word);
    }
    return InvalidInput("'" + text + "': takes one of " + names);
  }
  return InvalidInput("is no key of a source");
}

Status CheckSource(const Source& source) {
  const bool from_trace = source.arrivals == Arrivals::kTrace;
  if (from_trace && source.trace.empty()) return InvalidInput("arrivals 'trace' need a trace");
  for (const LengthKey& key : kSourceLengths) {
    if ((source.*key.field).kind != LengthRule::Kind::kTrace) continue;
    if (!from_trace || key.name == "cancel-after") {
      return InvalidInput(std::string(key.name) + " 'trace': only with arrivals 'trace'");
    }
  }
  if (from_trace && source.turns > 1) return InvalidInput("turns: a trace's requests have one");
  return Ok();
}

// Applies one `key = value`; `section` "" is the top. Sources are made where their section begins.
Status SetKey(Workload& workload, const std::string& section, const std::string& name,
              const std::string& text) {
  if (section.empty()) return SetRunKey(workload, name, text);
  for (Source& source : workload.sources) {
    if (source.name == section) return SetSourceKey(source, name, text);
  }
  return InvalidInput("no source of that name");
}

Status ApplyOverride(Workload& workload, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return InvalidInput("--set '" + text + "': takes KEY=VALUE");
  const std::string name = text.substr(0, equals);
  const size_t dot = name.rfind('.');
  const std::string section = dot == std::string::npos ? "" : name.substr(0, dot);
  const Status set =
      SetKey(workload, section, dot == std::string::npos ? name : name.substr(dot + 1),
             text.substr(equals + 1));
  return set.ok() ? set : InvalidInput("--set " + name + ": " + set.error().message);
}

}  // namespace

uint32_t LengthRule::Draw(Random& random) const {
  double value = a;
  if (kind == Kind::kUniform) {
    value = static_cast<double>(random.Between(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  } else if (kind == Kind::kLogNormal) {
    value = a * std::exp(b * random.Normal());
  }
  return static_cast<uint32_t>(std::clamp(std::round(value), 1.0, kMaxTokens));
}

Result<LengthRule> ParseLengthRule(const std::string& text) {
  const std::vector<std::string> words = Words(text);
  const Error refused =
      InvalidInput("'" + text +
                   "': takes N, 'uniform LEAST MOST', 'lognormal MEDIAN SIGMA' or "
                   "'trace', tokens 1 to 16777216, SIGMA 0 to 5");
  using Kind = LengthRule::Kind;
  if (words.empty()) return refused;
  if (words.size() == 1 && words[0] == "trace") return LengthRule{Kind::kTrace, 0, 0};
  LengthRule rule;
  size_t first_number = 1;
  if (words[0] == "uniform") {
    rule.kind = Kind::kUniform;
  } else if (words[0] == "lognormal") {
    rule.kind = Kind::kLogNormal;
  } else {
    first_number = 0;
  }
  const size_t numbers = rule.kind == Kind::kFixed ? 1 : 2;
  if (words.size() != first_number + numbers) return refused;
  double values[2] = {0, 0};
  for (size_t i = 0; i < numbers; ++i) {
    const Result<double> value = ParseNumber(words[first_number + i]);
    if (!value.ok()) return refused;
    values[i] = *value;
  }
  rule.a = values[0];
  rule.b = values[1];
  if (rule.a < 1 || rule.a > kMaxTokens) return refused;
  if (rule.kind == Kind::kLogNormal && (rule.b < 0 || rule.b > 5)) return refused;
  if (rule.kind != Kind::kLogNormal && rule.a != std::floor(rule.a)) return refused;
  if (rule.kind == Kind::kUniform &&
      (rule.b < rule.a || rule.b > kMaxTokens || rule.b != std::floor(rule.b))) {
    return refused;
  }
  return rule;
}

Result<Workload> ParseWorkload(const std::string& text, const std::string& path,
                               const std::vector<std::string>& overrides) {
  Workload workload;
  const std::filesystem::path file(path);
  workload.name = file.stem().string();
  workload.dir = file.parent_path().string();
  const std::string in = "workload '" + path + "': ";
  std::istringstream stream(text);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(stream);
  } catch (const CLI::Error& error) {
    return InvalidInput(in + error.what());
  }
  for (const CLI::ConfigItem& item : items) {
    const std::string section = item.parents.empty() ? "" : item.parents[0];
    if (item.parents.size() > 1) {
      return InvalidInput(in + "section '" + section + "." + item.parents[1] +
                          "': sections have one name");
    }
    if (item.name == "++") {  // the reader's mark of a section's beginning
      if (std::any_of(workload.sources.begin(), workload.sources.end(),
                      [&](const Source& source) { return source.name == section; })) {
        return InvalidInput(in + "section '" + section + "' stands there twice");
      }
      workload.sources.emplace_back().name = section;
    }
    if (item.name == "++" || item.name == "--") continue;
    const std::string full = section.empty() ? item.name : section + "." + item.name;
    if (item.inputs.size() != 1) return InvalidInput(in + full + ": takes one value");
    const Status set = SetKey(workload, section, item.name, item.inputs[0]);
    if (!set.ok()) return InvalidInput(in + full + ": " + set.error().message);
  }
  for (const std::string& change : overrides) {
    KVRM_RETURN_IF_ERROR(ApplyOverride(workload, change));
  }
  if (workload.sources.empty())
    return InvalidInput(in + "no source: takes a section [NAME] or more");
  for (const Source& source : workload.sources) {
    const Status checked = CheckSource(source);
    if (!checked.ok()) return InvalidInput(in + source.name + ": " + checked.error().message);
  }
  return workload;
}

}  // namespace kvrm::cli
