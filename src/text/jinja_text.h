// Text of a template that knows of each byte whether it came from a message field ("from user").
// Everything that cuts, joins or changes text carries the marks along, so that what a user wrote
// is never taken for a control token, whatever the template did to it (B052). A value type.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvrm::jinja {

class Text {
 public:
  Text() = default;
  explicit Text(std::string_view bytes, bool from_user = false) { Append(bytes, from_user); }

  std::string_view bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }

  void Append(std::string_view bytes, bool from_user);
  void Append(const Text& other) { Append(other, 0, other.size()); }
  // Appends other.bytes()[begin, end). Requires: begin <= end <= other.size(), &other != this.
  void Append(const Text& other, size_t begin, size_t end);
  Text Slice(size_t begin, size_t end) const;

  // Bytes [begin of the previous run or 0, end) have one mark; neighbouring runs differ in it.
  struct Run {
    size_t end;
    bool from_user;
  };
  const std::vector<Run>& runs() const { return runs_; }
  // What Jinja calls Markup (filter `safe`): text joined to it by + is escaped for HTML.
  bool is_markup() const { return is_markup_; }
  Text AsMarkup() const;
  // With & < > ' " as HTML writes them, unless it is markup already.
  Text Escaped() const;

  // Requires: at < size().
  bool FromUserAt(size_t at) const;
  bool HasUserText() const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;
  bool is_markup_ = false;
};

// Python's str methods, on code points; bytes that are not UTF-8 count as a character each.
size_t CountCharacters(std::string_view text);
std::vector<size_t> CharacterBegins(std::string_view text);  // and text.size() at the end

enum class Sides : unsigned char { kLeft = 1, kRight = 2, kBoth = 3 };
// Without white space, in Unicode's sense, at the given sides; or without any character of
// `characters` when that is not empty.
Text Strip(const Text& text, Sides sides, std::string_view characters = {});

enum class LetterCase : unsigned char { kUpper, kLower, kCapitalized };
// One character for one: "ß" stays as it is, where Python writes "SS".
Text ChangeCase(const Text& text, LetterCase to);

// Parts between `separator`; with an empty one, between runs of white space, none empty. At most
// `max_parts` parts (0 = any number), the last holds the rest.
std::vector<Text> Split(const Text& text, std::string_view separator, size_t max_parts);

// The first `max_count` places of `from` (all, when negative) become `to`. An empty `from` stands
// before each character and at the end, as in Python.
Text Replace(const Text& text, std::string_view from, const Text& to, int64_t max_count);

}  // namespace kvrm::jinja
