#include "base/run_delay.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <thread>

namespace kvrm {
namespace {

pid_t ThreadId() { return static_cast<pid_t>(syscall(SYS_gettid)); }

int OpenSchedstat(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/schedstat";
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

// The beginning of a file of /proc, in one call; "" when it cannot be read.
template <size_t kBytes>
std::string_view ReadStart(int file, char (&buffer)[kBytes]) {
  const ssize_t count = file < 0 ? -1 : ::pread(file, buffer, kBytes, 0);
  return count <= 0 ? std::string_view() : std::string_view(buffer, static_cast<size_t>(count));
}

// The number `index` (from 0) of `text`, numbers set apart by blanks.
std::optional<uint64_t> NumberAt(std::string_view text, uint32_t index) {
  for (;; --index) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    uint64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec != std::errc()) return std::nullopt;
    if (index == 0) return number;
    text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
  }
}

}  // namespace

std::optional<uint64_t> ParseRunDelayNs(std::string_view schedstat) {
  return NumberAt(schedstat, 1);
}

std::optional<uint64_t> ParseStealTicks(std::string_view stat) {
  constexpr std::string_view kName = "cpu ";
  if (!stat.starts_with(kName)) return std::nullopt;
  return NumberAt(stat.substr(kName.size()), 7);
}

RunDelay::RunDelay(WorkerPool& pool) {
  std::vector<pid_t> threads(pool.num_threads());
  pool.Run([](void* ids, uint32_t worker) { static_cast<pid_t*>(ids)[worker] = ThreadId(); },
           threads.data());
  for (size_t worker = 1; worker < threads.size(); ++worker) {
    files_.push_back(OpenSchedstat(threads[worker]));
  }
  stat_file_ = ::open("/proc/stat", O_RDONLY | O_CLOEXEC);
  const uint32_t cpus = std::max(1u, std::thread::hardware_concurrency());
  steal_share_ = std::min(1.0, static_cast<double>(threads.size()) / cpus);
}

RunDelay::~RunDelay() {
  for (const int file : files_) {
    if (file >= 0) ::close(file);
  }
  if (stat_file_ >= 0) ::close(stat_file_);
}

int64_t RunDelay::ReadUs() {
  if (!has_reader_) files_.push_back(OpenSchedstat(ThreadId()));
  has_reader_ = true;
  char text[512];
  uint64_t delay_ns = 0;
  for (const int file : files_) delay_ns += ParseRunDelayNs(ReadStart(file, text)).value_or(0);
  const uint64_t ticks = ParseStealTicks(ReadStart(stat_file_, text)).value_or(0);
  const double us_per_tick = 1e6 / static_cast<double>(std::max(1L, sysconf(_SC_CLK_TCK)));
  return static_cast<int64_t>(delay_ns / 1000) +
         static_cast<int64_t>(static_cast<double>(ticks) * us_per_tick * steal_share_);
}

}  // namespace kvrm
