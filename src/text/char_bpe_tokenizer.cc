#include "text/char_bpe_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <unordered_set>

#include "text/nfc.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

constexpr std::string_view kBlank = "\u2581";

// The byte that "<0xNN>" names.
std::optional<uint8_t> ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto parsed = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (parsed.ec != std::errc() || parsed.ptr != token.data() + 5) return std::nullopt;
  return byte;
}

void AppendEscaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    if (c == ' ') {
      out += kBlank;
    } else {
      out += c;
    }
  }
}

}  // namespace

class CharBpeTokenizer::TextRun final : public Run {
 public:
  TextRun(const CharBpeTokenizer& tokenizer, size_t text_bytes)
      : Run(text_bytes), tokenizer_(tokenizer) {}

  // Blanks are written, and one is put in front, by the normalizer, before special tokens are
  // looked for again; or, where the rule for the prefix says so, behind that, in each text between
  // them.
  void AddText(std::string_view text, bool is_first) override {
    if (tokenizer_.spec().nfc.value_or(false) && NormalizeNfc(text, normalized_)) {
      text = normalized_;
    }
    const SpecialTokenSet& special = tokenizer_.normalized_special();
    if (special.empty()) return AddPlain(Escape(text, is_first));
    if (!tokenizer_.normalizer_escapes()) {
      tokenizer_.CutAt(special, text, {}, *this, [&](std::string_view between, size_t begin) {
        AddPlain(Escape(between, is_first && begin == 0));
      });
      return;
    }
    tokenizer_.CutAt(special, Escape(text, is_first), {}, *this,
                     [this](std::string_view between, size_t) { AddPlain(between); });
  }

 private:
  std::string_view Escape(std::string_view text, bool is_first) {
    escaped_.clear();
    if (tokenizer_.spec().add_space_prefix && WantsPrefix(text, is_first)) escaped_ = kBlank;
    AppendEscaped(text, escaped_);
    return escaped_;
  }

  // `whole`: escaped.
  void AddPlain(std::string_view whole) {
    line_end_ = 0;
    for (size_t begin = 0; begin < whole.size();) {
      const size_t end = PieceEnd(whole, begin);
      const std::string_view piece = whole.substr(begin, end - begin);
      AddPiece(piece, [&] { Merge(piece); });
      begin = end;
    }
  }

  bool WantsPrefix(std::string_view text, bool is_first) const {
    const SpacePrefix rule = tokenizer_.spec().space_prefix;
    if (rule == SpacePrefix::kEach) return true;
    if (text.starts_with(' ') || text.starts_with(kBlank)) return false;
    return rule == SpacePrefix::kEachUnlessBlank || is_first;
  }

  // Looks no further than the line, or to the line's end once for all its pieces: a text of many
  // lines and no blank, or the other way round, takes time in proportion to its length (B053).
  size_t PieceEnd(std::string_view text, size_t begin) {
    if (tokenizer_.cuts_line_ends_) {
      if (text[begin] == '\n') return std::min(text.find_first_not_of('\n', begin), text.size());
      if (line_end_ <= begin) line_end_ = Find(text, "\n", begin);
      text = text.substr(0, line_end_);
    }
    if (tokenizer_.spec().cuts_at_blanks) return Find(text, kBlank, begin + 1);
    if (!tokenizer_.blank_begins_piece_) return text.size();
    size_t at = begin;
    while (text.substr(at).starts_with(kBlank)) at += kBlank.size();
    return Find(text, kBlank, at);
  }

  size_t Find(std::string_view text, std::string_view what, size_t from) {
    const size_t found = std::min(text.find(what, from), text.size());
    scratch_.steps += found - std::min(from, found);
    return found;
  }

  void Merge(std::string_view piece) {
    scratch_.ids.clear();
    for (size_t at = 0; at < piece.size();) {
      const Utf8Step step = NextUtf8(piece, at);
      const std::string_view character = piece.substr(at, step.length);
      const Symbol symbol =
          step.status == Utf8Status::kValid ? tokenizer_.SymbolOf(character) : Symbol{-1};
      if (symbol >= 0) {
        scratch_.ids.push_back(symbol);
      } else {
        // Byte tokens and the unknown token are never part of a merge.
        tokenizer_.AppendFallback(character, scratch_.ids);
      }
      at += step.length;
    }
    const size_t begin = out_.size();
    tokenizer_.merger_->MergeIds(scratch_, out_);
    WriteBareCharacters(begin);
  }

  // Characters without a token that were not merged.
  void WriteBareCharacters(size_t begin) {
    const auto vocab_size = static_cast<TokenId>(tokenizer_.vocab_size());
    const auto is_bare = [&](TokenId id) { return id >= vocab_size; };
    const auto first =
        std::find_if(out_.begin() + static_cast<ptrdiff_t>(begin), out_.end(), is_bare);
    if (first == out_.end()) return;
    const std::vector<TokenId> rest(first, out_.end());
    out_.erase(first, out_.end());
    for (const TokenId id : rest) {
      if (is_bare(id)) {
        tokenizer_.AppendFallback(tokenizer_.bare_characters_[static_cast<size_t>(id - vocab_size)],
                                  out_);
      } else {
        AddToken(id);
      }
    }
  }

  const CharBpeTokenizer& tokenizer_;
  std::string normalized_;
  std::string escaped_;
  size_t line_end_ = 0;  // where the line of the last piece ended
};

std::unique_ptr<VocabTokenizer::Run> CharBpeTokenizer::NewRun(size_t text_bytes) const {
  return std::make_unique<TextRun>(*this, text_bytes);
}

void CharBpeTokenizer::AppendTokenBytes(TokenId id, std::string& out) const {
  const std::string_view token = spec_.tokens[static_cast<size_t>(id)];
  if (spec_.types[static_cast<size_t>(id)] == TokenType::kByte) {
    out.push_back(static_cast<char>(ByteOf(token).value_or(0)));
    return;
  }
  for (size_t at = 0; at < token.size();) {
    if (token.substr(at).starts_with(kBlank)) {
      out += ' ';
      at += kBlank.size();
    } else {
      out += token[at++];
    }
  }
}

std::string CharBpeTokenizer::Normalized(std::string_view token) const {
  std::string composed, normalized;
  if (spec_.nfc.value_or(false) && NormalizeNfc(token, composed)) token = composed;
  if (!normalizer_escapes()) return std::string(token);
  if (spec_.add_space_prefix) normalized = kBlank;
  AppendEscaped(token, normalized);
  return normalized;
}

CharBpeTokenizer::Symbol CharBpeTokenizer::SymbolOf(std::string_view text) const {
  const auto found = symbols_.find(text);
  return found == symbols_.end() ? Symbol{-1} : found->second;
}

void CharBpeTokenizer::AppendFallback(std::string_view text, std::vector<TokenId>& out) const {
  const auto token_of = [&](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
  if (std::ranges::all_of(text, [&](char byte) { return token_of(byte) >= 0; })) {
    for (const char byte : text) out.push_back(token_of(byte));
  } else if (unknown_ >= 0 && (!spec_.fuse_unknown || out.empty() || out.back() != unknown_)) {
    out.push_back(unknown_);
  }
}

Status CharBpeTokenizer::BuildSymbols() {
  byte_tokens_.fill(-1);
  symbols_.reserve(spec_.tokens.size());
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::string_view token = spec_.tokens[i];
    if (spec_.types[i] == TokenType::kByte) {
      const std::optional<uint8_t> byte = ByteOf(token);
      if (!byte) {
        return InvalidInput("tokenizer.ggml.tokens[" + std::to_string(i) + "]: \"" +
                            ForMessage(token) + "\" is of type byte, but not written <0xNN>");
      }
      if (byte_tokens_[*byte] < 0) byte_tokens_[*byte] = id;
    } else if (!IsLiteral(id) && !token.empty()) {
      symbols_.emplace(token, id);
    }
  }
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const std::string_view token = spec_.tokens[i];
    if (IsLiteral(static_cast<TokenId>(i)) || spec_.types[i] == TokenType::kByte) continue;
    bool after_other = false;
    for (size_t at = 0; at < token.size();) {
      const std::string_view character = token.substr(at, NextUtf8(token, at).length);
      const auto bare = static_cast<Symbol>(spec_.tokens.size() + bare_characters_.size());
      if (symbols_.emplace(character, bare).second) bare_characters_.push_back(character);
      if (character == kBlank && after_other) blank_begins_piece_ = false;
      if (character != kBlank) after_other = true;
      at += character.size();
    }
  }
  return Ok();
}

// Two neighbours merge where what they make together is a token, the best score first.
Status CharBpeTokenizer::BuildFromScores() {
  if (spec_.scores.empty()) {
    return InvalidInput("tokenizer.ggml.scores: missing; model \"llama\" needs one a token");
  }
  std::vector<float> levels = spec_.scores;
  std::ranges::sort(levels, std::greater<>{});
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  std::vector<BpeMerge> merges;
  std::vector<uint32_t> ranks;
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const std::string_view token = spec_.tokens[i];
    if (SymbolOf(token) != static_cast<Symbol>(i)) continue;  // no symbol, or the same text again
    const auto level = std::ranges::lower_bound(levels, spec_.scores[i], std::greater<>{});
    const auto rank = static_cast<uint32_t>(level - levels.begin());
    for (size_t at = NextUtf8(token, 0).length; at < token.size();
         at += NextUtf8(token, at).length) {
      const BpeMerge merge{SymbolOf(token.substr(0, at)), SymbolOf(token.substr(at)),
                           static_cast<TokenId>(i)};
      if (merge.left < 0 || merge.right < 0) continue;
      merges.push_back(merge);
      ranks.push_back(rank);
    }
  }
  merger_ = std::make_unique<BpeMerger>(merges, ranks);
  return Ok();
}

Status CharBpeTokenizer::BuildFromMerges() {
  std::unordered_set<std::string_view> literals;
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    if (IsLiteral(static_cast<TokenId>(i))) literals.insert(spec_.tokens[i]);
  }
  std::vector<BpeMerge> merges;
  merges.reserve(spec_.merges.size());
  std::string both;
  for (size_t i = 0; i < spec_.merges.size(); ++i) {
    KVRM_ASSIGN_OR_RETURN(const auto parts, SplitMerge(spec_, i));
    both = parts.first;
    both += parts.second;
    const BpeMerge merge{SymbolOf(parts.first), SymbolOf(parts.second), SymbolOf(both)};
    if (literals.contains(both)) continue;  // merging must not be a second way to a special token
    if (merge.left < 0 || merge.right < 0 || merge.merged < 0) return UnknownMerge(spec_, i);
    merges.push_back(merge);
  }
  merger_ = std::make_unique<BpeMerger>(merges, std::span<const uint32_t>());
  return Ok();
}

Result<std::unique_ptr<const CharBpeTokenizer>> CharBpeTokenizer::Create(TokenizerSpec spec) {
  std::unique_ptr<CharBpeTokenizer> tokenizer(new CharBpeTokenizer(std::move(spec)));
  KVRM_RETURN_IF_ERROR(tokenizer->CheckSpec());
  tokenizer->SettleTypes();
  tokenizer->SettleMarks();
  KVRM_RETURN_IF_ERROR(tokenizer->BuildSymbols());
  const TokenId unknown = tokenizer->spec().unknown;
  const bool is_mark = tokenizer->IsEnd(unknown) || unknown == tokenizer->spec().bos;
  tokenizer->unknown_ = is_mark ? TokenId{-1} : unknown;
  tokenizer->cuts_line_ends_ = tokenizer->spec().model == "gemma4";
  const bool by_merges = tokenizer->cuts_line_ends_ ||
                         (tokenizer->spec().scores.empty() && !tokenizer->spec().merges.empty());
  KVRM_RETURN_IF_ERROR(by_merges ? tokenizer->BuildFromMerges() : tokenizer->BuildFromScores());
  tokenizer->BuildBytes();
  tokenizer->BuildSpecial();
  return std::unique_ptr<const CharBpeTokenizer>(std::move(tokenizer));
}

}  // namespace kvrm
