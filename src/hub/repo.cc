#include "hub/repo.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cctype>
#include <set>

#include "model/gguf.h"
#include "model/gguf_parts.h"
#include "model/safetensors_index.h"

namespace kvrm {
namespace {

namespace json = boost::json;

constexpr size_t kMaxNameBytes = 96, kMaxPathBytes = 1024, kMaxRevisionBytes = 200;
constexpr size_t kCommitDigits = 40;
constexpr std::string_view kGgufEnding = ".gguf";
constexpr std::string_view kDefaultQuant = "Q4_K_M";

bool IsAlnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

std::string Upper(std::string_view text) {
  std::string upper(text);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

bool IsName(std::string_view text) {
  const bool dots = text.find_first_not_of('.') == std::string_view::npos;
  return !dots && text.size() <= kMaxNameBytes && std::all_of(text.begin(), text.end(), [](char c) {
    return IsAlnum(c) || c == '-' || c == '_' || c == '.';
  });
}

bool IsModelFile(const std::string& path) {
  const std::string upper = Upper(path);
  return upper.ends_with(".GGUF") && upper.find("MMPROJ") == std::string::npos;
}

// Where a word ends that a quant may end.
bool EndsAt(std::string_view text, size_t at) {
  return at == text.size() || text[at] == '.' || text[at] == '-' || text[at] == '/';
}

bool HasQuant(const std::string& path, const std::string& quant) {
  const std::string text = Upper(path), wanted = Upper(quant);
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) {
    if ((at == 0 || !IsAlnum(text[at - 1])) && EndsAt(text, at + wanted.size())) return true;
  }
  return false;
}

// "Q4_K_M", "IQ2_XXS", "TQ1_0", "MXFP4_MOE", "BF16", "F32": what upper-case words look like that
// name types.
bool NamesTypes(std::string_view word) {
  if (word == "F16" || word == "F32" || word == "BF16" || word.starts_with("MXFP4")) return true;
  if (word.starts_with("IQ") || word.starts_with("TQ")) word.remove_prefix(1);
  return word.size() >= 4 && word[0] == 'Q' && std::isdigit(static_cast<unsigned char>(word[1])) &&
         word[2] == '_';
}

// A part other than the first is no model of its own.
bool IsFirstPart(const std::string& path) {
  const auto part = ReadGgufPartName(path);
  return !part || part->part == 1;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + PrintableName(word);
  return text;
}

// What may stand behind the colon, each once, in order of the files.
std::vector<std::string> Choices(const std::vector<std::string>& models) {
  std::vector<std::string> choices;
  for (const std::string& model : models) {
    const std::string quant = QuantOf(model);
    const std::string choice = quant.empty() ? model : quant;
    if (std::find(choices.begin(), choices.end(), choice) == choices.end()) {
      choices.push_back(choice);
    }
  }
  return choices;
}

Result<ModelFiles> WithParts(const std::vector<std::string>& files, const std::string& first) {
  ModelFiles result;
  const auto name = ReadGgufPartName(first);
  const uint64_t count = name ? name->count : 1;
  for (uint64_t part = 1; part <= count; ++part) {
    result.files.push_back(name ? name->stem + GgufPartEnding(part, count) : first);
    if (std::find(files.begin(), files.end(), result.files.back()) == files.end()) {
      return NotFound("part '" + PrintableName(result.files.back()) + "' is missing");
    }
  }
  return result;
}

Result<ModelFiles> ChooseFolder(const std::vector<std::string>& files) {
  const auto has = [&](std::string_view name) {
    return std::find(files.begin(), files.end(), name) != files.end();
  };
  const bool indexed = has(kSafetensorsIndex);
  if (!has("config.json") || !(indexed || has(kSafetensorsFile))) {
    return NotFound("holds neither GGUF files nor config.json with " +
                    std::string(kSafetensorsFile));
  }
  ModelFiles result{.is_folder = true};
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "chat_template.jinja"}) {
    if (has(name)) result.files.push_back(name);
  }
  result.files.push_back(indexed ? kSafetensorsIndex : kSafetensorsFile);
  return result;
}

}  // namespace

Result<RepoSpec> ParseRepoSpec(std::string_view text) {
  const std::string rule = "'" + PrintableName(text) + "': takes ORG/REPO[@REVISION][:QUANT]";
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const size_t at = name.find('@');
  const std::string_view repo = name.substr(0, at);
  const size_t slash = repo.find('/');
  if (slash == std::string_view::npos) return InvalidInput(rule);
  for (const std::string_view part : {repo.substr(0, slash), repo.substr(slash + 1)}) {
    // Two dashes stand for the slash in names of cache folders.
    if (!IsName(part) || part.find("--") != std::string_view::npos) return InvalidInput(rule);
  }
  RepoSpec spec{.repo = std::string(repo)};
  if (at != std::string_view::npos) {
    spec.revision = name.substr(at + 1);
    if (!IsRevision(spec.revision)) return InvalidInput(rule);
  }
  if (colon == std::string_view::npos) return spec;
  spec.quant = text.substr(colon + 1);
  if (spec.quant.empty() || !IsSafePath(spec.quant)) return InvalidInput(rule);
  return spec;
}

bool IsRevision(std::string_view text) {
  return text.size() <= kMaxRevisionBytes && IsSafePath(text) &&
         text.find_first_of(" ~^?*[@") == std::string_view::npos;
}

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes) return false;
  const bool plain = std::none_of(path.begin(), path.end(), [](char c) {
    return c == '\\' || c == ':' || c == '\x7f' || (c >= 0 && c < ' ');
  });
  if (!plain) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    if (name.empty() || name == "." || name == "..") return false;
    begin = end + 1;
  }
  return true;
}

Result<RepoListing> ParseRepoListing(std::string_view text) {
  json::error_code error;
  const json::value answer = json::parse({text.data(), text.size()}, error);
  if (error || !answer.is_object())
    return InvalidInput("the hub's list of files is no JSON object");
  const json::object& root = answer.get_object();
  RepoListing listing;
  if (const json::value* sha = root.if_contains("sha"); sha != nullptr && sha->is_string()) {
    listing.commit = sha->get_string();
  }
  if (!IsCommit(listing.commit)) {
    return InvalidInput("the hub's list of files has sha '" + PrintableName(listing.commit) +
                        "', must be 40 hexadecimal digits");
  }
  const json::value* siblings = root.if_contains("siblings");
  if (siblings == nullptr || !siblings->is_array()) {
    return InvalidInput("the hub's list of files has no siblings");
  }
  for (const json::value& sibling : siblings->get_array()) {
    const json::object* file = sibling.if_object();
    const json::value* name = file == nullptr ? nullptr : file->if_contains("rfilename");
    if (name == nullptr || !name->is_string()) {
      return InvalidInput("the hub's list of files has a file without rfilename");
    }
    if (!IsSafePath(name->get_string())) {
      return InvalidInput("the hub's list of files holds '" + PrintableName(name->get_string()) +
                          "', which is no path within a folder");
    }
    listing.files.emplace_back(name->get_string());
  }
  std::sort(listing.files.begin(), listing.files.end());
  return listing;
}

bool IsCommit(std::string_view text) {
  return text.size() == kCommitDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string QuantOf(std::string_view path) {
  const std::string text =
      Upper(path.substr(0, path.size() - std::min(path.size(), kGgufEnding.size())));
  std::string quant;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (begin > 0 && IsAlnum(text[begin - 1])) continue;
    size_t end = begin;
    while (!EndsAt(text, end)) ++end;
    const std::string word = text.substr(begin, end - begin);
    if (!NamesTypes(word)) continue;
    quant = word;
    begin = end;
  }
  return quant;
}

Result<ModelFiles> ChooseFiles(const std::vector<std::string>& files, const std::string& quant) {
  std::vector<std::string> models;
  std::copy_if(files.begin(), files.end(), std::back_inserter(models),
               [](const std::string& file) { return IsModelFile(file) && IsFirstPart(file); });
  const auto named = std::find(models.begin(), models.end(), quant);
  if (named != models.end()) return WithParts(files, *named);
  for (const std::string& model : models) {
    const std::string wanted = quant.empty() ? std::string(kDefaultQuant) : quant;
    if (HasQuant(model, wanted)) return WithParts(files, model);
  }
  if (!quant.empty()) {
    return NotFound(
        "no GGUF file of '" + PrintableName(quant) + "'" +
        (models.empty() ? ", nor any other" : "; there are " + Joined(Choices(models))));
  }
  return models.empty() ? ChooseFolder(files) : WithParts(files, models.front());
}

}  // namespace kvrm
