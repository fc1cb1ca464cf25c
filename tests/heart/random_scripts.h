// Random commands of the verb language, weighted so that pools fill up, sequences share and end,
// and steps are of some length. Deterministic in `seed`. Test code only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "verb_script.h"

namespace kvrm::heart {

// What a generator has to know of a script so far; the pager may have refused some of it.
struct ScriptModel {
  std::array<bool, kRegisters> open{};
  std::array<uint32_t, kRegisters> length{};
  bool in_step = false;
  bool marked = false;
  uint32_t marked_seq = 0;

  void Apply(const Command& command);
};

Command RandomCommand(const ScriptModel& model, uint64_t seed);
// Simpler commands that may show the same fault.
std::vector<Command> Simpler(const Command& command);

}  // namespace kvrm::heart
