#include "model/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace kvrm {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The first word of a file as a number; nullopt for "max", absence or anything else.
std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

// The number after `name` in a file of "name number" lines.
std::optional<uint64_t> ReadField(const std::string& path, const std::string& name) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, name.size(), name) != 0) continue;
    const size_t digits = line.find_first_of("0123456789", name.size());
    if (digits == std::string::npos) return std::nullopt;
    uint64_t value = 0;
    for (size_t i = digits; i < line.size() && line[i] >= '0' && line[i] <= '9'; ++i) {
      value = value * 10 + static_cast<uint64_t>(line[i] - '0');
    }
    return value;
  }
  return std::nullopt;
}

struct CgroupFiles {
  std::string limit, usage, stat;
};

uint64_t LeftInCgroup(const CgroupFiles& files) {
  const auto limit = ReadNumber(files.limit);
  const auto usage = ReadNumber(files.usage);
  if (!limit || !usage) return kUnlimited;
  // File cache counts as used but yields under pressure.
  const uint64_t cache = ReadField(files.stat, "inactive_file ").value_or(0) +
                         ReadField(files.stat, "active_file ").value_or(0);
  const uint64_t used = *usage > cache ? *usage - cache : 0;
  return *limit > used ? *limit - used : 0;
}

// This process's folder in the hierarchy whose line in /proc/self/cgroup holds `mark`: "0::" for
// v2, ":memory:" for v1. Empty when there is none.
std::string OwnFolder(const std::string& mark) {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(mark);
    if (at != std::string::npos) return line.substr(at + mark.size());
  }
  return "";
}

// The least over the folder and those above it: each may set a limit. In a container the names
// above may not be visible; then the root folder is the container's own.
uint64_t LeftInHierarchy(const std::string& root, std::string folder, const std::string& limit,
                         const std::string& usage) {
  uint64_t left = kUnlimited;
  for (;;) {
    const std::string at = root + folder + "/memory.";
    left = std::min(left, LeftInCgroup({at + limit, at + usage, at + "stat"}));
    const size_t slash = folder.rfind('/');
    if (slash == std::string::npos) return left;
    folder.resize(slash);
  }
}

}  // namespace

uint64_t AvailableMemoryBytes() {
  uint64_t available = kUnlimited;
  if (const auto kib = ReadField("/proc/meminfo", "MemAvailable:")) available = *kib * 1024;
  const std::string root = "/sys/fs/cgroup";
  const uint64_t v2 = LeftInHierarchy(root, OwnFolder("0::"), "max", "current");
  const uint64_t v1 =
      LeftInHierarchy(root + "/memory", OwnFolder(":memory:"), "limit_in_bytes", "usage_in_bytes");
  return std::min({available, v1, v2});
}

}  // namespace kvrm
