// Tokenizer: text to token ids and back, from what the model file says. Immutable after creation;
// thread-safe.
//
// Kinds: byte-level BPE ("gpt2" in GGUF terms) with the pre-tokenizers of a table, and BPE over
// characters with bytes to fall back to (SentencePiece's: "llama", "gemma4"). Special (control)
// tokens are recognised in the text only where the caller allows it: user text can never forge a
// control token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/tokenizer_spec.h"
#include "text/special_tokens.h"

namespace kvrm {

enum class SpecialTokens : uint8_t { kAsText, kParse };

class Tokenizer {
 public:
  // Errors: unknown model or pre (named, with the list of what is known), sizes that contradict
  // each other, ids out of range, merges that name no token.
  static Result<std::unique_ptr<const Tokenizer>> Create(TokenizerSpec spec);
  virtual ~Tokenizer() = default;

  // Time near linear in the text's length, whatever the text (B053). Adds no BOS or EOS.
  virtual std::vector<TokenId> Encode(std::string_view text, SpecialTokens special) const = 0;
  // The same where only some of the text may hold control tokens: those that lie as a whole inside
  // one of `control` (ascending, not overlapping, within the text) are parsed, nothing else of it.
  virtual std::vector<TokenId> EncodeRanges(std::string_view text,
                                            std::span<const ControlRange> control) const = 0;
  // The bytes of one token ("" for control tokens unless `with_special`).
  virtual std::string_view TokenBytes(TokenId id, bool with_special) const = 0;

  // What Encode was given: the tokens' bytes, less the blank that it puts before a text where
  // spec().add_space_prefix says so. (Tokens that continue a text are TokenBytes one after the
  // other: there the blank is the text's own. TextStream does that.)
  std::string Decode(std::span<const TokenId> ids, bool with_special = false) const;
  const TokenizerSpec& spec() const { return spec_; }
  uint32_t vocab_size() const { return static_cast<uint32_t>(spec_.tokens.size()); }
  // Ids that end a generation: eos, eot, and control tokens that the family uses to end a turn.
  const std::vector<TokenId>& end_tokens() const { return end_tokens_; }
  bool IsEnd(TokenId id) const;
  bool IsControl(TokenId id) const;

 protected:
  // Fills `end_tokens_`, and settles `spec_.types`: one entry a token, and what begins or ends a
  // text or a turn is a control token whatever type the file gives it, so that no user can write
  // it. Requires: sizes and ids of `spec_` are checked.
  void SettleTypes();

  TokenizerSpec spec_;
  std::vector<TokenId> end_tokens_;
};

// Puts the start token before `ids` where the model asks for it and they do not begin with it.
void AddStartToken(const Tokenizer& tokenizer, std::vector<TokenId>& ids);

}  // namespace kvrm
