#include "bench/footprint.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"

namespace kvrm::cli {
namespace {

const ComparisonRow& MemoryWork() {
  const auto& rows = ComparisonRows();
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [](const ComparisonRow& row) { return row.key == "32x512"; });
  KVRM_CHECK(found != rows.end(),
             "the row whose memory is compared is one of those that are timed");
  return *found;
}

bool Counts(const Contender& contender, const VersusSetting& setting) {
  const auto loss = setting.loss.find(FileType(contender.model));
  return loss == setting.loss.end() || loss->second <= kMostLoss;
}

// The settings of a family that count and whose names say `like`, at the row whose memory is
// compared.
std::vector<Contender> MemoryContenders(const VersusSetting& setting, Family family,
                                        std::string_view like) {
  std::vector<Contender> found;
  for (Contender& rival : RivalContenders(MemoryWork(), setting.places, setting.threads)) {
    const bool is_like = rival.name.find(like) != std::string::npos;
    if (rival.family == family && is_like && Counts(rival, setting)) {
      found.push_back(std::move(rival));
    }
  }
  return found;
}

// A program beside the one that is known.
std::string Sibling(const std::string& program, const char* name) {
  return program.substr(0, program.rfind('/') + 1) + name;
}

Contender Starting(const std::string& name, std::vector<std::string> command, OutputKind kind) {
  Contender contender;
  contender.name = name;
  contender.screening = command;
  contender.command = std::move(command);
  contender.kind = kind;
  return contender;
}

// The servers of every build and file, as they come and without the first run of theirs.
std::vector<Contender> StartingServers(const VersusSetting& setting) {
  std::vector<Contender> servers;
  for (const Contender& bench : MemoryContenders(setting, Family::kLlama, "fa on, KV f16")) {
    const std::string program = Sibling(bench.command[0], "llama-server");
    std::vector<std::string> command = {program, "-m", bench.model};
    const std::string build = bench.name.substr(bench.name.find(" ("));
    const std::string name = FileType(bench.model) + build;
    servers.push_back(Starting(name, command, OutputKind::kLlamaBench));
    command.emplace_back("--no-warmup");
    servers.push_back(Starting(name + ", no warm-up", command, OutputKind::kLlamaBench));
  }
  return servers;
}

std::vector<FootprintPair> ReadyPairs(const VersusSetting& setting) {
  const Contender own =
      Starting("kvrm", {setting.program, "serve", "-m", setting.model}, OutputKind::kKvrm);
  std::vector<FootprintPair> pairs = {
      {FamilyName(Family::kLlama), own, StartingServers(setting), {1, 0, 1.0, 0.5}}};
  if (setting.places.open_vino.empty()) return pairs;
  const std::string driver = Sibling(setting.places.open_vino, "openvino-driver");
  pairs.push_back(
      {FamilyName(Family::kOpenVino),
       own,
       {Starting(FileType(setting.model),
                 {driver, "-m", setting.model, "-t", std::to_string(setting.threads), "--cold"},
                 OutputKind::kOpenVinoBench)},
       {0.2, 0, 0, 0}});
  return pairs;
}

// What may make a setting take less: its name, and the words that are added.
struct Thrift {
  const char* name;
  std::vector<std::string> words;
};
std::vector<Thrift> ThriftsOf(const Contender& rival) {
  if (rival.family == Family::kOpenVino) return {{"growing cache", {"--grow"}}};
  const bool ik = rival.kind == OutputKind::kBatchedTable;
  const Thrift not_mapped = {"not mapped", ik ? std::vector<std::string>{"--no-mmap"}
                                              : std::vector<std::string>{"-lm", "none"}};
  return {not_mapped, {"128 tokens a batch", {"-ub", "128"}}};
}

// The same, each also with what may make it take less.
std::vector<Contender> MemoryRivals(const VersusSetting& setting, Family family,
                                    std::string_view like) {
  std::vector<Contender> rivals;
  for (const Contender& rival : MemoryContenders(setting, family, like)) {
    rivals.push_back(rival);
    for (const Thrift& thrift : ThriftsOf(rival)) {
      Contender other = rival;
      for (std::vector<std::string>* command : {&other.command, &other.screening}) {
        command->insert(command->end(), thrift.words.begin(), thrift.words.end());
      }
      other.name += std::string(", ") + thrift.name;
      rivals.push_back(std::move(other));
    }
  }
  return rivals;
}

std::vector<FootprintPair> MemoryPairs(const VersusSetting& setting) {
  const auto own = OwnContenders(MemoryWork(), setting.program, setting.model, setting.threads);
  const auto own_with = [&](std::string_view kv) {
    return *std::find_if(own.begin(), own.end(),
                         [&](const Contender& one) { return one.name.ends_with(kv); });
  };
  const std::string llama = FamilyName(Family::kLlama);
  std::vector<FootprintPair> pairs = {{llama + ", KV f16",
                                       own_with("f16"),
                                       MemoryRivals(setting, Family::kLlama, "KV f16"),
                                       {0.9, 0, 0, 0}},
                                      {llama + ", KV q8_0",
                                       own_with("int8"),
                                       MemoryRivals(setting, Family::kLlama, "KV q8_0"),
                                       {0.85, 0.75, 0, 0}}};
  if (setting.places.open_vino.empty()) return pairs;
  pairs.push_back({std::string(FamilyName(Family::kOpenVino)) + ", KV int8",
                   own_with("int8"),
                   MemoryRivals(setting, Family::kOpenVino, ""),
                   {0.6, 0.5, 0, 0}});
  return pairs;
}

}  // namespace

const std::vector<FootprintRow>& FootprintRows() {
  static const std::vector<FootprintRow> kRows = {
      {FootprintKind::kReady, "ready", "exec to ready"},
      {FootprintKind::kMemory, "memory", "peak resident memory, 32 streams x 640"},
  };
  return kRows;
}

std::vector<FootprintPair> FootprintPairs(const FootprintRow& row, const VersusSetting& setting) {
  return row.kind == FootprintKind::kReady ? ReadyPairs(setting) : MemoryPairs(setting);
}

const char* FootprintVerdict(const FootprintGoal& goal, double own, double share) {
  const auto within = [](double figure, double limit) { return limit == 0 || figure <= limit; };
  if (!within(share, goal.at_most) || !within(own, goal.own_at_most)) return "MISSED";
  const bool any = goal.goal > 0 || goal.own_goal > 0;
  return any && within(share, goal.goal) && within(own, goal.own_goal) ? "goal" : "met";
}

}  // namespace kvrm::cli
