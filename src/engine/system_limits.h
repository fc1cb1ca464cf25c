// What this process may use of the machine: memory and CPUs, as cgroups (v2, v1) and the kernel
// say. Reads the system's files; thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace kvrm {

// `root` stands before every path (tests); empty = this system.

// The least of physical memory and the limits of this process's cgroup and its parents.
uint64_t MemoryLimitBytesIn(const std::string& root);
// CPUs' worth of time that the cgroup's quota allows, rounded up; UINT32_MAX without a quota.
uint32_t CpuQuotaIn(const std::string& root);

}  // namespace kvrm
