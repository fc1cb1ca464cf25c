#include "property.h"

#include <rapidcheck.h>
#include <rapidcheck/state.h>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <unordered_map>

#include "random_scripts.h"
#include "script_log.h"

namespace kvrm::heart {
namespace {

class VerbCommand final : public rc::state::Command<ScriptModel, HeartMachine> {
 public:
  explicit VerbCommand(const heart::Command& command) : command_(command) {}

  void apply(ScriptModel& model) const override { model.Apply(command_); }
  void run(const ScriptModel& /*model*/, HeartMachine& machine) const override {
    LogCommand(command_);
    if (const auto wrong = machine.Run(command_)) RC_FAIL(ToText(command_) + ": " + *wrong);
  }
  void show(std::ostream& out) const override { out << ToText(command_); }

 private:
  heart::Command command_;
};
using AnyCommand = std::shared_ptr<const VerbCommand::CommandType>;

rc::Shrinkable<AnyCommand> Shrinking(const heart::Command& command) {
  return rc::shrinkable::map(
      rc::shrinkable::shrinkRecur(
          command,
          [](const heart::Command& each) { return rc::seq::fromContainer(Simpler(each)); }),
      [](const heart::Command& each) -> AnyCommand { return std::make_shared<VerbCommand>(each); });
}

rc::Gen<AnyCommand> NextCommand(const ScriptModel& model) {
  return [model](const rc::Random& random, int) {
    return Shrinking(RandomCommand(model, rc::Random(random).next()));
  };
}

// Says nothing: rapidcheck's own listener would print the seed of a configuration that is not used.
class Quiet final : public rc::detail::TestListener {
 public:
  void onTestCaseFinished(const rc::detail::CaseDescription& /*description*/) override {}
  void onShrinkTried(const rc::detail::CaseDescription& /*shrink*/, bool /*accepted*/) override {}
  void onTestFinished(const rc::detail::TestMetadata& /*metadata*/,
                      const rc::detail::TestResult& /*result*/) override {}
};

// The counterexample prints as the lines of a script.
Script ScriptOf(uint32_t setup, const rc::detail::FailureResult& failure) {
  std::string text = "setup " + std::string(Setups()[setup].name) + "\n";
  for (const auto& [type, value] : failure.counterExample) text += value + "\n";
  std::string error;
  return ParseScript(text, &error).value_or(Script{});
}

void Add(const PagerCounters& counters, PagerCounters& sum) {
  constexpr size_t kCounters = sizeof(PagerCounters) / sizeof(uint64_t);
  static_assert(sizeof(PagerCounters) == kCounters * sizeof(uint64_t));
  uint64_t each[kCounters], all[kCounters];
  std::memcpy(each, &counters, sizeof(each));
  std::memcpy(all, &sum, sizeof(all));
  for (size_t i = 0; i < kCounters; ++i) all[i] += each[i];
  std::memcpy(&sum, all, sizeof(all));
}

uint64_t NumberOr(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

}  // namespace

PropertyResult CheckRandomScripts(uint32_t setup, const PropertyOptions& options) {
  PropertyResult result;
  const auto holds = [&] {
    BeginScriptLog(setup);
    HeartMachine machine(Setups()[setup], options.machine);
    rc::state::check(ScriptModel{}, machine, NextCommand);
    const auto wrong = machine.Finish();
    result.operations += machine.operations();
    Add(machine.counters(), result.counters);
    if (wrong) RC_FAIL("at the end: " + *wrong);
  };
  rc::detail::TestParams params;
  params.maxSuccess = 20;
  params.maxSize = static_cast<int>(options.script_lines);
  for (params.seed = options.seed; result.operations < options.operations; ++params.seed) {
    result.last_seed = params.seed;
    Quiet listener;
    const auto outcome =
        rc::detail::checkTestable(holds, rc::detail::TestMetadata{}, params, listener,
                                  std::unordered_map<std::string, rc::detail::Reproduce>{});
    if (outcome.is<rc::detail::SuccessResult>()) continue;
    result.what = "rapidcheck could not run";
    if (outcome.is<rc::detail::FailureResult>()) {
      const auto& failure = outcome.get<rc::detail::FailureResult>();
      result.what = failure.description;
      result.script = ScriptOf(setup, failure);
    }
    break;
  }
  return result;
}

uint64_t SeedOr(uint64_t seed) { return NumberOr("KVRM_HEART_SEED", seed); }
uint64_t OperationsOr(uint64_t operations) { return NumberOr("KVRM_HEART_OPERATIONS", operations); }

}  // namespace kvrm::heart
