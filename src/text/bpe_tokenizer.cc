#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "text/nfc.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

// GPT-2 writes each byte as one printable character: those that are printable in Latin-1 as
// themselves, the others from U+0100 on in ascending order.
constexpr bool IsOwnCharacter(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteCharacters {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 512> byte{};  // by code point; -1 = no byte character
};

constexpr ByteCharacters MakeByteCharacters() {
  ByteCharacters map;
  map.byte.fill(-1);
  char32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    map.character[byte] = IsOwnCharacter(byte) ? byte : next++;
    map.byte[map.character[byte]] = static_cast<int16_t>(byte);
  }
  return map;
}

constexpr ByteCharacters kByteCharacters = MakeByteCharacters();

// The bytes that a normal token stands for. Characters outside GPT-2's alphabet, which some files
// hold, stand for their own UTF-8 bytes.
void AppendTokenBytes(std::string_view token, std::string& out) {
  for (size_t at = 0; at < token.size();) {
    const Utf8Step step = NextUtf8(token, at);
    const bool known = step.status == Utf8Status::kValid && step.code_point < 512 &&
                       kByteCharacters.byte[step.code_point] >= 0;
    if (known) {
      out.push_back(static_cast<char>(kByteCharacters.byte[step.code_point]));
    } else {
      out += token.substr(at, step.length);
    }
    at += step.length;
  }
}

std::string At(std::string_view field, size_t index) {
  return std::string(field) + "[" + std::to_string(index) + "]";
}

bool IsLiteral(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown || type == TokenType::kUnused;
}

// Pieces met before in the same text: their tokens are copied from where they stand in the output.
// Direct-mapped; a lost entry costs a merge, nothing else.
class PieceCache {
 public:
  struct Hit {
    size_t out_begin = 0;
    uint32_t count = 0;  // 0 = not found
  };

  // Returns where the tokens of `piece` stand. The entry is `piece`'s from now on: the caller
  // passes the place at which its tokens will begin, and calls Filled() when they are there.
  Hit FindOrClaim(std::string_view piece, size_t out_begin) {
    claimed_ = nullptr;
    if (piece.size() > kMaxPiece) return {};
    if (entries_.empty()) entries_.resize(kSize);
    Entry& entry = entries_[std::hash<std::string_view>{}(piece) % kSize];
    if (entry.count > 0 && entry.size == piece.size() &&
        std::memcmp(entry.bytes, piece.data(), piece.size()) == 0) {
      return {entry.out_begin, entry.count};
    }
    entry.size = static_cast<uint8_t>(piece.size());
    std::memcpy(entry.bytes, piece.data(), piece.size());
    entry.out_begin = out_begin;
    entry.count = 0;
    claimed_ = &entry;
    return {};
  }
  void Filled(size_t out_end) {
    if (claimed_ != nullptr) claimed_->count = static_cast<uint32_t>(out_end - claimed_->out_begin);
  }

 private:
  static constexpr size_t kMaxPiece = 19;
  static constexpr size_t kSize = 4096;
  struct Entry {
    size_t out_begin;
    uint32_t count;
    uint8_t size;
    char bytes[kMaxPiece];
  };
  static_assert(sizeof(Entry) == 32);
  std::vector<Entry> entries_;
  Entry* claimed_ = nullptr;
};

}  // namespace

class BpeTokenizer::Run {
 public:
  Run(const BpeTokenizer& tokenizer, size_t text_bytes)
      : tokenizer_(tokenizer), use_cache_(text_bytes >= kCacheFromBytes) {
    out_.reserve(text_bytes / 4 + 1);
  }

  void AddToken(TokenId id) { out_.push_back(id); }

  // Text without special tokens.
  void AddText(std::string_view text) {
    if (text.empty()) return;
    if (tokenizer_.pre_tokenizer_->traits().normalizes_nfc && NormalizeNfc(text, normalized_)) {
      text = normalized_;
    }
    tokenizer_.pre_tokenizer_->Split(text, ends_);
    size_t begin = 0;
    for (const size_t end : ends_) {
      AddPiece(text.substr(begin, end - begin));
      begin = end;
    }
  }

  std::vector<TokenId> TakeOutput() { return std::move(out_); }
  uint64_t steps() const { return scratch_.steps; }

 private:
  static constexpr size_t kCacheFromBytes = 4096;  // below, filling the cache costs more

  void AddPiece(std::string_view piece) {
    if (tokenizer_.pre_tokenizer_->traits().whole_piece_first) {
      const auto found = tokenizer_.whole_.find(piece);
      if (found != tokenizer_.whole_.end()) return AddToken(found->second);
    }
    if (!use_cache_ || piece.size() == 1) return tokenizer_.merger_->Merge(piece, scratch_, out_);
    const PieceCache::Hit hit = cache_.FindOrClaim(piece, out_.size());
    for (uint32_t i = 0; i < hit.count; ++i) AddToken(out_[hit.out_begin + i]);
    if (hit.count > 0) return;
    tokenizer_.merger_->Merge(piece, scratch_, out_);
    cache_.Filled(out_.size());
  }

  const BpeTokenizer& tokenizer_;
  const bool use_cache_;
  PieceCache cache_;
  BpeScratch scratch_;
  std::string normalized_;
  std::vector<size_t> ends_;
  std::vector<TokenId> out_;
};

Status BpeTokenizer::Check() const {
  const size_t size = spec_.tokens.size();
  constexpr size_t kMaxTokens = size_t{1} << 24;
  if (size == 0 || size > kMaxTokens) {
    return InvalidInput("tokenizer.ggml.tokens: " + std::to_string(size) +
                        " tokens; 1 to 16777216 are allowed");
  }
  const auto check_count = [&](const char* field, size_t count) -> Status {
    if (count == 0 || count == size) return Ok();
    return InvalidInput(std::string(field) + ": " + std::to_string(count) + " entries for " +
                        std::to_string(size) + " tokens");
  };
  KVRM_RETURN_IF_ERROR(check_count("tokenizer.ggml.token_type", spec_.types.size()));
  KVRM_RETURN_IF_ERROR(check_count("tokenizer.ggml.scores", spec_.scores.size()));
  for (size_t i = 0; i < spec_.types.size(); ++i) {
    const auto type = static_cast<unsigned>(spec_.types[i]);
    if (type >= 1 && type <= 6) continue;
    return InvalidInput(At("tokenizer.ggml.token_type", i) + ": " + std::to_string(type) +
                        "; 1 to 6 are known");
  }
  const std::pair<const char*, TokenId> ids[] = {
      {"tokenizer.ggml.bos_token_id", spec_.bos},
      {"tokenizer.ggml.eos_token_id", spec_.eos},
      {"tokenizer.ggml.eot_token_id", spec_.eot},
      {"tokenizer.ggml.unknown_token_id", spec_.unknown},
      {"tokenizer.ggml.padding_token_id", spec_.padding}};
  for (const auto& [field, id] : ids) {
    if (id >= -1 && id < static_cast<int64_t>(size)) continue;
    return InvalidInput(std::string(field) + ": " + std::to_string(id) + " is not below " +
                        std::to_string(size));
  }
  return Ok();
}

Status BpeTokenizer::BuildMerges() {
  std::unordered_map<std::string_view, TokenId> ids;
  ids.reserve(spec_.tokens.size());
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    ids.emplace(spec_.tokens[i], static_cast<TokenId>(i));
  }
  const auto id_of = [&](std::string_view token) {
    const auto found = ids.find(token);
    return found == ids.end() ? TokenId{-1} : found->second;
  };
  std::array<TokenId, 256> byte_tokens;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string token;
    AppendUtf8(kByteCharacters.character[byte], token);
    byte_tokens[byte] = id_of(token);
    // A special token that looks like a byte character is not that byte.
    if (byte_tokens[byte] >= 0 && IsLiteral(spec_.types[static_cast<size_t>(byte_tokens[byte])])) {
      byte_tokens[byte] = -1;
    }
  }
  std::vector<BpeMerge> merges;
  merges.reserve(spec_.merges.size());
  std::string both;
  for (size_t i = 0; i < spec_.merges.size(); ++i) {
    const std::string_view merge = spec_.merges[i];
    const size_t blank = merge.find(' ');
    if (blank == 0 || blank == std::string_view::npos || blank + 1 == merge.size()) {
      return InvalidInput(At("tokenizer.ggml.merges", i) + ": \"" + ForMessage(merge) +
                          "\" is not two tokens with a blank between them");
    }
    both = merge.substr(0, blank);
    both += merge.substr(blank + 1);
    const BpeMerge found{id_of(merge.substr(0, blank)), id_of(merge.substr(blank + 1)),
                         id_of(both)};
    if (found.left < 0 || found.right < 0 || found.merged < 0) {
      return InvalidInput(At("tokenizer.ggml.merges", i) + ": \"" + ForMessage(merge) +
                          "\": a part or the whole is no token of the vocabulary");
    }
    // Merging must not be a second way to a control token.
    if (spec_.types[static_cast<size_t>(found.merged)] == TokenType::kControl) continue;
    merges.push_back(found);
  }
  merger_ = std::make_unique<BpeMerger>(byte_tokens, merges);
  return Ok();
}

void BpeTokenizer::BuildBytes() {
  byte_end_.reserve(spec_.tokens.size());
  is_plain_.reserve(spec_.tokens.size());
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const TokenType type = spec_.types[i];
    if (IsLiteral(type)) {
      bytes_ += spec_.tokens[i];
    } else {
      AppendTokenBytes(spec_.tokens[i], bytes_);
    }
    byte_end_.push_back(bytes_.size());
    is_plain_.push_back(!IsLiteral(type) || type == TokenType::kUserDefined);
  }
  if (!pre_tokenizer_->traits().whole_piece_first) return;
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!IsLiteral(spec_.types[i])) whole_.emplace(TokenBytes(id, /*with_special=*/true), id);
  }
}

void BpeTokenizer::BuildSpecial() {
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const TokenType type = spec_.types[i];
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    special_.Add(spec_.tokens[i], static_cast<TokenId>(i), type == TokenType::kControl);
  }
}

Result<std::unique_ptr<const BpeTokenizer>> BpeTokenizer::Create(TokenizerSpec spec) {
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(spec)));
  KVRM_RETURN_IF_ERROR(tokenizer->Check());
  KVRM_ASSIGN_OR_RETURN(tokenizer->pre_tokenizer_, PreTokenizer::Create(tokenizer->spec_.pre));
  tokenizer->SettleTypes();
  KVRM_RETURN_IF_ERROR(tokenizer->BuildMerges());
  tokenizer->BuildBytes();
  tokenizer->BuildSpecial();
  return std::unique_ptr<const BpeTokenizer>(std::move(tokenizer));
}

std::vector<TokenId> BpeTokenizer::Encode(std::string_view text, SpecialTokens special) const {
  const ControlRange all{0, text.size()};
  if (special == SpecialTokens::kParse) return EncodeRanges(text, {&all, 1});
  return EncodeRanges(text, {});
}

std::vector<TokenId> BpeTokenizer::EncodeRanges(std::string_view text,
                                                std::span<const ControlRange> control) const {
  uint64_t steps = 0;
  return EncodeCounting(text, control, steps);
}

std::vector<TokenId> BpeTokenizer::EncodeCounting(std::string_view text,
                                                  std::span<const ControlRange> control,
                                                  uint64_t& steps) const {
  Run run(*this, text.size());
  size_t at = 0;
  while (at < text.size()) {
    const SpecialTokenSet::Match match = special_.FindNext(text, at, control);
    run.AddText(text.substr(at, match.begin - at));
    if (match.id >= 0) run.AddToken(match.id);
    at = match.end;
  }
  steps += run.steps();
  return run.TakeOutput();
}

std::string_view BpeTokenizer::TokenBytes(TokenId id, bool with_special) const {
  KVRM_CHECK(id >= 0 && static_cast<size_t>(id) < byte_end_.size(),
             "a token id is in the vocabulary");
  const auto index = static_cast<size_t>(id);
  if (!with_special && !is_plain_[index]) return {};
  const size_t begin = index == 0 ? 0 : byte_end_[index - 1];
  return std::string_view(bytes_).substr(begin, byte_end_[index] - begin);
}

}  // namespace kvrm
