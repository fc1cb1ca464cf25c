#include "text/test_vocabulary.h"

#include <algorithm>
#include <bit>
#include <boost/json.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "text/utf8.h"

namespace kvrm::testing {
namespace {

class MetadataReader {
 public:
  explicit MetadataReader(const std::string& path) : file_(path, std::ios::binary) {
    char magic[4];
    file_.read(magic, 4);
    KVRM_CHECK(file_ && std::memcmp(magic, "GGUF", 4) == 0, "the test vocabulary is a GGUF file");
    Read<uint32_t>();  // version
    Read<uint64_t>();  // tensors
    num_keys_ = Read<uint64_t>();
  }

  TokenizerSpec ReadAll() {
    TokenizerSpec spec;
    for (uint64_t i = 0; i < num_keys_; ++i) {
      const std::string key = ReadString();
      ReadValue(key, spec);
      // Files of this kind that do not say otherwise mean yes.
      if (key == "tokenizer.ggml.model") spec.add_space_prefix = spec.model == "llama";
    }
    return spec;
  }

 private:
  enum ValueType : uint32_t { kBool = 7, kString = 8, kArray = 9 };

  template <class T>
  T Read() {
    T value{};
    file_.read(reinterpret_cast<char*>(&value), sizeof(value));
    KVRM_CHECK(static_cast<bool>(file_), "the test vocabulary is whole");
    return value;
  }

  std::string ReadString() {
    std::string text(Read<uint64_t>(), '\0');
    file_.read(text.data(), static_cast<std::streamsize>(text.size()));
    return text;
  }

  int64_t ReadNumber(uint32_t type) {
    constexpr int kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    int64_t value = 0;
    file_.read(reinterpret_cast<char*>(&value), kBytes[type]);
    return value;
  }

  void ReadValue(const std::string& key, TokenizerSpec& spec) {
    const auto type = Read<uint32_t>();
    if (type == kArray) return ReadArray(key, spec);
    if (type == kString) {
      const std::string text = ReadString();
      if (key == "tokenizer.ggml.model") spec.model = text;
      if (key == "tokenizer.ggml.pre") spec.pre = text;
      if (key == "tokenizer.chat_template") spec.chat_template = text;
      return;
    }
    const int64_t number = ReadNumber(type);
    if (key == "tokenizer.ggml.add_space_prefix") spec.add_space_prefix = number != 0;
    const std::pair<const char*, TokenId*> ids[] = {
        {"tokenizer.ggml.bos_token_id", &spec.bos},
        {"tokenizer.ggml.eos_token_id", &spec.eos},
        {"tokenizer.ggml.eot_token_id", &spec.eot},
        {"tokenizer.ggml.unknown_token_id", &spec.unknown}};
    for (const auto& [name, id] : ids) {
      if (key == name) *id = static_cast<TokenId>(number);
    }
  }

  void ReadArray(const std::string& key, TokenizerSpec& spec) {
    const auto type = Read<uint32_t>();
    const auto count = Read<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) {
      if (type == kString) {
        const std::string text = ReadString();
        if (key == "tokenizer.ggml.tokens") spec.tokens.push_back(text);
        if (key == "tokenizer.ggml.merges") spec.merges.push_back(text);
      } else {
        const int64_t number = ReadNumber(type);
        if (key == "tokenizer.ggml.token_type") {
          spec.types.push_back(static_cast<TokenType>(number));
        }
        if (key == "tokenizer.ggml.scores") {
          spec.scores.push_back(std::bit_cast<float>(static_cast<uint32_t>(number)));
        }
      }
    }
  }

  std::ifstream file_;
  uint64_t num_keys_ = 0;
};

bool IsPrintableByte(uint32_t byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// The 256 byte tokens, printable ones first: ids as GPT-2's and Qwen2's vocabularies have them.
StringList ByteTokens() {
  StringList tokens;
  char32_t next = 0x100;
  for (const bool printable : {true, false}) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      if (IsPrintableByte(byte) != printable) continue;
      std::string token;
      AppendUtf8(printable ? char32_t{byte} : next++, token);
      tokens.push_back(token);
    }
  }
  return tokens;
}

void AddMerge(const std::string& merge, TokenizerSpec& spec) {
  std::string whole = merge;
  whole.erase(whole.find(' '), 1);
  spec.tokens.push_back(whole);
  spec.merges.push_back(merge);
}

}  // namespace

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  KVRM_CHECK(static_cast<bool>(file), "the test file can be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  KVRM_CHECK(file.flush().good(), "the test file can be written");
}

TokenizerSpec ReadGgufTokenizer(const std::string& path) { return MetadataReader(path).ReadAll(); }

TokenizerSpec ReadQwen2Tokenizer(const std::string& merges_path, const std::string& facts_path) {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "qwen2";
  spec.tokens = ByteTokens();
  std::istringstream lines(ReadFile(merges_path));
  for (std::string line; std::getline(lines, line);) AddMerge(line, spec);
  spec.types.resize(spec.tokens.size(), TokenType::kNormal);
  const boost::json::value facts = boost::json::parse(ReadFile(facts_path));
  for (const boost::json::value& added : facts.at("added_tokens").as_array()) {
    spec.tokens.push_back(added.at("content").as_string());
    spec.types.push_back(added.at("special").as_bool() ? TokenType::kControl
                                                       : TokenType::kUserDefined);
  }
  return spec;
}

TokenizerSpec MakeSmallVocabulary(std::string pre) {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = std::move(pre);
  spec.tokens = ByteTokens();
  // "Ġ" is the blank; F0 9F 99 82 is an emoji, of which two tokens each hold half.
  for (const char* merge : {"a a", "aa aa", "a b", "b c", "ab c", "\u0120 a", "\u0120 \u0120",
                            "\u00f0 \u0141", "\u013b \u0124", "< |"}) {
    AddMerge(merge, spec);
  }
  spec.types.resize(spec.tokens.size(), TokenType::kNormal);
  const std::pair<const char*, TokenType> special[] = {{"<|im_start|>", TokenType::kControl},
                                                       {"<|im_end|>", TokenType::kControl},
                                                       {"<s>", TokenType::kControl},
                                                       {"<tool>", TokenType::kUserDefined},
                                                       {"<tool_call>", TokenType::kUserDefined}};
  for (const auto& [text, type] : special) {
    spec.tokens.push_back(text);
    spec.types.push_back(type);
  }
  spec.eos = static_cast<TokenId>(spec.tokens.size() - 4);
  return spec;
}

TokenizerSpec MakeSmallCharVocabulary(std::string model) {
  TokenizerSpec spec;
  spec.model = std::move(model);
  spec.add_space_prefix = spec.model == "llama";
  const auto add = [&spec](std::string_view token, TokenType type) {
    spec.tokens.push_back(token);
    spec.types.push_back(type);
    // The later the worse, two by two the same; special tokens have 0, which is the best.
    const size_t pair = spec.tokens.size() / 2;
    const auto place = static_cast<float>(pair);
    spec.scores.push_back(type == TokenType::kNormal ? -place : 0.0F);
  };
  add("<unk>", TokenType::kUnknown);
  add("<s>", TokenType::kControl);
  add("</s>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    char token[8];
    std::snprintf(token, sizeof(token), "<0x%02X>", static_cast<unsigned>(byte));
    add(token, TokenType::kByte);
  }
  // "q" has no token of its own, "qa" has; "<s" makes "<s>" look as if it could be merged.
  const std::pair<const char*, const char*> made[] = {
      {"a", "a"},  {"a", "b"},      {"b", "c"},           {"ab", "c"},
      {"a", "bc"}, {"aa", "aa"},    {"\u2581", "\u2581"}, {"\u2581", "a"},
      {"q", "a"},  {"\u2581", "b"}, {"\u2581a", "b"},     {"<", "s"}};
  std::string both;
  for (const auto& [left, right] : made) {
    both = std::string(left) + right;
    if (std::ranges::find(spec.tokens, both) == spec.tokens.end()) add(both, TokenType::kNormal);
    spec.merges.push_back(std::string(left) + " " + right);
  }
  for (const char* character : {"a", "b", "c", "\u2581", "<", ">", "s", "0", "x", "A", "\n", "."}) {
    add(character, TokenType::kNormal);
  }
  add("<|turn|>", TokenType::kControl);
  add("<tool>", TokenType::kUserDefined);
  spec.unknown = 0;
  spec.bos = 1;
  spec.eos = 2;
  return spec;
}

void ReplaceToken(TokenizerSpec& spec, std::string_view token, std::string_view text) {
  StringList tokens;
  for (const std::string_view old : spec.tokens) tokens.push_back(old == token ? text : old);
  spec.tokens = std::move(tokens);
}

std::vector<Vector> ReadVocabVectors(const std::string& path_without_suffix) {
  const std::string inputs = ReadFile(path_without_suffix + ".inp");
  std::istringstream outputs(ReadFile(path_without_suffix + ".out"));
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::vector<Vector> vectors;
  size_t begin = 0;
  for (size_t end; (end = inputs.find(kSeparator, begin)) != std::string::npos;
       begin = end + kSeparator.size()) {
    std::string line;
    KVRM_CHECK(static_cast<bool>(std::getline(outputs, line)), "a line of ids for each text");
    std::istringstream numbers(line);
    vectors.push_back({inputs.substr(begin, end - begin),
                       std::vector<TokenId>(std::istream_iterator<TokenId>(numbers), {})});
  }
  return vectors;
}

std::vector<Vector> ReadJsonVectors(const std::string& path) {
  std::istringstream lines(ReadFile(path));
  std::vector<Vector> vectors;
  for (std::string line; std::getline(lines, line);) {
    const boost::json::value value = boost::json::parse(line);
    vectors.push_back({std::string(value.at("text").as_string()),
                       boost::json::value_to<std::vector<TokenId>>(value.at("ids"))});
  }
  return vectors;
}

std::vector<std::string> PiecesOf(const Tokenizer& tokenizer, std::string_view text,
                                  SpecialTokens special) {
  std::vector<std::string> pieces;
  for (const TokenId id : tokenizer.Encode(text, special)) {
    pieces.emplace_back(tokenizer.spec().tokens[static_cast<size_t>(id)]);
  }
  return pieces;
}

}  // namespace kvrm::testing
