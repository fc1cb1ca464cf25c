#include "base/resident_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace kvrm {

uint64_t ResidentBytes(const std::byte* begin, uint64_t bytes) {
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident[16 * 1024];  // an OS page each: bit 0
  uint64_t pages = 0;
  while (bytes > 0) {
    const uint64_t piece = std::min<uint64_t>(bytes, sizeof resident * page_bytes);
    // The call changes nothing; its type is older than const.
    void* const at =
        const_cast<std::byte*>(begin);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    if (::mincore(at, piece, resident) != 0) return 0;
    const uint64_t count = (piece + page_bytes - 1) / page_bytes;
    pages += static_cast<uint64_t>(
        std::count_if(resident, resident + count, [](unsigned char bits) { return bits & 1; }));
    begin += piece;
    bytes -= piece;
  }
  return pages * page_bytes;
}

uint64_t PeakResidentBytes(int64_t pid) {
  std::ifstream status("/proc/" + (pid == 0 ? "self" : std::to_string(pid)) + "/status");
  std::string word;
  uint64_t kib = 0;
  while (status >> word) {
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace kvrm
