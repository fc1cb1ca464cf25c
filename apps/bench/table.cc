#include "bench/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvrm::cli {

std::string MarkdownTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    text += "|";
    for (size_t i = 0; i < rows[r].size(); ++i)
      text += fmt::format(" {:<{}} |", rows[r][i], widths[i]);
    text += "\n";
    if (r > 0) continue;
    text += "|";
    for (size_t width : widths) text += std::string(width + 2, '-') + "|";
    text += "\n";
  }
  return text;
}

}  // namespace kvrm::cli
