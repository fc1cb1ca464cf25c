// The tokenizer of SentencePiece's BPE files: symbols are characters, not bytes; a blank is written
// U+2581; a character without a token falls back to the tokens <0xNN> of its bytes. Which merge
// comes first is said by the scores of the tokens ("llama" in GGUF terms) or by a list of merges
// ("gemma4", and "llama" without scores). Immutable after creation; thread-safe. Made through
// Tokenizer::Create.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/bpe.h"
#include "text/vocab_tokenizer.h"

namespace kvrm {

class CharBpeTokenizer final : public VocabTokenizer {
 public:
  // Errors: see Tokenizer::Create. Requires: spec.model is "llama" or "gemma4".
  static Result<std::unique_ptr<const CharBpeTokenizer>> Create(TokenizerSpec spec);

 private:
  class TextRun;
  // A symbol is a token or, from the size of the vocabulary on, a character that has no token of
  // its own but stands in one: it may be merged, and is written as bytes where it was not.
  using Symbol = TokenId;

  explicit CharBpeTokenizer(TokenizerSpec spec) : VocabTokenizer(std::move(spec)) {}
  std::unique_ptr<Run> NewRun(size_t text_bytes) const override;
  void AppendTokenBytes(TokenId id, std::string& out) const override;
  std::string Normalized(std::string_view token) const override;

  // Blanks are written as U+2581 by the normalizer, not behind it.
  bool normalizer_escapes() const { return spec_.space_prefix == SpacePrefix::kEach; }

  Status BuildSymbols();
  Status BuildFromScores();
  Status BuildFromMerges();
  Symbol SymbolOf(std::string_view text) const;  // -1 = none
  // What stands for text that is no symbol: its bytes' tokens, or the unknown token.
  void AppendFallback(std::string_view text, std::vector<TokenId>& out) const;

  std::unordered_map<std::string_view, Symbol> symbols_;  // keys lie in spec_.tokens
  std::vector<std::string_view> bare_characters_;         // the symbols from vocab_size() on
  std::array<TokenId, 256> byte_tokens_;                  // -1 = none
  // -1 = none, also where the file names one that begins or ends a text: an unknown character must
  // not be a way to write that.
  TokenId unknown_ = -1;
  std::unique_ptr<const BpeMerger> merger_;
  // No token holds a blank behind another character, so that words can be merged one by one.
  bool blank_begins_piece_ = true;
  bool cuts_line_ends_ = false;  // runs of "\n" are pieces
};

}  // namespace kvrm
