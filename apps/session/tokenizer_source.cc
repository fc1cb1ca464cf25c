#include "session/tokenizer_source.h"

#include <filesystem>

#include "model/config.h"
#include "model/gguf.h"
#include "options/read_all.h"
#include "session/model_path.h"
#include "text/named_templates.h"
#include "text/tokenizer_json.h"

namespace kvrm::cli {

Result<TokenizerSpec> TokenizerSpecOf(const OptionValues& values) {
  const std::string& name = values.Text("model");
  std::error_code error;
  if (std::filesystem::is_directory(name, error)) return ReadTokenizerFolder(name);
  KVRM_ASSIGN_OR_RETURN(const std::string path, FindModel(name, ModelsDir()));
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
