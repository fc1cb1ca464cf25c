// Chat templates of common families by name, for models whose file has none. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace kvrm {

// The template's source; empty = no template of that name.
std::string_view NamedTemplate(std::string_view name);

// "chatml, gemma, ..."
std::string NamedTemplateList();

}  // namespace kvrm
