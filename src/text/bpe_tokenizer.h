// The tokenizer of byte-level BPE files ("gpt2" in GGUF terms). Immutable after creation;
// thread-safe. Made through Tokenizer::Create; this header is for that and for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/vocab_tokenizer.h"

namespace kvrm {

// The byte that a token of one character of GPT-2's alphabet stands for.
std::optional<uint8_t> ByteOfCharacter(std::string_view token);

class BpeTokenizer final : public VocabTokenizer {
 public:
  // Errors: see Tokenizer::Create. Requires: spec.model == "gpt2".
  static Result<std::unique_ptr<const BpeTokenizer>> Create(TokenizerSpec spec);

 private:
  class TextRun;

  explicit BpeTokenizer(TokenizerSpec spec) : VocabTokenizer(std::move(spec)) {}
  std::unique_ptr<Run> NewRun(size_t text_bytes) const override;
  void AppendTokenBytes(TokenId id, std::string& out) const override;
  std::string Normalized(std::string_view token) const override;
  Status BuildMerges();
  void BuildWholePieces();

  std::unique_ptr<const PreTokenizer> pre_tokenizer_;
  bool normalizes_nfc_ = false;
  bool whole_piece_first_ = false;
  std::unique_ptr<const BpeMerger> merger_;
  std::unordered_map<std::string_view, TokenId> whole_;  // bytes to id; whole_piece_first_ kinds
};

}  // namespace kvrm
