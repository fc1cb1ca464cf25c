#include "session/tokenizer_source.h"

#include <filesystem>

#include "model/config.h"
#include "model/gguf.h"
#include "options/read_all.h"
#include "session/model_path.h"
#include "text/named_templates.h"
#include "text/tokenizer_json.h"

namespace kvrm::cli {

namespace {

bool IsFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

}  // namespace

Result<TokenizerSpec> TokenizerSpecOf(const OptionValues& values) {
  // A folder that holds a tokenizer alone will do.
  if (IsFolder(values.Text("model"))) return ReadTokenizerFolder(values.Text("model"));
  KVRM_ASSIGN_OR_RETURN(const std::string path, ModelPathOf(values));
  return TokenizerSpecAt(path);
}

Result<TokenizerSpec> TokenizerSpecAt(const std::string& path) {
  if (IsFolder(path)) return ReadTokenizerFolder(path);
  KVRM_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
  return ReadTokenizerSpec(*file);
}

Result<std::string> ChatTemplateSource(const OptionValues& values, const TokenizerSpec& spec) {
  const std::string& wanted = values.Text("chat-template");
  if (wanted.empty()) return spec.chat_template;
  if (const std::string_view named = NamedTemplate(wanted); !named.empty()) {
    return std::string(named);
  }
  std::error_code ignored;
  if (!std::filesystem::exists(wanted, ignored)) {
    return InvalidInput("--chat-template: no file '" + wanted +
                        "', and no template of that name (" + NamedTemplateList() + ")");
  }
  return ReadAll("--chat-template", wanted);
}

}  // namespace kvrm::cli
