#include "bench/versus_run.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "bench/ceilings.h"
#include "bench/machine.h"
#include "bench/quiet_gate.h"
#include "bench/result.h"
#include "bench/statistics.h"
#include "bench/subprocess.h"

namespace kvrm::cli {
namespace {

namespace json = boost::json;

Status RunOnce(Measured& measured, const std::vector<std::string>& command) {
  KVRM_ASSIGN_OR_RETURN(measured.last_output, RunProgram(command));
  const auto rate = ParseTokensPerSecond(measured.contender.kind, measured.last_output);
  if (!rate.ok()) {
    return InvalidInput("'" + CommandLine(command) + "': " + rate.error().message);
  }
  measured.samples.push_back(*rate);
  std::fprintf(stderr, "  %-32s %9.1f t/s\n", measured.contender.name.c_str(), *rate);
  return Ok();
}

std::vector<Measured> ScreenRow(const std::vector<Contender>& contenders, RowResult& result) {
  std::vector<Measured> screened = Screen(contenders, RunOnce);
  for (const Measured& one : screened) {
    result.screened.emplace_back(one.contender.name, one.samples[0]);
  }
  return screened;
}

class Screening {
 public:
  Screening(const VersusSetting& setting, RowResult& result) : setting_(setting), result_(result) {}

  // The family's finalists, without samples. Empty: nothing of it ran.
  FamilyResult Run(Family family, const std::vector<Contender>& contenders) {
    FamilyResult found{.family = family};
    std::vector<Contender> of_family;
    for (const Contender& contender : contenders) {
      if (contender.family == family) of_family.push_back(contender);
    }
    std::vector<Measured> counted;
    for (Measured& one : ScreenRow(of_family, result_)) {
      if (Counts(one.contender)) {
        counted.push_back(std::move(one));
      } else if (one.median() > found.uncounted_tokens_per_s) {
        found.uncounted = one.contender.name;
        found.uncounted_tokens_per_s = one.median();
      }
    }
    SortByMedian(Best::kMost, counted);
    for (size_t i = kFinalists; i < counted.size(); ++i) {
      found.reserves.push_back({counted[i].contender, {}, {}});
    }
    KeepFinalists(Best::kMost, counted);
    TryOneThread(counted);
    for (Measured& one : counted) {
      one.samples.clear();
      found.finalists.push_back(std::move(one));
    }
    return found;
  }

 private:
  bool Counts(const Contender& contender) const {
    const auto loss = setting_.loss.find(FileType(contender.model));
    return loss == setting_.loss.end() || loss->second <= kMostLoss;
  }

  // Of the fastest settings, whether they run faster alone; all settings twice would take too long.
  void TryOneThread(std::vector<Measured>& counted) {
    if (setting_.threads == 1) return;
    std::vector<Contender> alone;
    for (const Measured& one : counted) alone.push_back(WithThreads(one.contender, 1));
    for (Measured& one : ScreenRow(alone, result_)) counted.push_back(std::move(one));
    KeepFinalists(Best::kMost, counted);
  }

  const VersusSetting& setting_;
  RowResult& result_;
};

// The settings of another row's finalists.
FamilyResult TakeOver(Family family, const std::vector<Contender>& contenders,
                      const std::vector<std::string>& names) {
  FamilyResult found{.family = family};
  for (const std::string& name : names) {
    for (const Contender& contender : contenders) {
      if (contender.name == name) found.finalists.push_back({contender, {}, {}});
      const Contender alone = WithThreads(contender, 1);
      if (alone.name == name) found.finalists.push_back({alone, {}, {}});
    }
  }
  return found;
}

// Of a step, reckoned by the run with keys and values in f16.
double F16KvBytes(const RowResult& result) {
  for (const Measured& own : result.own) {
    if (!own.contender.name.ends_with("f16")) continue;
    const auto output = json::parse(own.last_output).as_object();
    if (const auto* floor = output.if_contains("floor")) {
      return floor->at("kv_bytes").to_number<double>();
    }
  }
  return 0;
}

// The peer's own: the bytes of its file once and of its keys and values (as many as ours, in its
// format), over the bandwidth at that working set; or our operations at the peak of its arithmetic.
std::optional<FloorShare> PeerFloor(const RowResult& result, const Measured& peer,
                                    uint32_t threads) {
  const auto output = json::parse(result.own[0].last_output).as_object();
  const auto* own = output.if_contains("floor");
  if (own == nullptr) return std::nullopt;
  FloorShare floor;
  if (result.row.prefill) {
    floor.ms = own->at("ms").to_number<double>();
    if (FileType(peer.contender.model) == "F16") {
      floor.ms = 1e3 * own->at("operations").to_number<double>() /
                 MeasureArithmeticPeak(threads).float_ops_per_s;
    }
    floor.share = floor.ms * peer.median() / (1e3 * result.row.tokens);
    return floor;
  }
  std::error_code error;
  const uint64_t weight_bytes = std::filesystem::file_size(peer.contender.model, error);
  if (error) return std::nullopt;
  const double kv_bytes = F16KvBytes(result) * (peer.contender.kv_q8_0 ? 34.0 / 64.0 : 1.0);
  const uint64_t bytes = weight_bytes + static_cast<uint64_t>(kv_bytes);
  floor.ms = 1e3 * static_cast<double>(bytes) / MeasureReadBandwidth(bytes, threads);
  floor.share = floor.ms * peer.median() / (1e3 * result.row.num_seqs);
  return floor;
}

// Screening is a look: a setting may fail in a round that did not fail there.
void RunFinalists(FamilyResult& family) {
  std::vector<Measured> ran;
  std::vector<Measured>& waiting = family.finalists;
  while (!waiting.empty()) {
    Measured one = std::move(waiting.front());
    waiting.erase(waiting.begin());
    const Status done = RunOnce(one, one.contender.command);
    if (done.ok()) {
      ran.push_back(std::move(one));
      continue;
    }
    std::fprintf(stderr, "  left out: %s\n", done.error().message.c_str());
    if (family.reserves.empty()) continue;
    waiting.push_back(std::move(family.reserves.front()));
    family.reserves.erase(family.reserves.begin());
  }
  family.finalists = std::move(ran);
}

Status RunRounds(const VersusSetting& setting, RowResult& result) {
  const QuietGate gate;
  for (int64_t round = 0; round < setting.rounds; ++round) {
    std::fprintf(stderr, "%s: round %s of %s\n", result.row.name.c_str(),
                 std::to_string(round + 1).c_str(), std::to_string(setting.rounds).c_str());
    for (Measured& own : result.own) {
      KVRM_RETURN_IF_ERROR(RunOnce(own, own.contender.command));
    }
    for (FamilyResult& family : result.families) {
      RunFinalists(family);
    }
  }
  result.others_percent = gate.OthersPercent();
  SortByMedian(Best::kMost, result.own);
  std::erase_if(result.families, [](const FamilyResult& f) { return f.finalists.empty(); });
  for (FamilyResult& family : result.families) {
    SortByMedian(Best::kMost, family.finalists);
    if (family.family != Family::kLlama) continue;  // what the others read is not known
    family.floor = PeerFloor(result, family.finalists[0], setting.threads);
  }
  return Ok();
}

json::object MeasuredJson(const Measured& measured) {
  return SettingJson(measured.contender, measured.samples);
}

json::object FamilyJson(const RowResult& result, const FamilyResult& family) {
  const RowGoal& goal = result.row.GoalOf(family.family);
  json::object object{{"family", FamilyName(family.family)},
                      {"ratio", result.own[0].median() / family.finalists[0].median()},
                      {"at_least", goal.at_least},
                      {"goal", goal.goal},
                      {"best", MeasuredJson(family.finalists[0])}};
  if (family.floor) object["floor"] = {{"ms", family.floor->ms}, {"share", family.floor->share}};
  if (!family.uncounted.empty()) {
    object["not_counted"] = {{"setting", family.uncounted},
                             {"tokens_per_s", family.uncounted_tokens_per_s}};
  }
  return object;
}

}  // namespace

json::object SettingJson(const Contender& contender, const std::vector<double>& samples) {
  return {{"setting", contender.name},
          {"command", CommandLine(contender.command)},
          {"median", Summarize(samples).median},
          {"samples", json::array(samples.begin(), samples.end())}};
}

double Measured::median() const { return Summarize(samples).median; }

void SortByMedian(Best best, std::vector<Measured>& measured) {
  std::sort(measured.begin(), measured.end(), [best](const Measured& a, const Measured& b) {
    return best == Best::kMost ? a.median() > b.median() : a.median() < b.median();
  });
}

std::vector<Measured> Screen(const std::vector<Contender>& contenders, const RunSetting& run) {
  std::vector<Measured> screened;
  for (const Contender& contender : contenders) {
    Measured one{contender, {}, {}};
    if (const Status ran = run(one, contender.screening); !ran.ok()) {
      std::fprintf(stderr, "  left out: %s\n", ran.error().message.c_str());
      continue;
    }
    screened.push_back(std::move(one));
  }
  return screened;
}

void KeepFinalists(Best best, std::vector<Measured>& screened) {
  SortByMedian(best, screened);
  screened.resize(std::min(screened.size(), kFinalists));
}

Result<RowResult> RunRow(const ComparisonRow& row, const VersusSetting& setting,
                         Finalists& finalists) {
  RowResult result;
  result.row = row;
  for (Contender& own : OwnContenders(row, setting.program, setting.model, setting.threads)) {
    result.own.push_back({std::move(own), {}, {}});
  }
  const auto contenders = RivalContenders(row, setting.places, setting.threads);
  for (const Family family : kFamilies) {
    const auto known = finalists.find({row.screened_as, family});
    FamilyResult found;
    if (known != finalists.end()) {
      found = TakeOver(family, contenders, known->second);
    } else {
      std::fprintf(stderr, "%s: screening %s\n", row.name.c_str(), FamilyName(family));
      found = Screening(setting, result).Run(family, contenders);
    }
    auto& names = finalists[{row.key, family}];
    names.clear();
    for (const Measured& one : found.finalists) names.push_back(one.contender.name);
    if (!found.finalists.empty()) result.families.push_back(std::move(found));
  }
  if (result.families.empty() || result.families[0].family != Family::kLlama) {
    return Unavailable("no setting of the " + std::string(FamilyName(Family::kLlama)) +
                       " ran for row '" + row.name + "'");
  }
  KVRM_RETURN_IF_ERROR(RunRounds(setting, result));
  return result;
}

json::object RowJson(const RowResult& result, double max_others_percent) {
  json::object screened;
  for (const auto& [name, rate] : result.screened) screened[name] = rate;
  json::array own, families;
  for (const Measured& one : result.own) own.push_back(MeasuredJson(one));
  for (const FamilyResult& family : result.families) families.push_back(FamilyJson(result, family));
  json::object row{{"key", result.row.key},
                   {"row", result.row.name},
                   {"kvrm", MeasuredJson(result.own[0])},
                   {"kvrm_settings", std::move(own)},
                   {"kvrm_last", json::parse(result.own[0].last_output)},
                   {"families", std::move(families)},
                   {"screened_tokens_per_s", std::move(screened)},
                   {"machine", ToJson(ThisMachine())},
                   {"date", DateUtc()}};
  if (result.others_percent) {
    row["others_percent"] = *result.others_percent;
    row["noisy"] = *result.others_percent > max_others_percent;
  }
  return row;
}

}  // namespace kvrm::cli
