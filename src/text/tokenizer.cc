#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "text/bpe_tokenizer.h"
#include "text/char_bpe_tokenizer.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

// Texts of control tokens that end a turn or a document, over all supported families.
constexpr std::array<std::string_view, 11> kEndTexts{
    "<|im_end|>",    "<|endoftext|>",   "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
    "<end_of_turn>", "<|end_of_turn|>", "<|end|>",    "<|eot|>",    "<|EOT|>",
    "</s>"};

// What GGUF files call kinds that are not built, and what people call them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOtherKinds{
    {{"t5", " (unigram)"}, {"bert", " (WordPiece)"}, {"rwkv", " (RWKV)"}}};

}  // namespace

Result<std::unique_ptr<const Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  if (spec.model == "gpt2") {
    KVRM_ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer,
                          BpeTokenizer::Create(std::move(spec)));
    return tokenizer;
  }
  if (spec.model == "llama" || spec.model == "gemma4") {
    KVRM_ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer,
                          CharBpeTokenizer::Create(std::move(spec)));
    return tokenizer;
  }
  const auto other = std::ranges::find(kOtherKinds, std::string_view(spec.model),
                                       &decltype(kOtherKinds)::value_type::first);
  return Unsupported("tokenizer.ggml.model: \"" + ForMessage(spec.model) + "\"" +
                     (other == kOtherKinds.end() ? "" : std::string(other->second)) +
                     " is not supported; known: gemma4, gpt2, llama");
}

void Tokenizer::SettleTypes() {
  spec_.types.resize(spec_.tokens.size(), TokenType::kNormal);
  const auto add_end = [&](TokenId id) {
    if (id >= 0 && !IsEnd(id)) end_tokens_.push_back(id);
  };
  add_end(spec_.eos);
  add_end(spec_.eot);
  for (const TokenId id : spec_.ends) add_end(id);
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const TokenType type = spec_.types[i];
    const bool special = type == TokenType::kControl || type == TokenType::kUserDefined;
    if (special && std::ranges::find(kEndTexts, spec_.tokens[i]) != kEndTexts.end()) {
      add_end(static_cast<TokenId>(i));
    }
  }
  for (const TokenId id : end_tokens_) spec_.types[static_cast<size_t>(id)] = TokenType::kControl;
  if (spec_.bos >= 0) spec_.types[static_cast<size_t>(spec_.bos)] = TokenType::kControl;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool with_special) const {
  std::string text;
  bool prefixed = spec_.add_space_prefix && spec_.model != "gpt2";  // a blank of Encode's own
  const bool only_first = spec_.space_prefix == SpacePrefix::kFirstUnlessBlank;
  bool begins = true;
  for (const TokenId id : ids) {
    std::string_view bytes = TokenBytes(id, with_special);
    const TokenType type = spec_.types[static_cast<size_t>(id)];
    const bool is_special = type == TokenType::kControl || type == TokenType::kUserDefined;
    if (prefixed && begins && !is_special && bytes.starts_with(' ')) bytes.remove_prefix(1);
    begins = is_special;
    if (only_first) prefixed = false;
    text += bytes;
  }
  return text;
}

bool Tokenizer::IsEnd(TokenId id) const {
  return std::ranges::find(end_tokens_, id) != end_tokens_.end();
}

bool Tokenizer::IsControl(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < spec_.types.size() &&
         spec_.types[static_cast<size_t>(id)] == TokenType::kControl;
}

void AddStartToken(const Tokenizer& tokenizer, std::vector<TokenId>& ids) {
  const TokenizerSpec& spec = tokenizer.spec();
  if (!spec.add_bos || spec.bos < 0 || (!ids.empty() && ids[0] == spec.bos)) return;
  ids.insert(ids.begin(), spec.bos);
}

}  // namespace kvrm
