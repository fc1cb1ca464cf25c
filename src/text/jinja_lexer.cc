#include "text/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/utf8.h"

namespace kvrm::jinja {
namespace {

constexpr std::string_view kSpaces = " \t\n\v\f\r";

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

// Jinja reads every kind of line end as "\n", and drops one at the end of the source.
std::string UnifyLineEnds(std::string_view source) {
  std::string unified;
  unified.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      unified += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      unified += '\n';
    }
  }
  if (unified.ends_with('\n')) unified.pop_back();
  return unified;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const size_t tag = FindTag();
      TakeText(tag);
      if (at_ >= source_.size()) break;
      KVRM_RETURN_IF_ERROR(TakeTag());
    }
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(at_); }
  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  Error Fail(const std::string& what) const {
    return AtLine(line_, ErrorKind::kInvalidInput, what);
  }

  void Advance(size_t bytes) {
    const auto begin = source_.begin() + static_cast<ptrdiff_t>(at_);
    line_ += static_cast<uint32_t>(std::count(begin, begin + static_cast<ptrdiff_t>(bytes), '\n'));
    at_ += bytes;
  }

  size_t FindTag() const {
    for (size_t i = at_; (i = source_.find('{', i)) != std::string::npos; ++i) {
      const char second = i + 1 < source_.size() ? source_[i + 1] : '\0';
      if (second == '{' || second == '%' || second == '#') return i;
    }
    return source_.size();
  }

  // The text up to `tag`, less what the tag's own sign and lstrip_blocks take from its end.
  void TakeText(size_t tag) {
    std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    const bool at_line_start = at_ == 0 || source_[at_ - 1] == '\n';
    if (tag < source_.size()) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      if (sign == '-') {
        text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
      } else if (sign != '+' && source_[tag + 1] != '{') {
        const size_t line_begin = text.rfind('\n') + 1;
        const bool blank = text.find_first_not_of(kSpaces, line_begin) == std::string_view::npos;
        if (blank && (line_begin > 0 || at_line_start)) text = text.substr(0, line_begin);
      }
    }
    if (!text.empty()) Add(TokenKind::kText, std::string(text));
    Advance(tag - at_);
  }

  Status TakeTag() {
    const char kind = source_[at_ + 1];
    const uint32_t begin_line = line_;
    Advance(2);
    if (kind == '#') return TakeComment(begin_line);
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) Advance(1);
    const bool is_output = kind == '{';
    Add(is_output ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, "");
    brackets_.clear();
    for (;;) {
      Advance(std::min(Rest().find_first_not_of(kSpaces), Rest().size()));
      if (at_ >= source_.size()) {
        line_ = begin_line;
        return Fail(is_output ? "{{ without }}" : "{% without %}");
      }
      if (TakeTagEnd(is_output ? "}}" : "%}", is_output)) return Ok();
      KVRM_RETURN_IF_ERROR(TakeWord());
    }
  }

  Status TakeComment(uint32_t begin_line) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) {
      line_ = begin_line;
      return Fail("{# without #}");
    }
    const char sign = end > at_ ? source_[end - 1] : '\0';
    Advance(end + 2 - at_);
    TrimAfter(sign, /*trims_newline=*/true);
    return Ok();
  }

  bool TakeTagEnd(std::string_view end, bool is_output) {
    if (!brackets_.empty()) return false;  // "}}" may close two dicts
    const char first = source_[at_];
    const bool has_sign = first == '-' || (first == '+' && !is_output);
    if (!Rest().substr(has_sign ? 1 : 0).starts_with(end)) return false;
    Add(is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, "");
    Advance(end.size() + (has_sign ? 1 : 0));
    TrimAfter(has_sign ? first : '\0', /*trims_newline=*/!is_output);
    return true;
  }

  void TrimAfter(char sign, bool trims_newline) {
    if (sign == '-') {
      Advance(std::min(Rest().find_first_not_of(kSpaces), Rest().size()));
    } else if (sign != '+' && trims_newline && Rest().starts_with('\n')) {
      Advance(1);
    }
  }

  Status TakeWord() {
    const char c = source_[at_];
    if (IsNameStart(c)) return TakeWhile(TokenKind::kName, IsNamePart);
    if (c == '"' || c == '\'') return TakeString(c);
    if (IsDigit(c)) {
      KVRM_RETURN_IF_ERROR(TakeWhile(TokenKind::kInteger, IsDigit));
      const auto at = [this](size_t offset) {
        return at_ + offset < source_.size() ? source_[at_ + offset] : '\0';
      };
      if (at(0) == '.' && IsDigit(at(1))) {
        size_t end = at_ + 1;
        while (end < source_.size() && IsDigit(source_[end])) ++end;
        tokens_.back().kind = TokenKind::kFloat;
        tokens_.back().text += source_.substr(at_, end - at_);
        Advance(end - at_);
      }
      if (!IsNameStart(at(0))) return Ok();
      return AtLine(line_, ErrorKind::kUnsupported, "a number with an exponent or in another base");
    }
    return TakeOperator();
  }

  Status TakeWhile(TokenKind kind, bool (*belongs)(char)) {
    size_t end = at_;
    while (end < source_.size() && belongs(source_[end])) ++end;
    Add(kind, source_.substr(at_, end - at_));
    Advance(end - at_);
    return Ok();
  }

  Status TakeOperator() {
    static constexpr std::array<std::string_view, 26> kOperators{
        "==", "!=", "<=", ">=", "**", "//", "<", ">", "=", "+", "-", "~", "%",
        "*",  "/",  "|",  ".",  ",",  ":",  "(", ")", "[", "]", "{", "}", ";"};
    const auto found = std::ranges::find_if(
        kOperators, [&](std::string_view op) { return Rest().starts_with(op); });
    if (found == kOperators.end()) {
      const uint8_t length = NextUtf8(source_, at_).length;
      return Fail("unexpected character \"" + ForMessage(Rest().substr(0, length)) + "\"");
    }
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') brackets_ += c;
    if ((c == ')' || c == ']' || c == '}') && !brackets_.empty()) brackets_.pop_back();
    Add(TokenKind::kOperator, std::string(*found));
    Advance(found->size());
    return Ok();
  }

  Status TakeString(char quote) {
    const uint32_t begin_line = line_;
    std::string value;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] == '\\' && i + 1 < source_.size()) {
        KVRM_RETURN_IF_ERROR(TakeEscape(i, value));
      } else {
        value += source_[i++];
      }
    }
    if (i >= source_.size()) return Fail("a string without its closing quote");
    Advance(i + 1 - at_);
    tokens_.push_back({TokenKind::kString, begin_line, std::move(value)});
    return Ok();
  }

  // Python's escapes; an unknown one stands for itself, backslash included.
  Status TakeEscape(size_t& i, std::string& value) {
    static constexpr std::pair<char, char> kSimple[] = {
        {'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'\\', '\\'}, {'\'', '\''},
        {'"', '"'},  {'b', '\b'}, {'f', '\f'}, {'a', '\a'},  {'v', '\v'}};
    const char c = source_[i + 1];
    for (const auto& [name, meaning] : kSimple) {
      if (c != name) continue;
      value += meaning;
      i += 2;
      return Ok();
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == '\n' || IsDigit(c) || c == 'N') {
      const std::string what =
          c == '\n' ? "a backslash at the end of a line" : std::string("string escape \\") + c;
      return AtLine(line_, ErrorKind::kUnsupported, what);
    }
    if (digits == 0) {
      value += '\\';
      ++i;
      return Ok();
    }
    char32_t code_point = 0;
    for (size_t k = 0; k < digits; ++k) {
      const char digit = i + 2 + k < source_.size() ? source_[i + 2 + k] : '\0';
      const size_t hex = std::string_view("0123456789abcdefABCDEF").find(digit);
      if (hex == std::string_view::npos) return Fail("a string escape of too few digits");
      code_point = code_point * 16 + static_cast<char32_t>(hex < 16 ? hex : hex - 6);
    }
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) {
      return Fail("a string escape that is no character");
    }
    AppendUtf8(code_point, value);
    i += 2 + digits;
    return Ok();
  }

  const std::string source_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  std::string brackets_;  // open ones inside the tag
  std::vector<Token> tokens_;
};

}  // namespace

Error AtLine(uint32_t line, ErrorKind kind, const std::string& what) {
  std::string message = "chat template, line " + std::to_string(line) + ": " + what;
  if (kind == ErrorKind::kUnsupported) message += " is not supported";
  return {kind, std::move(message)};
}

Result<std::vector<Token>> Lex(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return InvalidInput("chat template: " + std::to_string(source.size()) + " bytes; at most " +
                        std::to_string(kMaxSourceBytes) + " are allowed");
  }
  return Lexer(UnifyLineEnds(source)).Run();
}

}  // namespace kvrm::jinja
