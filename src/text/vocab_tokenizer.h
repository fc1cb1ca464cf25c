// What the tokenizers over a vocabulary with merges share: the checks of a spec, the bytes of each
// token, special tokens in text. Immutable after creation; thread-safe. A kind brings the cut of
// plain text into tokens as a Run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe.h"
#include "text/piece_cache.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"

namespace kvrm {

class VocabTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> Encode(std::string_view text, SpecialTokens special) const final;
  std::vector<TokenId> EncodeRanges(std::string_view text,
                                    std::span<const ControlRange> control) const final;
  std::string_view TokenBytes(TokenId id, bool with_special) const final;

  // EncodeRanges that adds the merge steps it took to `steps`.
  std::vector<TokenId> EncodeCounting(std::string_view text, std::span<const ControlRange> control,
                                      uint64_t& steps) const;

 protected:
  // One call of EncodeRanges: tokens are added in the order of the text.
  class Run {
   public:
    explicit Run(size_t text_bytes) : use_cache_(text_bytes >= kCacheFromBytes) {
      out_.reserve(text_bytes / 4 + 1);
    }
    virtual ~Run() = default;
    // Text between special tokens, never empty. `is_first`: nothing stood before it.
    virtual void AddText(std::string_view text, bool is_first) = 0;

    void AddToken(TokenId id) { out_.push_back(id); }
    std::vector<TokenId> TakeOutput() { return std::move(out_); }
    uint64_t steps() const { return scratch_.steps; }

   protected:
    // The tokens of a piece: those it had before in this text, or what `merge` appends to out_.
    template <class Merge>
    void AddPiece(std::string_view piece, Merge merge) {
      if (!use_cache_ || piece.size() == 1) return merge();
      const PieceCache::Hit hit = cache_.FindOrClaim(piece, out_.size());
      for (uint32_t i = 0; i < hit.count; ++i) AddToken(out_[hit.out_begin + i]);
      if (hit.count > 0) return;
      merge();
      cache_.Filled(out_.size());
    }

    BpeScratch scratch_;
    std::vector<TokenId> out_;

   private:
    static constexpr size_t kCacheFromBytes = 4096;  // below, filling the cache costs more
    const bool use_cache_;
    PieceCache cache_;
  };

  explicit VocabTokenizer(TokenizerSpec spec) { spec_ = std::move(spec); }

  virtual std::unique_ptr<Run> NewRun(size_t text_bytes) const = 0;
  // What a text that holds `token` holds once it is normalized, as if it began with it.
  virtual std::string Normalized(std::string_view token) const = 0;

  // Adds the tokens of `set` that are in `text` to `run`, in order, and gives what lies between
  // them to `add_text(text, begin)`, which is never empty. `begin`: where in `text` it begins.
  template <class AddBetween>
  void CutAt(const SpecialTokenSet& set, std::string_view text,
             std::span<const ControlRange> control, Run& run, AddBetween add_text) const {
    for (size_t at = 0; at < text.size();) {
      const SpecialTokenSet::Match match = set.FindNext(text, at, control);
      const size_t end = BetweenEnd(text, at, match);
      if (end > at) add_text(text.substr(at, end - at), at);
      if (match.id >= 0) run.AddToken(match.id);
      at = AfterMatch(text, match);
    }
  }
  // Those that are found in normalized text (kFoundNormalized); no marks.
  const SpecialTokenSet& normalized_special() const { return normalized_special_; }
  // Appends the bytes that a token of the vocabulary's own (no special one) stands for.
  virtual void AppendTokenBytes(TokenId id, std::string& out) const = 0;

  uint8_t FoundOf(TokenId id) const;
  Status CheckSpec() const;  // sizes, types, ids
  // Finds the marks of the chat template. Requires: CheckSpec() is ok and SettleTypes() was called.
  void SettleMarks();
  // Requires: SettleMarks() was called.
  void BuildBytes();
  void BuildSpecial();
  // Its text stands for itself, wherever it is found: special tokens and their like.
  bool IsLiteral(TokenId id) const;
  // Recognised only where the caller allows control tokens: those, and user-defined tokens that are
  // written as marks of a turn, or that the chat template has (which print, other than control
  // tokens).
  bool IsMark(TokenId id) const;

 private:
  // Less the white space that the token takes along, before it and after it.
  size_t BetweenEnd(std::string_view text, size_t at, const SpecialTokenSet::Match& match) const;
  size_t AfterMatch(std::string_view text, const SpecialTokenSet::Match& match) const;

  SpecialTokenSet special_, normalized_special_;
  std::vector<bool> template_marks_;  // [tokens] user-defined ones that the chat template has
  std::string bytes_;                 // all token bytes, one after the other
  std::vector<size_t> byte_end_;      // [tokens] where each ends
  std::vector<bool> is_plain_;        // [tokens] has bytes without `with_special`
};

// The two tokens that a merge of a spec names. Errors: no two parts with a blank between them.
Result<std::pair<std::string_view, std::string_view>> SplitMerge(const TokenizerSpec& spec,
                                                                 size_t index);
// The error for a merge of which a part or the whole is no token.
Error UnknownMerge(const TokenizerSpec& spec, size_t index);

}  // namespace kvrm
