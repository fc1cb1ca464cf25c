#include "text/vocab_tokenizer.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "base/check.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

std::string At(std::string_view field, size_t index) {
  return std::string(field) + "[" + std::to_string(index) + "]";
}

// Unicode's White_Space.
bool IsSpaceAt(std::string_view text, size_t at) {
  const Utf8Step step = NextUtf8(text, at);
  const char32_t c = step.code_point;
  return step.status == Utf8Status::kValid &&
         ((c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
          (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
          c == 0x205F || c == 0x3000);
}

size_t EndOfSpace(std::string_view text, size_t at) {
  while (at < text.size() && IsSpaceAt(text, at)) at += NextUtf8(text, at).length;
  return at;
}

std::string_view WithoutSpaceAtEnd(std::string_view text) {
  for (;;) {
    size_t last = text.empty() ? 0 : text.size() - 1;
    while (last > 0 && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    if (text.empty() || !IsSpaceAt(text, last)) return text;
    text = text.substr(0, last);
  }
}

// Files hold marks of a turn as user-defined tokens too (Command R's all but the end of a turn,
// DeepSeek Coder's). What is written as a mark is recognised where control tokens are, not in what
// a user wrote (B052).
bool IsWrittenAsMark(std::string_view token) {
  constexpr std::string_view kBegins[] = {"<|", "<\uff5c", "<start_of_", "<end_of_"};
  constexpr std::string_view kEnds[] = {"|>", "\uff5c>"};
  constexpr std::string_view kWhole[] = {"[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"};
  return std::ranges::any_of(kBegins, [=](auto begin) { return token.starts_with(begin); }) ||
         std::ranges::any_of(kEnds, [=](auto end) { return token.ends_with(end); }) ||
         std::ranges::find(kWhole, token) != std::end(kWhole);
}

// What stands in brackets in a template, brackets included: <tool_response>, [TOOL_CALLS], and much
// that is no token.
std::unordered_set<std::string_view> BracketedIn(std::string_view source) {
  std::unordered_set<std::string_view> found;
  for (const std::string_view brackets : {"<>", "[]"}) {
    size_t open = std::string_view::npos;
    for (size_t at = 0; at < source.size(); ++at) {
      if (source[at] == brackets[0]) open = at;
      if (source[at] != brackets[1] || open == std::string_view::npos) continue;
      found.insert(source.substr(open, at + 1 - open));
      open = std::string_view::npos;
    }
  }
  return found;
}

// <think> and its like are no mark of a role, a turn or a tool: models write them themselves, and
// clients give them back as they came.
bool IsOfThinking(std::string_view token) { return token.find("think") != std::string_view::npos; }

}  // namespace

std::vector<TokenId> VocabTokenizer::Encode(std::string_view text, SpecialTokens special) const {
  const ControlRange all{0, text.size()};
  if (special == SpecialTokens::kParse) return EncodeRanges(text, {&all, 1});
  return EncodeRanges(text, {});
}

std::vector<TokenId> VocabTokenizer::EncodeRanges(std::string_view text,
                                                  std::span<const ControlRange> control) const {
  uint64_t steps = 0;
  return EncodeCounting(text, control, steps);
}

std::vector<TokenId> VocabTokenizer::EncodeCounting(std::string_view text,
                                                    std::span<const ControlRange> control,
                                                    uint64_t& steps) const {
  const std::unique_ptr<Run> run = NewRun(text.size());
  CutAt(special_, text, control, *run, [&](std::string_view between, size_t begin) {
    run->AddText(between, /*is_first=*/begin == 0);
  });
  steps += run->steps();
  return run->TakeOutput();
}

size_t VocabTokenizer::BetweenEnd(std::string_view text, size_t at,
                                  const SpecialTokenSet::Match& match) const {
  const std::string_view between = text.substr(at, match.begin - at);
  const bool strips = (FoundOf(match.id) & kStripsLeft) != 0;
  return at + (strips ? WithoutSpaceAtEnd(between).size() : between.size());
}

size_t VocabTokenizer::AfterMatch(std::string_view text,
                                  const SpecialTokenSet::Match& match) const {
  return (FoundOf(match.id) & kStripsRight) != 0 ? EndOfSpace(text, match.end) : match.end;
}

std::string_view VocabTokenizer::TokenBytes(TokenId id, bool with_special) const {
  KVRM_CHECK(id >= 0 && static_cast<size_t>(id) < byte_end_.size(),
             "a token id is in the vocabulary");
  const auto index = static_cast<size_t>(id);
  if (!with_special && !is_plain_[index]) return {};
  const size_t begin = index == 0 ? 0 : byte_end_[index - 1];
  return std::string_view(bytes_).substr(begin, byte_end_[index] - begin);
}

uint8_t VocabTokenizer::FoundOf(TokenId id) const {
  const auto index = static_cast<size_t>(id);
  return id < 0 || index >= spec_.found.size() ? uint8_t{0} : spec_.found[index];
}

bool VocabTokenizer::IsLiteral(TokenId id) const {
  const TokenType type = spec_.types[static_cast<size_t>(id)];
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown || type == TokenType::kUnused;
}

bool VocabTokenizer::IsMark(TokenId id) const {
  const auto index = static_cast<size_t>(id);
  const TokenType type = spec_.types[index];
  return type == TokenType::kControl ||
         (type == TokenType::kUserDefined &&
          (IsWrittenAsMark(spec_.tokens[index]) || template_marks_[index]));
}

void VocabTokenizer::SettleMarks() {
  const std::unordered_set<std::string_view> bracketed = BracketedIn(spec_.chat_template);
  template_marks_.resize(spec_.tokens.size());
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    template_marks_[i] = spec_.types[i] == TokenType::kUserDefined &&
                         bracketed.contains(spec_.tokens[i]) && !IsOfThinking(spec_.tokens[i]);
  }
}

Status VocabTokenizer::CheckSpec() const {
  const size_t size = spec_.tokens.size();
  constexpr size_t kMaxTokens = size_t{1} << 24;
  if (size == 0 || size > kMaxTokens) {
    return InvalidInput("tokenizer.ggml.tokens: " + std::to_string(size) +
                        " tokens; 1 to 16777216 are allowed");
  }
  // Merging tries each cut of a token, and a text is compared with special tokens at each place.
  constexpr size_t kMaxTokenBytes = 2048;  // real ones reach 1,024: 512 blanks
  for (size_t i = 0; i < size; ++i) {
    if (spec_.tokens[i].size() <= kMaxTokenBytes) continue;
    return InvalidInput(At("tokenizer.ggml.tokens", i) + ": " +
                        std::to_string(spec_.tokens[i].size()) + " bytes; at most " +
                        std::to_string(kMaxTokenBytes) + " are allowed");
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
  std::vector<std::pair<const char*, TokenId>> ids = {
      {"tokenizer.ggml.bos_token_id", spec_.bos},
      {"tokenizer.ggml.eos_token_id", spec_.eos},
      {"tokenizer.ggml.eot_token_id", spec_.eot},
      {"tokenizer.ggml.unknown_token_id", spec_.unknown},
      {"tokenizer.ggml.padding_token_id", spec_.padding}};
  for (const TokenId id : spec_.ends) ids.emplace_back("generation_config.json: eos_token_id", id);
  for (const auto& [field, id] : ids) {
    if (id >= -1 && id < static_cast<int64_t>(size)) continue;
    return InvalidInput(std::string(field) + ": " + std::to_string(id) + " is not below " +
                        std::to_string(size));
  }
  return Ok();
}

void VocabTokenizer::BuildBytes() {
  byte_end_.reserve(spec_.tokens.size());
  is_plain_.reserve(spec_.tokens.size());
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    if (IsLiteral(id)) {
      bytes_ += spec_.tokens[i];
    } else {
      AppendTokenBytes(id, bytes_);
    }
    byte_end_.push_back(bytes_.size());
    is_plain_.push_back(!IsLiteral(id) || spec_.types[i] == TokenType::kUserDefined);
  }
}

void VocabTokenizer::BuildSpecial() {
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const TokenType type = spec_.types[i];
    if (type != TokenType::kControl && type != TokenType::kUserDefined) continue;
    const auto id = static_cast<TokenId>(i);
    const bool is_mark = IsMark(id);
    // A mark is found as it is written: normalizing could take it apart (what a user writes behind
    // it may join its last character), or put a blank before it, without which it is not found.
    if ((FoundOf(id) & kFoundNormalized) != 0 && !is_mark) {
      normalized_special_.Add(Normalized(spec_.tokens[i]), id, /*is_control=*/false);
    } else {
      special_.Add(spec_.tokens[i], id, is_mark);
    }
  }
}

Result<std::pair<std::string_view, std::string_view>> SplitMerge(const TokenizerSpec& spec,
                                                                 size_t index) {
  const std::string_view merge = spec.merges[index];
  const size_t blank = merge.find(' ');
  if (blank == 0 || blank == std::string_view::npos || blank + 1 == merge.size()) {
    return InvalidInput(At("tokenizer.ggml.merges", index) + ": \"" + ForMessage(merge) +
                        "\" is not two tokens with a blank between them");
  }
  return std::pair(merge.substr(0, blank), merge.substr(blank + 1));
}

Error UnknownMerge(const TokenizerSpec& spec, size_t index) {
  return InvalidInput(At("tokenizer.ggml.merges", index) + ": \"" + ForMessage(spec.merges[index]) +
                      "\": a part or the whole is no token of the vocabulary");
}

}  // namespace kvrm
