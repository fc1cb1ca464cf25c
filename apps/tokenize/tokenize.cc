// kvrm tokenize: text to ids, ids to text. Reads the tokenizer alone; no weights are loaded.
#include <boost/json.hpp>
#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include "kvrm/commands.h"
#include "options/read_all.h"
#include "session/tokenizer_source.h"
#include "text/tokenizer.h"

namespace kvrm::cli {
namespace {

Result<std::unique_ptr<const Tokenizer>> OpenTokenizer(const OptionValues& values) {
  KVRM_ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecOf(values));
  return Tokenizer::Create(std::move(spec));
}

// Printable ASCII as it is, all other bytes as \xNN: one line a token, whatever it holds.
std::string Escaped(std::string_view bytes) {
  std::string text;
  for (unsigned char c : bytes) {
    if (c >= 0x20 && c < 0x7F && c != '\\') {
      text += static_cast<char>(c);
    } else if (c == '\n') {
      text += "\\n";
    } else if (c == '\\') {
      text += "\\\\";
    } else {
      char hex[5];
      std::snprintf(hex, sizeof(hex), "\\x%02x", c);
      text += hex;
    }
  }
  return text;
}

Result<std::vector<TokenId>> ParseIds(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> ids;
  for (size_t begin = 0; (begin = text.find_first_not_of(" \t\r\n", begin)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(" \t\r\n", begin), text.size());
    TokenId id = -1;
    const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, id);
    const int64_t vocab = tokenizer.vocab_size();
    if (error != std::errc() || stop != text.data() + end || id < 0 || id >= vocab) {
      return InvalidInput("'" + text.substr(begin, std::min<size_t>(end - begin, 40)) +
                          "' is no token id (0 to " + std::to_string(vocab - 1) + ")");
    }
    ids.push_back(id);
    begin = end;
  }
  return ids;
}

// Each line a JSON string; each becomes a JSON list of ids.
Result<std::string> EncodeLines(const Tokenizer& tokenizer, std::string_view lines) {
  std::string output;
  size_t number = 1;
  for (size_t begin = 0; begin < lines.size(); ++number) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    boost::system::error_code error;
    const auto line = boost::json::parse(lines.substr(begin, end - begin), error);
    if (error || !line.is_string()) {
      return InvalidInput("standard input, line " + std::to_string(number) + ": no JSON string");
    }
    output += '[';
    for (const TokenId id : tokenizer.Encode(line.get_string(), SpecialTokens::kParse)) {
      if (output.back() != '[') output += ',';
      output += std::to_string(id);
    }
    output += "]\n";
    begin = end + 1;
  }
  return output;
}

}  // namespace

int RunTokenize(const OptionValues& values) {
  if (values.Flag("ids") && values.Flag("decode")) {
    return UsageError(values, "--ids and --decode exclude each other");
  }
  const auto tokenizer = OpenTokenizer(values);
  if (!tokenizer.ok()) return Failed(values, tokenizer.error());
  const auto input = ReadAll("standard input", "-");
  if (!input.ok()) return Failed(values, input.error());
  std::string output;
  if (values.Flag("decode")) {
    const auto ids = ParseIds(**tokenizer, *input);
    if (!ids.ok()) return Failed(values, ids.error());
    output = (*tokenizer)->Decode(*ids, /*with_special=*/true);
  } else if (values.Flag("json-lines")) {
    auto lines = EncodeLines(**tokenizer, *input);
    if (!lines.ok()) return Failed(values, lines.error());
    output = std::move(lines).value();
  } else {
    const std::vector<TokenId> ids = (*tokenizer)->Encode(*input, SpecialTokens::kParse);
    for (TokenId id : ids) {
      if (values.Flag("ids")) {
        output += (output.empty() ? "" : " ") + std::to_string(id);
      } else {
        const std::string_view bytes = (*tokenizer)->TokenBytes(id, /*with_special=*/true);
        output += std::to_string(id) + "\t" + Escaped(bytes) + "\n";
      }
    }
    if (values.Flag("ids")) output += "\n";
  }
  return WriteOutput(values, output);
}

}  // namespace kvrm::cli
