#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

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

}  // namespace

std::optional<uint8_t> ByteOfCharacter(std::string_view token) {
  if (token.empty()) return std::nullopt;
  const Utf8Step step = NextUtf8(token, 0);
  const bool known = step.status == Utf8Status::kValid && step.length == token.size() &&
                     step.code_point < 512 && kByteCharacters.byte[step.code_point] >= 0;
  if (!known) return std::nullopt;
  return static_cast<uint8_t>(kByteCharacters.byte[step.code_point]);
}

class BpeTokenizer::TextRun final : public Run {
 public:
  TextRun(const BpeTokenizer& tokenizer, size_t text_bytes)
      : Run(text_bytes), tokenizer_(tokenizer) {}

  void AddText(std::string_view text, bool) override {
    if (tokenizer_.normalizes_nfc_ && NormalizeNfc(text, normalized_)) text = normalized_;
    const SpecialTokenSet& special = tokenizer_.normalized_special();
    if (special.empty()) return AddPlain(text);
    tokenizer_.CutAt(special, text, {}, *this,
                     [this](std::string_view between, size_t) { AddPlain(between); });
  }

 private:
  void AddPlain(std::string_view text) {
    tokenizer_.pre_tokenizer_->Split(text, ends_);
    size_t begin = 0;
    for (const size_t end : ends_) {
      AddOne(text.substr(begin, end - begin));
      begin = end;
    }
  }
  void AddOne(std::string_view piece) {
    if (tokenizer_.whole_piece_first_) {
      const auto found = tokenizer_.whole_.find(piece);
      if (found != tokenizer_.whole_.end()) return AddToken(found->second);
    }
    AddPiece(piece, [&] { tokenizer_.merger_->Merge(piece, scratch_, out_); });
  }

  const BpeTokenizer& tokenizer_;
  std::string normalized_;
  std::vector<size_t> ends_;
};

std::unique_ptr<VocabTokenizer::Run> BpeTokenizer::NewRun(size_t text_bytes) const {
  return std::make_unique<TextRun>(*this, text_bytes);
}

std::string BpeTokenizer::Normalized(std::string_view token) const {
  std::string normalized;
  return normalizes_nfc_ && NormalizeNfc(token, normalized) ? normalized : std::string(token);
}

// Characters outside GPT-2's alphabet, which some files hold, stand for their own UTF-8 bytes.
void BpeTokenizer::AppendTokenBytes(TokenId id, std::string& out) const {
  const std::string_view token = spec_.tokens[static_cast<size_t>(id)];
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
    if (byte_tokens[byte] >= 0 && IsLiteral(byte_tokens[byte])) byte_tokens[byte] = -1;
  }
  std::vector<BpeMerge> merges;
  merges.reserve(spec_.merges.size());
  std::string both;
  for (size_t i = 0; i < spec_.merges.size(); ++i) {
    KVRM_ASSIGN_OR_RETURN(const auto parts, SplitMerge(spec_, i));
    both = parts.first;
    both += parts.second;
    const BpeMerge found{id_of(parts.first), id_of(parts.second), id_of(both)};
    if (found.left < 0 || found.right < 0 || found.merged < 0) return UnknownMerge(spec_, i);
    if (IsMark(found.merged)) continue;  // merging must not be a second way to one
    merges.push_back(found);
  }
  merger_ = std::make_unique<BpeMerger>(byte_tokens, merges);
  return Ok();
}

void BpeTokenizer::BuildWholePieces() {
  if (!whole_piece_first_) return;
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (!IsLiteral(id)) whole_.emplace(TokenBytes(id, /*with_special=*/true), id);
  }
}

Result<std::unique_ptr<const BpeTokenizer>> BpeTokenizer::Create(TokenizerSpec spec) {
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(spec)));
  KVRM_RETURN_IF_ERROR(tokenizer->CheckSpec());
  const TokenizerSpec& checked = tokenizer->spec();
  KVRM_ASSIGN_OR_RETURN(tokenizer->pre_tokenizer_, PreTokenizer::Create(checked.pre));
  const PreTokenizerTraits& traits = tokenizer->pre_tokenizer_->traits();
  tokenizer->normalizes_nfc_ = checked.nfc.value_or(traits.normalizes_nfc);
  tokenizer->spec_.nfc = tokenizer->normalizes_nfc_;
  tokenizer->whole_piece_first_ = checked.whole_piece_first.value_or(traits.whole_piece_first);
  if (checked.add_bos_unsaid) tokenizer->spec_.add_bos = traits.adds_start_token;
  tokenizer->spec_.add_bos_unsaid = false;
  tokenizer->SettleTypes();
  tokenizer->SettleMarks();
  KVRM_RETURN_IF_ERROR(tokenizer->BuildMerges());
  tokenizer->BuildBytes();
  tokenizer->BuildWholePieces();
  tokenizer->BuildSpecial();
  return std::unique_ptr<const BpeTokenizer>(std::move(tokenizer));
}

}  // namespace kvrm
