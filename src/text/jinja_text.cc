#include "text/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/utf8.h"

namespace kvrm::jinja {
namespace {

// What Python's str.isspace() says.
bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool IsSpaceAt(std::string_view text, size_t at) {
  const Utf8Step step = NextUtf8(text, at);
  return step.status == Utf8Status::kValid && IsSpace(step.code_point);
}

uint8_t CharacterBytes(std::string_view text, size_t at) {
  const Utf8Step step = NextUtf8(text, at);
  return step.status == Utf8Status::kValid ? step.length : uint8_t{1};
}

size_t PreviousCharacter(std::string_view text, size_t end) {
  for (size_t back = std::min<size_t>(4, end); back > 1; --back) {
    const Utf8Step step = NextUtf8(text, end - back);
    if (step.status == Utf8Status::kValid && step.length == back) return end - back;
  }
  return end - 1;
}

}  // namespace

void Text::Append(std::string_view bytes, bool from_user) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().from_user == from_user) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), from_user});
  }
}

void Text::Append(const Text& other, size_t begin, size_t end) {
  auto run = std::ranges::upper_bound(other.runs_, begin, {}, &Run::end);
  while (begin < end) {
    const size_t run_end = std::min(run->end, end);
    Append(other.bytes().substr(begin, run_end - begin), run->from_user);
    begin = run_end;
    ++run;
  }
}

Text Text::Slice(size_t begin, size_t end) const {
  Text slice;
  slice.Append(*this, begin, end);
  return slice;
}

Text Text::AsMarkup() const {
  Text markup = *this;
  markup.is_markup_ = true;
  return markup;
}

Text Text::Escaped() const {
  if (is_markup_) return *this;
  using Escape = std::pair<char, std::string_view>;
  static constexpr Escape kEscapes[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
  Text escaped;
  size_t begin = 0;
  for (size_t at = 0; (at = bytes_.find_first_of("&<>'\"", at)) != std::string::npos;
       begin = ++at) {
    const auto* escape = std::ranges::find(kEscapes, bytes_[at], &Escape::first);
    escaped.Append(*this, begin, at);
    escaped.Append(escape->second, FromUserAt(at));
  }
  escaped.Append(*this, begin, size());
  escaped.is_markup_ = true;
  return escaped;
}

bool Text::FromUserAt(size_t at) const {
  return std::ranges::upper_bound(runs_, at, {}, &Run::end)->from_user;
}

bool Text::HasUserText() const { return std::ranges::any_of(runs_, &Run::from_user); }

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += CharacterBytes(text, at)) ++count;
  return count;
}

std::vector<size_t> CharacterBegins(std::string_view text) {
  std::vector<size_t> begins;
  for (size_t at = 0; at < text.size(); at += CharacterBytes(text, at)) begins.push_back(at);
  begins.push_back(text.size());
  return begins;
}

Text Strip(const Text& text, Sides sides, std::string_view characters) {
  const std::string_view bytes = text.bytes();
  const auto goes = [&](size_t at) {
    if (characters.empty()) return IsSpaceAt(bytes, at);
    return characters.find(bytes.substr(at, CharacterBytes(bytes, at))) != std::string_view::npos;
  };
  size_t begin = 0;
  size_t end = bytes.size();
  if (sides != Sides::kRight) {
    while (begin < end && goes(begin)) begin += CharacterBytes(bytes, begin);
  }
  if (sides != Sides::kLeft) {
    while (end > begin && goes(PreviousCharacter(bytes, end))) end = PreviousCharacter(bytes, end);
  }
  Text stripped = text.Slice(begin, end);
  return text.is_markup() ? stripped.AsMarkup() : stripped;
}

Text ChangeCase(const Text& text, LetterCase to) {
  const std::string_view bytes = text.bytes();
  Text changed;
  std::string character;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = NextUtf8(bytes, at);
    character.clear();
    if (step.status == Utf8Status::kValid) {
      const bool upper = to == LetterCase::kUpper || (to == LetterCase::kCapitalized && at == 0);
      const auto code_point = static_cast<utf8proc_int32_t>(step.code_point);
      AppendUtf8(static_cast<char32_t>(upper ? utf8proc_toupper(code_point)
                                             : utf8proc_tolower(code_point)),
                 character);
    } else {
      character = bytes.substr(at, step.length);
    }
    changed.Append(character, text.FromUserAt(at));
    at += step.length;
  }
  return changed;
}

std::vector<Text> Split(const Text& text, std::string_view separator, size_t max_parts) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> parts;
  const auto is_last = [&] { return max_parts != 0 && parts.size() + 1 == max_parts; };
  if (!separator.empty()) {
    size_t begin = 0;
    for (size_t end; !is_last() && (end = bytes.find(separator, begin)) != std::string_view::npos;
         begin = end + separator.size()) {
      parts.push_back(text.Slice(begin, end));
    }
    parts.push_back(text.Slice(begin, bytes.size()));
    return parts;
  }
  for (size_t at = 0; at < bytes.size();) {
    if (IsSpaceAt(bytes, at)) {
      at += CharacterBytes(bytes, at);
      continue;
    }
    if (is_last()) {
      parts.push_back(Strip(text.Slice(at, bytes.size()), Sides::kRight));
      break;
    }
    const size_t begin = at;
    while (at < bytes.size() && !IsSpaceAt(bytes, at)) at += CharacterBytes(bytes, at);
    parts.push_back(text.Slice(begin, at));
  }
  return parts;
}

Text Replace(const Text& text, std::string_view from, const Text& to, int64_t max_count) {
  const std::string_view bytes = text.bytes();
  Text replaced;
  size_t begin = 0;
  size_t at = 0;  // where the next place may be
  for (int64_t count = 0; max_count < 0 || count < max_count; ++count) {
    const size_t found = bytes.find(from, at);
    if (found == std::string_view::npos) break;
    replaced.Append(text, begin, found);
    replaced.Append(to);
    begin = found + from.size();
    at = begin;
    if (from.empty()) {
      if (found == bytes.size()) break;
      at = found + CharacterBytes(bytes, found);
    }
  }
  replaced.Append(text, begin, bytes.size());
  return replaced;
}

}  // namespace kvrm::jinja
