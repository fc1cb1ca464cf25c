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

std::string OwnCgroup() {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, 3, "0::") == 0) return line.substr(3);
  }
  return "/";
}

}  // namespace

uint64_t AvailableMemoryBytes() {
  uint64_t available = kUnlimited;
  if (const auto kib = ReadField("/proc/meminfo", "MemAvailable:")) available = *kib * 1024;
  const std::string root = "/sys/fs/cgroup";
  for (std::string folder = OwnCgroup();; folder.resize(folder.rfind('/'))) {
    const std::string at = root + folder + "/memory.";
    available = std::min(available, LeftInCgroup({at + "max", at + "current", at + "stat"}));
    if (folder.empty() || folder.rfind('/') == std::string::npos) break;
  }
  const std::string v1 = root + "/memory/memory.";
  return std::min(available,
                  LeftInCgroup({v1 + "limit_in_bytes", v1 + "usage_in_bytes", v1 + "stat"}));
}

}  // namespace kvrm
