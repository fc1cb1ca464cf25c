#include "text/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <ranges>
#include <utility>

#include "text/bpe_tokenizer.h"
#include "text/hub_decoder.h"
#include "text/hub_pre_tokenizer.h"
#include "text/json_fields.h"

namespace kvrm {
namespace {

namespace json = boost::json;

constexpr size_t kMaxDepth = 32;

Result<json::object> ParseObject(std::string_view text, const std::string& file) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::system::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error) return InvalidInput(file + ": no JSON (" + error.message() + ")");
  if (!value.is_object()) return InvalidInput(file + ": no object");
  return std::move(value.get_object());
}

class SpecReader {
 public:
  explicit SpecReader(const json::object& root) : root_(root) {}

  Result<TokenizerSpec> Run() {
    const json::value* model = hub::Find(root_, "model");
    if (model == nullptr || !model->is_object()) return hub::Invalid("model is no object");
    model_ = &model->get_object();
    static const json::value kNull;
    const auto part = [this](std::string_view name) -> const json::value& {
      const json::value* found = hub::Find(root_, name);
      return found == nullptr ? kNull : *found;
    };
    KVRM_RETURN_IF_ERROR(CheckModel());
    KVRM_RETURN_IF_ERROR(ReadHubPreTokenizer(part("normalizer"), part("pre_tokenizer"), spec_));
    KVRM_RETURN_IF_ERROR(ReadVocabulary());
    KVRM_RETURN_IF_ERROR(ReadAddedTokens());
    KVRM_RETURN_IF_ERROR(ReadMerges());
    KVRM_RETURN_IF_ERROR(ReadOptions());
    KVRM_RETURN_IF_ERROR(ReadPostProcessor(part("post_processor"), "post_processor"));
    KVRM_RETURN_IF_ERROR(CheckHubDecoder(part("decoder"), spec_, byte_fallback_));
    spec_.tokens = StringList(tokens_);
    return std::move(spec_);
  }

 private:
  Status CheckModel() const {
    KVRM_ASSIGN_OR_RETURN(const std::string type, hub::String(*model_, "type", "model"));
    if (type != "BPE" && !type.empty())
      return hub::NotOffered("model \"" + ForMessage(type) + "\"");
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      KVRM_ASSIGN_OR_RETURN(const std::string text, hub::String(*model_, name, "model"));
      if (!text.empty()) return hub::NotOffered(std::string("model.") + name);
    }
    // Merges left out at random make other tokens of the same text each time.
    const json::value* dropout = hub::Find(*model_, "dropout");
    if (dropout != nullptr && !dropout->is_number())
      return hub::Invalid("model.dropout is no number");
    if (dropout != nullptr && dropout->to_number<double>() != 0) {
      return hub::NotOffered("model.dropout above 0");
    }
    return Ok();
  }

  static Result<TokenId> IdOf(const json::value& value, const std::string& name) {
    const bool fits = value.is_int64() && value.get_int64() >= 0 && value.get_int64() < (1 << 24);
    if (!fits) return hub::Invalid(name + ": its id is no integer from 0 to 16777215");
    return static_cast<TokenId>(value.get_int64());
  }

  // Ids may leave gaps, which become unused tokens, but not more gaps than tokens.
  Status Place(TokenId id, std::string text, TokenType type, const std::string& name) {
    const auto index = static_cast<size_t>(id);
    if (index >= max_size_) {
      return hub::Invalid(name + ": id " + std::to_string(id) +
                          " leaves too many gaps, must be below " + std::to_string(max_size_));
    }
    if (index >= tokens_.size()) {
      tokens_.resize(index + 1);
      spec_.types.resize(index + 1, TokenType::kUnused);
    }
    tokens_[index] = std::move(text);
    spec_.types[index] = type;
    return Ok();
  }

  Status ReadVocabulary() {
    const json::value* vocab = hub::Find(*model_, "vocab");
    if (vocab == nullptr || !vocab->is_object()) return hub::Invalid("model.vocab is no object");
    const json::value* added = hub::Find(root_, "added_tokens");
    const size_t num_added = added != nullptr && added->is_array() ? added->get_array().size() : 0;
    constexpr size_t kGaps = 1024;
    max_size_ = 2 * (vocab->get_object().size() + num_added) + kGaps;
    for (const auto& entry : vocab->get_object()) {
      const std::string name = "model.vocab[\"" + ForMessage(entry.key()) + "\"]";
      KVRM_ASSIGN_OR_RETURN(const TokenId id, IdOf(entry.value(), name));
      const auto index = static_cast<size_t>(id);
      if (index < tokens_.size() && spec_.types[index] != TokenType::kUnused) {
        return hub::Invalid(name + ": id " + std::to_string(id) + " is \"" +
                            ForMessage(tokens_[index]) + "\" already");
      }
      KVRM_RETURN_IF_ERROR(Place(id, std::string(entry.key()), TokenType::kNormal, name));
    }
    if (tokens_.empty()) return hub::Invalid("model.vocab is empty");
    return Ok();
  }

  Status ReadAddedTokens() {
    const json::value* added = hub::Find(root_, "added_tokens");
    if (added == nullptr) return Ok();
    if (!added->is_array()) return hub::Invalid("added_tokens is no list");
    for (size_t i = 0; i < added->get_array().size(); ++i) {
      const std::string name = "added_tokens[" + std::to_string(i) + "]";
      const json::value& value = added->get_array()[i];
      if (!value.is_object()) return hub::Invalid(name + " is no object");
      KVRM_RETURN_IF_ERROR(ReadAddedToken(value.get_object(), name));
    }
    return Ok();
  }

  Status ReadAddedToken(const json::object& token, const std::string& name) {
    const json::value* id_value = hub::Find(token, "id");
    if (id_value == nullptr) return hub::Invalid(name + " has no id");
    KVRM_ASSIGN_OR_RETURN(const TokenId id, IdOf(*id_value, name));
    KVRM_ASSIGN_OR_RETURN(const std::string text, hub::String(token, "content", name));
    if (text.empty()) return hub::Invalid(name + " has no content");
    const auto flag = [&](const char* field) { return hub::Flag(token, field, false, name); };
    KVRM_ASSIGN_OR_RETURN(const bool special, flag("special"));
    KVRM_ASSIGN_OR_RETURN(const bool whole_words, flag("single_word"));
    KVRM_ASSIGN_OR_RETURN(const bool left, flag("lstrip"));
    KVRM_ASSIGN_OR_RETURN(const bool right, flag("rstrip"));
    KVRM_ASSIGN_OR_RETURN(const bool normalized, hub::Flag(token, "normalized", !special, name));
    if (whole_words)
      return hub::NotOffered(name + " \"" + ForMessage(text) + "\" with single_word");
    const auto index = static_cast<size_t>(id);
    const bool taken = index < tokens_.size() && spec_.types[index] != TokenType::kUnused &&
                       tokens_[index] != text;
    if (taken) {
      return hub::Invalid(name + ": id " + std::to_string(id) + " is \"" +
                          ForMessage(tokens_[index]) + "\" already");
    }
    KVRM_RETURN_IF_ERROR(
        Place(id, text, special ? TokenType::kControl : TokenType::kUserDefined, name));
    const int found =
        (left ? kStripsLeft : 0) | (right ? kStripsRight : 0) | (normalized ? kFoundNormalized : 0);
    if (found != 0) {
      if (spec_.found.size() <= index) spec_.found.resize(index + 1);
      spec_.found[index] = static_cast<uint8_t>(found);
    }
    return Ok();
  }

  // Both forms: "left right", and a list of the two.
  Status ReadMerges() {
    const json::value* merges = hub::Find(*model_, "merges");
    if (merges == nullptr || !merges->is_array()) return hub::Invalid("model.merges is no list");
    for (size_t i = 0; i < merges->get_array().size(); ++i) {
      const std::string name = "model.merges[" + std::to_string(i) + "]";
      const json::value& value = merges->get_array()[i];
      if (value.is_string()) {
        spec_.merges.push_back(value.get_string());
        continue;
      }
      const bool pair = value.is_array() && value.get_array().size() == 2 &&
                        value.get_array()[0].is_string() && value.get_array()[1].is_string();
      if (!pair) return hub::Invalid(name + " is neither a string nor a list of two");
      const std::string_view left = value.get_array()[0].get_string();
      const std::string_view right = value.get_array()[1].get_string();
      if (left.find(' ') != std::string_view::npos || right.find(' ') != std::string_view::npos) {
        return hub::NotOffered(name + " with a blank in a token");
      }
      spec_.merges.push_back(std::string(left) + " " + std::string(right));
    }
    return Ok();
  }

  Status ReadOptions() {
    const auto flag = [&](const char* name) { return hub::Flag(*model_, name, false, "model"); };
    KVRM_ASSIGN_OR_RETURN(const bool ignore_merges, flag("ignore_merges"));
    KVRM_ASSIGN_OR_RETURN(byte_fallback_, flag("byte_fallback"));
    KVRM_ASSIGN_OR_RETURN(spec_.fuse_unknown, flag("fuse_unk"));
    spec_.whole_piece_first = ignore_merges;
    const bool by_characters = spec_.model == "llama";
    if (by_characters && ignore_merges) return hub::NotOffered("ignore_merges without ByteLevel");
    if (!by_characters && byte_fallback_) return hub::NotOffered("byte_fallback beside ByteLevel");
    if (byte_fallback_) {
      for (size_t i = 0; i < tokens_.size(); ++i) {
        if (IsByteToken(tokens_[i])) spec_.types[i] = TokenType::kByte;
      }
    }
    return ReadUnknownToken(by_characters);
  }

  // Of characters without a token. Byte by byte there are none, unless the vocabulary has holes.
  Status ReadUnknownToken(bool by_characters) {
    KVRM_ASSIGN_OR_RETURN(const std::string unknown, hub::String(*model_, "unk_token", "model"));
    if (unknown.empty()) return Ok();
    spec_.unknown = Find(unknown);
    if (spec_.unknown < 0) {
      return hub::Invalid("model.unk_token \"" + ForMessage(unknown) + "\" is no token");
    }
    if (!by_characters && !HasBytesOfUtf8()) {
      return hub::NotOffered(
          "model.unk_token beside ByteLevel without a token for each byte of UTF-8");
    }
    TokenType& type = spec_.types[static_cast<size_t>(spec_.unknown)];
    if (type == TokenType::kNormal) type = TokenType::kUnknown;
    return Ok();
  }

  // C0, C1 and F5 to FF are in no text: files leave them out.
  bool HasBytesOfUtf8() const {
    std::array<bool, 256> found{};
    for (const std::string& token : tokens_) {
      const std::optional<uint8_t> byte = ByteOfCharacter(token);
      if (byte) found[*byte] = true;
    }
    const auto is_there_or_in_no_text = [&](size_t byte) {
      return found[byte] || byte == 0xC0 || byte == 0xC1 || byte >= 0xF5;
    };
    return std::ranges::all_of(std::views::iota(size_t{0}, found.size()), is_there_or_in_no_text);
  }

  static bool IsByteToken(std::string_view token) {
    const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
    return token.size() == 6 && token.starts_with("<0x") && token[5] == '>' && is_hex(token[3]) &&
           is_hex(token[4]);
  }

  TokenId Find(std::string_view text) const {
    const auto found = std::ranges::find(tokens_, text);
    return found == tokens_.end() ? TokenId{-1} : static_cast<TokenId>(found - tokens_.begin());
  }

  // A template that begins with a special token puts it before each text. ByteLevel moves offsets,
  // which nobody asks for here.
  Status ReadPostProcessor(const json::value& processor, const std::string& path) {
    if (processor.is_null()) return Ok();
    if (!processor.is_object()) return hub::Invalid(path + " is no object");
    const json::object& object = processor.get_object();
    KVRM_ASSIGN_OR_RETURN(const std::string type, hub::String(object, "type", path));
    if (type == "ByteLevel") return Ok();
    if (type == "TemplateProcessing") return ReadTemplate(object, path);
    if (type != "Sequence") return hub::NotOffered(path + " \"" + ForMessage(type) + "\"");
    const std::string list_path = path + ".processors";
    const json::value* list = hub::Find(object, "processors");
    if (list == nullptr || !list->is_array()) return hub::Invalid(list_path + " is no list");
    size_t i = 0;
    for (const json::value& inner : list->get_array()) {
      KVRM_RETURN_IF_ERROR(ReadPostProcessor(inner, list_path + "[" + std::to_string(i++) + "]"));
    }
    return Ok();
  }

  // `single`: the text, at most one special token before it. One behind it, which ends the
  // document, would have a model begin another one: refused.
  Status ReadTemplate(const json::object& object, const std::string& path) {
    const std::string list_path = path + ".single";
    const json::value* single = hub::Find(object, "single");
    if (single == nullptr || !single->is_array()) return hub::Invalid(list_path + " is no list");
    std::vector<TokenId> before;
    size_t texts = 0, behind = 0;
    for (const json::value& item : single->get_array()) {
      const bool is_text = item.is_object() && hub::Find(item.get_object(), "Sequence") != nullptr;
      if (is_text) {
        ++texts;
        continue;
      }
      KVRM_ASSIGN_OR_RETURN(const TokenId id, TemplateToken(item, object, list_path));
      if (texts == 0) before.push_back(id);
      behind += texts;
    }
    if (texts != 1 || before.size() > 1 || behind > 0 || has_template_) {
      return hub::NotOffered(list_path + " other than [a token,] the text");
    }
    has_template_ = true;
    spec_.add_bos = !before.empty();
    if (!before.empty()) spec_.bos = before[0];
    return Ok();
  }

  // special_tokens says which ids stand for it: itself, in all files that are known.
  Result<TokenId> TemplateToken(const json::value& item, const json::object& processor,
                                const std::string& path) const {
    const json::value* token =
        item.is_object() ? hub::Find(item.get_object(), "SpecialToken") : nullptr;
    if (token == nullptr || !token->is_object()) {
      return hub::Invalid(path + " holds neither SpecialToken nor Sequence");
    }
    KVRM_ASSIGN_OR_RETURN(const std::string text, hub::String(token->get_object(), "id", path));
    const TokenId id = Find(text);
    if (id < 0) return hub::Invalid(path + ": \"" + ForMessage(text) + "\" is no token");
    const json::value* known = hub::Find(processor, "special_tokens");
    const json::value* entry =
        known != nullptr && known->is_object() ? hub::Find(known->get_object(), text) : nullptr;
    const json::value* ids =
        entry != nullptr && entry->is_object() ? hub::Find(entry->get_object(), "ids") : nullptr;
    if (ids != nullptr && *ids != json::array{id}) {
      return hub::NotOffered(path + ": \"" + ForMessage(text) + "\" with the ids " +
                             ForMessage(json::serialize(*ids)));
    }
    return id;
  }

  const json::object& root_;
  const json::object* model_ = nullptr;
  TokenizerSpec spec_;
  std::vector<std::string> tokens_;  // of spec_, which come in any order
  size_t max_size_ = 0;
  bool byte_fallback_ = false;
  bool has_template_ = false;
};

// A token of tokenizer_config.json: its text, or an object with `content`. -1 = none.
TokenId ConfiguredToken(const json::object& config, std::string_view name,
                        const TokenizerSpec& spec) {
  const json::value* value = hub::Find(config, name);
  if (value != nullptr && value->is_object()) value = hub::Find(value->get_object(), "content");
  if (value == nullptr || !value->is_string()) return -1;
  const auto found = std::ranges::find(spec.tokens, std::string_view(value->get_string()));
  return found == spec.tokens.end() ? TokenId{-1}
                                    : static_cast<TokenId>(found - spec.tokens.begin());
}

// One template, or a list of named ones, of which that named "default" is meant.
std::string ConfiguredTemplate(const json::object& config) {
  const json::value* value = hub::Find(config, "chat_template");
  if (value == nullptr) return {};
  if (value->is_string()) return std::string(value->get_string());
  if (!value->is_array()) return {};
  for (const json::value& entry : value->get_array()) {
    if (!entry.is_object()) continue;
    const json::value* name = hub::Find(entry.get_object(), "name");
    const json::value* source = hub::Find(entry.get_object(), "template");
    const bool is_default = name != nullptr && name->is_string() && name->get_string() == "default";
    if (is_default && source != nullptr && source->is_string()) {
      return std::string(source->get_string());
    }
  }
  return {};
}

// What the post-processor puts before each text is what it says, whatever bos_token is.
Status ApplyConfig(const json::object& config, TokenizerSpec& spec) {
  const bool has_start = spec.add_bos;
  KVRM_ASSIGN_OR_RETURN(spec.add_bos, hub::Flag(config, "add_bos_token", spec.add_bos));
  KVRM_ASSIGN_OR_RETURN(spec.add_eos, hub::Flag(config, "add_eos_token", spec.add_eos));
  const std::pair<const char*, TokenId*> tokens[] = {{"bos_token", &spec.bos},
                                                     {"eos_token", &spec.eos},
                                                     {"unk_token", &spec.unknown},
                                                     {"pad_token", &spec.padding}};
  for (const auto& [name, id] : tokens) {
    if (id == &spec.bos && has_start && spec.add_bos) continue;
    const TokenId configured = ConfiguredToken(config, name, spec);
    if (configured >= 0) *id = configured;
  }
  spec.chat_template = ConfiguredTemplate(config);
  return Ok();
}

// Empty where there is no such file.
Result<std::optional<std::string>> ReadIfThere(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<std::string>();
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) return InvalidInput("'" + path.string() + "' is no file that can be read");
  if (bytes > StringList::kMaxBytes) {
    return InvalidInput("'" + path.string() + "': " + std::to_string(bytes) +
                        " bytes, must be at most " + std::to_string(StringList::kMaxBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof()) return InvalidInput("'" + path.string() + "' cannot be read");
  return std::optional<std::string>(std::move(text));
}

}  // namespace

Result<TokenizerSpec> ReadTokenizerJson(std::string_view text, std::string_view config) {
  if (text.size() > StringList::kMaxBytes) {  // its tokens take no more bytes than it does
    return InvalidInput("tokenizer.json: " + std::to_string(text.size()) +
                        " bytes, must be at most " + std::to_string(StringList::kMaxBytes));
  }
  KVRM_ASSIGN_OR_RETURN(const json::object root, ParseObject(text, "tokenizer.json"));
  KVRM_ASSIGN_OR_RETURN(TokenizerSpec spec, SpecReader(root).Run());
  if (!config.empty()) {
    KVRM_ASSIGN_OR_RETURN(const json::object parsed, ParseObject(config, "tokenizer_config.json"));
    KVRM_RETURN_IF_ERROR(ApplyConfig(parsed, spec));
  }
  return spec;
}

Result<TokenizerSpec> ReadTokenizerFolder(const std::string& folder) {
  const std::filesystem::path path(folder);
  KVRM_ASSIGN_OR_RETURN(const auto text, ReadIfThere(path / "tokenizer.json"));
  if (!text) return InvalidInput("'" + folder + "' holds no tokenizer.json");
  KVRM_ASSIGN_OR_RETURN(const auto config, ReadIfThere(path / "tokenizer_config.json"));
  KVRM_ASSIGN_OR_RETURN(const auto source, ReadIfThere(path / "chat_template.jinja"));
  KVRM_ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizerJson(*text, config.value_or("")));
  if (source) spec.chat_template = *source;
  return spec;
}

}  // namespace kvrm
