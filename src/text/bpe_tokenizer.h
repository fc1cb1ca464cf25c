// The tokenizer of byte-level BPE files ("gpt2" in GGUF terms). Immutable after creation;
// thread-safe. Made through Tokenizer::Create; this header is for that and for tests.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace kvrm {

class BpeTokenizer final : public Tokenizer {
 public:
  // Errors: see Tokenizer::Create. Requires: spec.model == "gpt2".
  static Result<std::unique_ptr<const BpeTokenizer>> Create(TokenizerSpec spec);

  std::vector<TokenId> Encode(std::string_view text, SpecialTokens special) const override;
  std::vector<TokenId> EncodeRanges(std::string_view text,
                                    std::span<const ControlRange> control) const override;
  std::string_view TokenBytes(TokenId id, bool with_special) const override;

  // EncodeRanges that adds the merge steps it took to `steps`.
  std::vector<TokenId> EncodeCounting(std::string_view text, std::span<const ControlRange> control,
                                      uint64_t& steps) const;

 private:
  class Run;  // one call of EncodeRanges

  explicit BpeTokenizer(TokenizerSpec spec) { spec_ = std::move(spec); }
  Status Check() const;
  Status BuildMerges();
  void BuildBytes();
  void BuildSpecial();

  std::unique_ptr<const PreTokenizer> pre_tokenizer_;
  std::unique_ptr<const BpeMerger> merger_;
  SpecialTokenSet special_;
  std::string bytes_;             // all token bytes, one after the other
  std::vector<size_t> byte_end_;  // [tokens] where each ends
  std::vector<bool> is_plain_;    // [tokens] has bytes without `with_special`
  std::unordered_map<std::string_view, TokenId> whole_;  // bytes to id; whole_piece_first kinds
};

}  // namespace kvrm
