#include "base/resident_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace kvrm {
namespace {

TEST(ResidentMemory, IsThePagesThatWereTouchedAndNotGivenBack) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t bytes = (uint64_t{64} << 20) + 5 * page;  // more than one call tells
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::madvise(memory, bytes, MADV_NOHUGEPAGE), 0);
  auto* const begin = static_cast<std::byte*>(memory);
  EXPECT_EQ(ResidentBytes(begin, bytes), 0u);
  for (const uint64_t at : {uint64_t{0}, 7 * page, 8 * page, bytes - page})
    begin[at] = std::byte{1};
  EXPECT_EQ(ResidentBytes(begin, bytes), 4 * page);
  EXPECT_EQ(ResidentBytes(begin, page), page);
  ASSERT_EQ(::madvise(begin + 7 * page, 2 * page, MADV_DONTNEED), 0);
  EXPECT_EQ(ResidentBytes(begin, bytes), 2 * page);
  EXPECT_EQ(ResidentBytes(begin, 0), 0u);
  ::munmap(memory, bytes);
}

TEST(ResidentMemory, ThePeakStaysWhenTheMemoryIsGone) {
  constexpr uint64_t kBytes = uint64_t{48} << 20;
  const uint64_t before = PeakResidentBytes();
  ASSERT_GT(before, 0u);
  void* const memory = ::mmap(nullptr, before + kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ::munmap(memory, before + kBytes);
  EXPECT_GE(PeakResidentBytes(), before + kBytes);
  EXPECT_EQ(PeakResidentBytes(getpid()), PeakResidentBytes());
}

}  // namespace
}  // namespace kvrm
