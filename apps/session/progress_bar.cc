#include "session/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace kvrm::cli {

std::function<void(double)> ProgressBar(const std::string& label) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [label, drawn = -1](double share) mutable {
    constexpr int kCells = 30;
    const double bounded = std::clamp(share, 0.0, 1.0);
    const int percent = static_cast<int>(bounded * 100);
    if (percent == drawn) return;
    drawn = percent;
    if (bounded >= 1.0) {
      std::fputs("\r\033[K", stderr);
    } else {
      const int filled = static_cast<int>(bounded * kCells);
      std::fprintf(stderr, "\r%s [%s%s] %3d %%", label.c_str(), std::string(filled, '#').c_str(),
                   std::string(kCells - filled, '.').c_str(), percent);
    }
    std::fflush(stderr);
  };
}

}  // namespace kvrm::cli
