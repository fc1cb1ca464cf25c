// What a figure was taken on: named in every result, so that figures of two machines are never
// compared by accident.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string>

namespace kvrm::cli {

struct Machine {
  std::string cpu;    // as the system names it
  std::string arch;   // "x86_64"
  uint32_t cpus = 0;  // that this process may use
  uint64_t memory_bytes = 0;
  std::string kernel;    // release
  std::string compiler;  // that built this program
};

Machine ThisMachine();
boost::json::object ToJson(const Machine& machine);
// Now, as "2026-08-01T12:00:00Z".
std::string DateUtc();

}  // namespace kvrm::cli
