#include "server/log_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>

namespace kvrm {
namespace {

std::string ReadAll(int fd) {
  std::string all;
  char bytes[65'536];
  for (ssize_t got = 0; (got = read(fd, bytes, sizeof(bytes))) > 0;) {
    all.append(bytes, static_cast<size_t>(got));
  }
  return all;
}

// A supervisor that stops reading must not stop the server.
TEST(LogOutput, APipeThatNobodyReadsLosesLinesAndBlocksNobody) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  LogOutput log(ends[1]);
  uint64_t written = 0;
  while (log.Write(std::string(100, 'x'))) ++written;
  EXPECT_GT(written, 100u);
  EXPECT_FALSE(log.Write("lost"));
  EXPECT_EQ(log.dropped(), 2u);
  EXPECT_EQ(ReadAll(ends[0]).size(), written * 101);
  EXPECT_TRUE(log.Write("after"));
  EXPECT_EQ(ReadAll(ends[0]), "log: 2 lines could not be written and are lost\nafter\n");
  EXPECT_TRUE(log.Write("more"));
  EXPECT_EQ(ReadAll(ends[0]), "more\n");
  close(ends[0]);
  close(ends[1]);
}

TEST(LogOutput, LinesAreCutWhereAPipeWouldBlock) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  LogOutput log(ends[1]);
  EXPECT_TRUE(log.Write(std::string(10'000, 'y')));
  EXPECT_EQ(ReadAll(ends[0]), std::string(LogOutput::kMaxLineBytes - 1, 'y') + "\n");
  close(ends[0]);
  close(ends[1]);
}

TEST(LogOutput, AFullDiskLosesLinesOnly) {
  const int full = open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  LogOutput log(full);
  EXPECT_FALSE(log.Write("a"));
  EXPECT_FALSE(log.Write("b"));
  EXPECT_EQ(log.dropped(), 2u);
  close(full);
}

// The bound on a file's size while it lives; beyond it writes take a part, then none.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    (void)std::signal(SIGXFSZ, signal_);
  }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;

 private:
  void (*signal_)(int);
  rlimit before_{};
};

TEST(LogOutput, ALineOfWhichTheDiskTookAPartIsNotJoinedByTheNext) {
  const std::string path = ::testing::TempDir() + "log-torn-" + std::to_string(getpid());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  LogOutput log(fd, [](std::string_view line) { return "{" + std::string(line) + "}"; });
  {
    const SizeLimit limit(15);
    EXPECT_TRUE(log.Write("whole"));
    EXPECT_FALSE(log.Write("in two parts"));
    EXPECT_FALSE(log.Write("not at all"));
  }
  EXPECT_TRUE(log.Write("next"));
  close(fd);
  std::ifstream file(path);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(all, "whole\nin two pa\n{log: 2 lines could not be written and are lost}\nnext\n");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace kvrm
