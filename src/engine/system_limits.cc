#include "engine/system_limits.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/loader.h"

namespace kvrm {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// The words of a small file; empty when there is no such file.
std::vector<std::string> ReadWords(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; file >> word;) words.push_back(word);
  return words;
}

// A whole number above 0; "max", "-1", 0 and anything else are no limit.
std::optional<uint64_t> ParseLimit(const std::string& word) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || value == 0) return std::nullopt;
  return value;
}

// The cgroup path of this process for a v1 controller, or for v2 when `controller` is empty.
std::optional<std::string> CgroupPath(const std::string& root, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::stringstream names(line.substr(first + 1, second - first - 1));
    bool found = controller.empty() && second == first + 1;
    for (std::string name; std::getline(names, name, ',');) {
      found |= !controller.empty() && name == controller;
    }
    if (found) return line.substr(second + 1);
  }
  return std::nullopt;
}

// Calls `visit` with the folder of this process's cgroup below `mount` and with each parent's. In a
// container the path may not exist below the mount, which then is the container's own cgroup: the
// walk ends there.
void VisitCgroups(const std::string& mount, std::string path,
                  const std::function<void(const std::string&)>& visit) {
  while (!path.empty() && path != "/") {
    visit(mount + path);
    path.resize(path.rfind('/'));
  }
  visit(mount);
}

void VisitAll(const std::string& root, const char* controller,
              const std::function<void(const std::string&)>& visit) {
  if (const auto path = CgroupPath(root, "")) {
    VisitCgroups(root + "/sys/fs/cgroup", *path, visit);
    VisitCgroups(root + "/sys/fs/cgroup/unified", *path, visit);
  }
  if (const auto path = CgroupPath(root, controller)) {
    VisitCgroups(root + "/sys/fs/cgroup/" + controller, *path, visit);
  }
}

uint64_t PhysicalBytes(const std::string& root) {
  const std::vector<std::string> words = ReadWords(root + "/proc/meminfo");
  const auto name = std::find(words.begin(), words.end(), "MemTotal:");
  if (words.end() - name < 2) return kNoLimit;
  const auto kib = ParseLimit(*(name + 1));
  return kib && *kib <= kNoLimit / 1024 ? *kib * 1024 : kNoLimit;
}

}  // namespace

uint64_t MemoryLimitBytesIn(const std::string& root) {
  uint64_t limit = PhysicalBytes(root);
  VisitAll(root, "memory", [&](const std::string& folder) {
    for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
      const std::vector<std::string> words = ReadWords(folder + name);
      if (!words.empty()) limit = std::min(limit, ParseLimit(words[0]).value_or(kNoLimit));
    }
  });
  return limit;
}

uint32_t CpuQuotaIn(const std::string& root) {
  uint64_t cpus = std::numeric_limits<uint32_t>::max();
  VisitAll(root, "cpu", [&](const std::string& folder) {
    std::vector<std::string> words = ReadWords(folder + "/cpu.max");
    if (words.size() < 2) {
      words = ReadWords(folder + "/cpu.cfs_quota_us");
      for (const std::string& word : ReadWords(folder + "/cpu.cfs_period_us")) {
        words.push_back(word);
      }
    }
    if (words.size() < 2) return;
    const auto quota = ParseLimit(words[0]);
    const auto period = ParseLimit(words[1]);
    if (quota && period) cpus = std::min(cpus, (*quota - 1) / *period + 1);
  });
  return static_cast<uint32_t>(cpus);
}

uint64_t MemoryLimitBytes() { return MemoryLimitBytesIn(""); }

uint32_t AllowedCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // More CPUs than the set has bits: the call fails, and the library's count is the best there is.
  const uint32_t allowed = sched_getaffinity(0, sizeof(set), &set) == 0
                               ? static_cast<uint32_t>(CPU_COUNT(&set))
                               : std::thread::hardware_concurrency();
  return std::max(1u, std::min(allowed, CpuQuotaIn("")));
}

}  // namespace kvrm
