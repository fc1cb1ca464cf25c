// Tables of text, as Markdown. Pure.
#pragma once

#include <string>
#include <vector>

namespace kvrm::cli {

// Columns padded to their widest cell; the first row is the head.
std::string MarkdownTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace kvrm::cli
