// Vocabularies and reference vectors for this folder's tests. Test code only: a small reader of
// GGUF metadata of its own, because this folder knows no file format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/tokenizer_spec.h"
#include "text/tokenizer.h"

namespace kvrm::testing {

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, std::string_view bytes);

// The tokenizer fields of a trusted GGUF file's metadata.
TokenizerSpec ReadGgufTokenizer(const std::string& path);

// Qwen2's vocabulary from its list of merges and the facts beside it.
TokenizerSpec ReadQwen2Tokenizer(const std::string& merges_path, const std::string& facts_path);

// A small vocabulary, made up: all 256 bytes, some merges over "abc " and an emoji, control tokens
// <|im_start|>, <|im_end|> and <s>, user-defined <tool> and <tool_call>.
TokenizerSpec MakeSmallVocabulary(std::string pre);

// A small vocabulary of SentencePiece's form, made up: <unk>, <s>, </s>, the 256 byte tokens,
// characters and pieces over "abc", blanks and one emoji, a control token <|turn|> and the
// user-defined <tool>. `model`: "llama" (scores) or "gemma4" (merges).
TokenizerSpec MakeSmallCharVocabulary(std::string model);

// Writes the token of that text otherwise.
void ReplaceToken(TokenizerSpec& spec, std::string_view token, std::string_view text);

// The tokens of `text` as they stand in the vocabulary.
std::vector<std::string> PiecesOf(const Tokenizer& tokenizer, std::string_view text,
                                  SpecialTokens special = SpecialTokens::kParse);

struct Vector {
  std::string text;
  std::vector<TokenId> ids;
};
// The pairs of NAME.inp and NAME.out, and those of a file of JSON lines with "text" and "ids".
std::vector<Vector> ReadVocabVectors(const std::string& path_without_suffix);
std::vector<Vector> ReadJsonVectors(const std::string& path);

}  // namespace kvrm::testing
