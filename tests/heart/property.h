// Random scripts as a rapidcheck state machine: they shrink to a few lines, and print as a script.
#pragma once

#include <cstdint>
#include <string>

#include "heart_machine.h"

namespace kvrm::heart {

struct PropertyOptions {
  MachineOptions machine;
  uint64_t seed = 1;
  uint64_t operations = 10'000;  // at least so many verbs
  uint32_t script_lines = 250;   // at most
};
struct PropertyResult {
  uint64_t operations = 0;
  PagerCounters counters;  // summed over all scripts
  uint64_t last_seed = 0;  // the one that failed, if one did
  std::string what;        // empty: every script held
  Script script;           // the smallest that failed
};
PropertyResult CheckRandomScripts(uint32_t setup, const PropertyOptions& options);

// Environment variables KVRM_HEART_SEED and KVRM_HEART_OPERATIONS, or what is given.
uint64_t SeedOr(uint64_t seed);
uint64_t OperationsOr(uint64_t operations);

}  // namespace kvrm::heart
