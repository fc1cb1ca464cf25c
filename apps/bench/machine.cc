#include "bench/machine.h"

#include <sys/utsname.h>

#include <ctime>
#include <fstream>

#include "engine/loader.h"

namespace kvrm::cli {
namespace {

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

}  // namespace

Machine ThisMachine() {
  Machine machine;
  machine.cpu = CpuName();
  machine.cpus = AllowedCpus();
  machine.memory_bytes = MemoryLimitBytes();
  utsname system{};
  if (uname(&system) == 0) {
    machine.arch = system.machine;
    machine.kernel = system.release;
  }
#if defined(__clang__)
  machine.compiler = "clang " __clang_version__;
#else
  machine.compiler = "g++ " __VERSION__;
#endif
  return machine;
}

boost::json::object ToJson(const Machine& machine) {
  return {{"cpu", machine.cpu},       {"arch", machine.arch},
          {"cpus", machine.cpus},     {"memory_bytes", machine.memory_bytes},
          {"kernel", machine.kernel}, {"compiler", machine.compiler}};
}

std::string DateUtc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts));
}

}  // namespace kvrm::cli
