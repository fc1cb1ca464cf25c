// Texts made from the option table: help, docs/cli.md, the man page, shell completion.
#pragma once

#include <string>

#include "options/option_table.h"

namespace kvrm::cli {

std::string OverviewText();                           // `kvrm help`
std::string CommandText(const CommandSpec& command);  // `kvrm help COMMAND`
std::string MarkdownText();                           // docs/cli.md
std::string ManPageText(const std::string& version);
std::string BashCompletionText();

}  // namespace kvrm::cli
