#include "random_scripts.h"

#include <algorithm>

namespace kvrm::heart {
namespace {

struct Weight {
  Verb verb;
  uint32_t weight;
};
// Of a step that is open, and between steps.
constexpr Weight kInStep[] = {
    {Verb::kOpen, 10},    {Verb::kClose, 6}, {Verb::kGrow, 36}, {Verb::kReserve, 4},
    {Verb::kAlias, 8},    {Verb::kTrim, 4},  {Verb::kCut, 6},   {Verb::kCold, 4},
    {Verb::kText, 3},     {Verb::kMark, 8},  {Verb::kAdopt, 8}, {Verb::kCommit, 20},
    {Verb::kRollback, 3},
};
constexpr Weight kBetween[] = {
    {Verb::kOpen, 14},  {Verb::kGrow, 18}, {Verb::kAlias, 4},  {Verb::kAdopt, 6}, {Verb::kClose, 6},
    {Verb::kMark, 3},   {Verb::kDone, 24}, {Verb::kIndex, 24}, {Verb::kMatch, 3}, {Verb::kAgain, 2},
    {Verb::kCommit, 4}, {Verb::kClear, 1}, {Verb::kBusy, 6},   {Verb::kIdle, 2},
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint32_t Below(uint32_t bound) {
    state_ += 0x9E37'79B9'7F4A'7C15u;
    uint64_t value = (state_ ^ (state_ >> 30)) * 0xBF58'476D'1CE4'E5B9u;
    value = (value ^ (value >> 27)) * 0x94D0'49BB'1331'11EBu;
    return static_cast<uint32_t>((value ^ (value >> 31)) % bound);
  }

 private:
  uint64_t state_;
};

template <size_t kCount>
Verb AnyVerb(const Weight (&weights)[kCount], Dice& dice) {
  uint32_t sum = 0;
  for (const Weight& each : weights) sum += each.weight;
  uint32_t at = dice.Below(sum);
  for (const Weight& each : weights) {
    if (at < each.weight) return each.verb;
    at -= each.weight;
  }
  return Verb::kCommit;
}

// A register that is (not) open, or any when there is none.
uint32_t AnyRegister(const ScriptModel& model, bool open, Dice& dice) {
  const uint32_t start = dice.Below(kRegisters);
  for (uint32_t i = 0; i < kRegisters; ++i) {
    const uint32_t seq = (start + i) % kRegisters;
    if (model.open[seq] == open) return seq;
  }
  return start;
}

uint32_t AnyEmptyRegister(const ScriptModel& model, Dice& dice) {
  for (int tries = 0; tries < 4; ++tries) {
    const uint32_t seq = AnyRegister(model, /*open=*/true, dice);
    if (model.length[seq] == 0) return seq;
  }
  return AnyRegister(model, /*open=*/true, dice);
}

// Mostly a few tokens (decode), at times a prompt.
uint32_t AnyGrowth(Dice& dice) {
  const uint32_t choice = dice.Below(8);
  if (choice < 4) return 1 + dice.Below(3);
  return choice < 6 ? 1 + dice.Below(40) : 1 + dice.Below(150);
}

}  // namespace

void ScriptModel::Apply(const Command& command) {
  uint32_t& own = length[command.seq];
  switch (command.verb) {
    case Verb::kCommit:
    case Verb::kRollback:
      in_step = marked = false;
      return;
    case Verb::kAgain:
    case Verb::kDone:
    case Verb::kIndex:
    case Verb::kMatch:
    case Verb::kClear:
    case Verb::kBusy:
    case Verb::kIdle:
      return;
    case Verb::kOpen:
      if (!open[command.seq]) own = 0;
      open[command.seq] = true;
      break;
    case Verb::kClose:
      open[command.seq] = false;
      break;
    case Verb::kBack:
      if (marked) open[marked_seq] = true;
      marked = false;
      break;
    case Verb::kGrow:
      own += command.n;
      break;
    case Verb::kAlias:
      if (own == 0) own = std::min(command.n, length[command.other]);
      break;
    case Verb::kAdopt:
      if (own == 0) own = command.m / 2;
      break;
    case Verb::kTrim:
      own = std::min(own, command.n);
      break;
    case Verb::kMark:
      marked = true;
      marked_seq = command.seq;
      break;
    default:
      break;
  }
  in_step = true;
}

Command RandomCommand(const ScriptModel& model, uint64_t seed) {
  Dice dice(seed);
  Command command;
  command.verb = model.in_step ? AnyVerb(kInStep, dice) : AnyVerb(kBetween, dice);
  if (model.marked && dice.Below(6) == 0) command.verb = Verb::kBack;
  command.seq = AnyRegister(model, command.verb != Verb::kOpen, dice);
  const bool gives_up =
      command.verb == Verb::kTrim || command.verb == Verb::kCut || command.verb == Verb::kClose;
  // What is given up under a savepoint comes back; meanwhile others go on.
  if (model.marked && gives_up && dice.Below(2) == 0) command.seq = model.marked_seq;
  const uint32_t own = model.length[command.seq];
  switch (command.verb) {
    case Verb::kOpen:
      command.n = dice.Below(kTexts);
      command.other = dice.Below(8) == 0 ? 1 + dice.Below(kSalts - 1) : 0;
      break;
    case Verb::kGrow:
      command.n = AnyGrowth(dice);
      command.m = dice.Below(2) == 0 ? 0 : dice.Below(200);
      break;
    case Verb::kReserve:
      command.n = dice.Below(450);
      command.m = dice.Below(2) == 0 ? 0 : command.n + dice.Below(100);
      break;
    case Verb::kAlias:
      command.seq = AnyEmptyRegister(model, dice);
      command.other = AnyRegister(model, /*open=*/true, dice);
      command.n = dice.Below(3) == 0 ? kMostNumber : dice.Below(model.length[command.other] + 1);
      break;
    case Verb::kTrim:
      command.n = dice.Below(own + 10);
      break;
    case Verb::kCut:
      command.n = 1 + dice.Below(dice.Below(2) == 0 ? 4 : 40);
      break;
    case Verb::kCold:
      command.other = dice.Below(4);
      command.n = dice.Below(own / 2 + 1);
      command.m = 32 + dice.Below(80);
      break;
    case Verb::kText:
      command.n = dice.Below(kTexts);
      break;
    case Verb::kDone:
      command.n = dice.Below(2) == 0 ? 0 : dice.Below(3);
      break;
    case Verb::kMatch:
    case Verb::kAdopt:
      if (command.verb == Verb::kAdopt) command.seq = AnyEmptyRegister(model, dice);
      command.n = dice.Below(kTexts);
      command.other = dice.Below(8) == 0 ? dice.Below(kSalts) : 0;
      command.m = dice.Below(3) == 0 ? 16 * dice.Below(14) : dice.Below(220);
      break;
    default:
      break;
  }
  if (command.verb >= Verb::kBack && command.verb <= Verb::kDone) command.seq = 0;
  if (command.verb >= Verb::kClear || command.verb == Verb::kMatch) command.seq = 0;
  return command;
}

std::vector<Command> Simpler(const Command& command) {
  std::vector<Command> simpler;
  const auto add = [&](uint32_t Command::* field, uint32_t value) {
    if (command.*field == value || value > command.*field) return;
    simpler.push_back(command);
    simpler.back().*field = value;
  };
  for (uint32_t Command::* field : {&Command::m, &Command::n}) {
    add(field, 0);
    add(field, command.*field / 2);
    add(field, command.*field / 16 * 16);
    if (command.*field > 0) add(field, command.*field - 1);
  }
  if (command.verb != Verb::kAlias) add(&Command::other, 0);
  return simpler;
}

}  // namespace kvrm::heart
