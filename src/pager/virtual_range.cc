#include "pager/virtual_range.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

// Linux 5.14; older C library headers do not name it.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace kvrm {
namespace {

constexpr uint64_t kHugePageBytes = 2u << 20;
constexpr uint64_t kMaxRangeBytes = uint64_t{1} << 47;  // no user address space is larger

uint64_t OsPageBytes() {
  static const uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

uint64_t RoundDown(uint64_t value, uint64_t unit) { return value / unit * unit; }
uint64_t RoundUp(uint64_t value, uint64_t unit) { return RoundDown(value + unit - 1, unit); }

}  // namespace

Result<VirtualRange> VirtualRange::Reserve(uint64_t bytes, uint64_t unit_bytes) {
  if (bytes > kMaxRangeBytes) {
    return NoRoom("kv_bytes: a virtual range of " + std::to_string(bytes) +
                  " bytes, must be at most " + std::to_string(kMaxRangeBytes));
  }
  const uint64_t mapping_bytes = RoundUp(bytes, OsPageBytes()) + kHugePageBytes;
  void* mapping = mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return NoRoom("kv_bytes: the system refused a virtual range of " +
                  std::to_string(mapping_bytes) + " bytes: " + std::strerror(errno));
  }
  auto* base =
      reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(mapping), kHugePageBytes));
  const bool huge = unit_bytes > 0 && unit_bytes % kHugePageBytes == 0;
  // Refused where the kernel has no huge pages: small ones serve as well, only slower.
  (void)madvise(base, mapping_bytes - kHugePageBytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return VirtualRange(mapping, mapping_bytes, base, bytes);
}

VirtualRange::VirtualRange(VirtualRange&& other) noexcept
    : mapping_(other.mapping_),
      mapping_bytes_(other.mapping_bytes_),
      base_(other.base_),
      bytes_(other.bytes_) {
  other.mapping_ = nullptr;
}

VirtualRange::~VirtualRange() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

void VirtualRange::Populate(uint64_t offset, uint64_t bytes) {
  std::byte* begin = base_ + RoundDown(offset, OsPageBytes());
  std::byte* end = base_ + offset + bytes;
  int error = EAGAIN;
  while (error == EAGAIN || error == EINTR) {
    error = madvise(begin, static_cast<size_t>(end - begin), MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  }
  if (error != EINVAL) return;
  // A kernel before 5.14: one write in each OS page. It writes back what it read, because the
  // first OS page may hold the tail of a live superblock.
  for (std::byte* place = begin; place < end; place += OsPageBytes()) {
    auto* touched = reinterpret_cast<volatile std::byte*>(place);
    *touched = *touched;
  }
}

void VirtualRange::Discard(uint64_t offset, uint64_t bytes) {
  const uint64_t begin = RoundUp(offset, OsPageBytes());
  const uint64_t end = RoundDown(offset + bytes, OsPageBytes());
  if (begin < end) (void)madvise(base_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace kvrm
