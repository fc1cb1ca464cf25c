// What is in memory, as the operating system counts. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvrm {

// Bytes of the OS pages of [begin, begin + bytes) that are resident; 0 where the system does not
// tell. `begin` stands at the beginning of an OS page. One system call for each 64 MiB: about a
// millisecond for each GiB, so for who asks, not for every step.
uint64_t ResidentBytes(const std::byte* begin, uint64_t bytes);

// The most bytes that process `pid` (0: this one) has had resident at once, file pages counted;
// 0 where the system does not tell.
uint64_t PeakResidentBytes(int64_t pid = 0);

}  // namespace kvrm
