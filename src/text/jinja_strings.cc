#include "text/jinja_strings.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "text/jinja_args.h"
#include "text/jinja_print.h"

namespace kvrm::jinja {
namespace {

template <Sides kSides>
Result<Value> StripText(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("trim", input, budget));
  KVRM_ASSIGN_OR_RETURN(const std::string_view characters, TextArg("trim", args[0]));
  KVRM_RETURN_IF_ERROR(budget.Spend(text->size() * characters.size() / 2048));
  return Value(Strip(*text, kSides, characters));
}

template <LetterCase kCase>
Result<Value> CaseText(const Value& input, Args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("upper, lower, capitalize", input, budget));
  return Value(ChangeCase(*text, kCase));
}

// A filter takes the text of whatever it is given, where a method wants a string.
template <Result<Value> (*kCall)(const Value&, Args, Budget&)>
Result<Value> OfAnyText(const Value& input, Args args, Budget& budget) {
  if (input.AsText() != nullptr) return kCall(input, args, budget);
  Text text;
  KVRM_RETURN_IF_ERROR(Print(input, budget, text));
  return kCall(Value(std::move(text)), args, budget);
}

Result<Value> ReplaceText(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("replace", input, budget));
  KVRM_ASSIGN_OR_RETURN(const Text* from, TextOf("replace", args[0], budget));
  KVRM_ASSIGN_OR_RETURN(const Text* to, TextOf("replace", args[1], budget));
  KVRM_ASSIGN_OR_RETURN(const int64_t count, IntArg("replace: count", args[2], -1));
  KVRM_RETURN_IF_ERROR(budget.SpendSearch(text->size(), from->size()));
  // At most this large, before anything is made.
  const size_t places = text->size() / std::max<size_t>(from->size(), 1) + 1;
  KVRM_RETURN_IF_ERROR(budget.Spend(places / 16));
  if (to->size() > from->size() && to->size() - from->size() > Budget::kMaxTextBytes / places) {
    return InvalidInput("replace: the text may grow over " + std::to_string(Budget::kMaxTextBytes) +
                        " bytes");
  }
  KVRM_RETURN_IF_ERROR(budget.MakeText(text->size() + places * to->size()));
  return Value(Replace(*text, from->bytes(), *to, count));
}

// Where Python's str.splitlines() cuts; 0 = not at `at`.
size_t LineEndBytes(std::string_view text, size_t at) {
  const char c = text[at];
  if (c == '\r') return at + 1 < text.size() && text[at + 1] == '\n' ? 2 : 1;
  if ((c >= '\n' && c <= '\f') || (c >= '\x1c' && c <= '\x1e')) return 1;
  if (text.substr(at).starts_with("\u0085")) return 2;
  if (text.substr(at).starts_with("\u2028") || text.substr(at).starts_with("\u2029")) return 3;
  return 0;
}

std::vector<Text> Lines(const Text& text) {
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = LineEndBytes(text.bytes(), at);
    if (end > 0) {
      lines.push_back(text.Slice(begin, at));
      begin = at + end;
    }
    at += std::max<size_t>(end, 1);
  }
  if (begin < text.size()) lines.push_back(text.Slice(begin, text.size()));
  return lines;
}

// Each line but the first moved to the right, empty ones only where asked for.
Result<Value> Indent(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("indent", input, budget));
  Text margin;
  if (args[0].AsText() != nullptr) {
    margin = *args[0].AsText();
  } else {
    KVRM_ASSIGN_OR_RETURN(const int64_t width, IntArg("indent: width", args[0], 4));
    constexpr int64_t kMaxWidth = 256;
    if (width > kMaxWidth) return InvalidInput("indent: a width over 256");
    margin = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  }
  KVRM_RETURN_IF_ERROR(budget.Spend(text->size() / 16));
  std::vector<Text> lines = Lines(*text);
  // A line end at the end counts as one more line, as Jinja does it.
  const std::string_view bytes = text->bytes();
  if (bytes.empty() || LineEndBytes(bytes, bytes.size() - 1) > 0) lines.emplace_back();
  Text moved;
  for (size_t i = 0; i < lines.size(); ++i) {
    KVRM_RETURN_IF_ERROR(budget.MakeText(lines[i].size() + margin.size() + 1, moved.size()));
    if (i > 0) moved.Append("\n", /*from_user=*/false);
    const bool wanted = i == 0 ? args[1].IsTrue() : lines[i].size() > 0 || args[2].IsTrue();
    if (wanted) moved.Append(margin);
    moved.Append(lines[i]);
  }
  return Value(std::move(moved));
}

Result<Value> Join(const Value& input, Args args, Budget& budget) {
  Text separator;
  KVRM_RETURN_IF_ERROR(Print(args[0], budget, separator));
  KVRM_ASSIGN_OR_RETURN(const std::shared_ptr<const List> list, Iterate(input, budget));
  Text joined;
  for (size_t i = 0; i < list->items.size(); ++i) {
    if (i > 0) KVRM_RETURN_IF_ERROR(Print(Value(separator), budget, joined));
    KVRM_RETURN_IF_ERROR(Print(list->items[i], budget, joined));
  }
  return Value(std::move(joined));
}

// Python's ', '.join(list): each item is a string.
Result<Value> JoinItems(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const std::shared_ptr<const List> list, Iterate(args[0], budget));
  for (const Value& item : list->items) {
    if (item.AsText() == nullptr) return WrongType("join", item, "string");
  }
  return Join(Value(list), {&input, 1}, budget);
}

Result<Value> Count(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("count", input, budget));
  KVRM_ASSIGN_OR_RETURN(const Text* part, TextOf("count", args[0], budget));
  if (part->size() == 0) return InvalidInput("count: an empty string");
  KVRM_RETURN_IF_ERROR(budget.SpendSearch(text->size(), part->size()));
  int64_t count = 0;
  for (size_t at = 0; (at = text->bytes().find(part->bytes(), at)) != std::string_view::npos;
       at += part->size()) {
    ++count;
  }
  return Value(count);
}

Result<Value> Find(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("find", input, budget));
  KVRM_ASSIGN_OR_RETURN(const Text* part, TextOf("find", args[0], budget));
  KVRM_RETURN_IF_ERROR(budget.SpendSearch(text->size(), part->size()));
  const size_t at = text->bytes().find(part->bytes());
  if (at == std::string_view::npos) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(CountCharacters(text->bytes().substr(0, at))));
}

template <bool kAtEnd>
Result<Value> RemoveAffix(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("removeprefix, removesuffix", input, budget));
  KVRM_ASSIGN_OR_RETURN(const Text* affix, TextOf("removeprefix, removesuffix", args[0], budget));
  const std::string_view bytes = text->bytes();
  if (kAtEnd ? !bytes.ends_with(affix->bytes()) : !bytes.starts_with(affix->bytes())) return input;
  return kAtEnd ? Value(text->Slice(0, text->size() - affix->size()))
                : Value(text->Slice(affix->size(), text->size()));
}

Result<Value> SplitLines(const Value& input, Args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("splitlines", input, budget));
  KVRM_RETURN_IF_ERROR(budget.Spend(text->size()));
  std::vector<Value> lines;
  for (Text& line : Lines(*text)) lines.emplace_back(std::move(line));
  return MakeList(std::move(lines));
}

// '{}' stands for the arguments in order; what else Python allows in braces is refused.
Result<Value> Format(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("format", input, budget));
  const std::string_view bytes = text->bytes();
  Text formatted;
  size_t next = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    formatted.Append(*text, at, brace);
    at = brace;
    if (at == bytes.size()) break;
    const std::string_view rest = bytes.substr(at);
    if (rest.starts_with("{{") || rest.starts_with("}}")) {
      formatted.Append(*text, at, at + 1);
    } else if (rest.starts_with("{}") && next < args.size() && !args[next].is_undefined()) {
      KVRM_RETURN_IF_ERROR(Print(args[next++], budget, formatted));
    } else {
      return InvalidInput("format: only {} for each argument is offered");
    }
    at += 2;
  }
  KVRM_RETURN_IF_ERROR(budget.MakeText(formatted.size()));
  return Value(std::move(formatted));
}

Result<Value> SplitText(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("split", input, budget));
  KVRM_ASSIGN_OR_RETURN(const std::string_view separator, TextArg("split", args[0]));
  if (separator.empty() && args[0].AsText() != nullptr) {
    return InvalidInput("split: an empty separator");
  }
  KVRM_RETURN_IF_ERROR(budget.SpendSearch(text->size(), separator.size()));
  KVRM_ASSIGN_OR_RETURN(const int64_t max_splits, IntArg("split: maxsplit", args[1], -1));
  // Each part costs memory beside its text, so that text of many parts costs more steps.
  KVRM_RETURN_IF_ERROR(budget.Spend(text->size() / std::max<size_t>(separator.size(), 1)));
  std::vector<Value> parts;
  for (Text& part :
       Split(*text, separator, max_splits < 0 ? 0 : static_cast<size_t>(max_splits) + 1)) {
    parts.emplace_back(std::move(part));
  }
  return MakeList(std::move(parts));
}

template <bool kAtEnd>
Result<Value> HasAffix(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("startswith, endswith", input, budget));
  KVRM_ASSIGN_OR_RETURN(const Text* affix, TextOf("startswith, endswith", args[0], budget));
  return Value(kAtEnd ? text->bytes().ends_with(affix->bytes())
                      : text->bytes().starts_with(affix->bytes()));
}

constexpr Builtin kFilters[] = {
    {"capitalize", 0, 0, {}, OfAnyText<CaseText<LetterCase::kCapitalized>>},
    {"indent", 0, 3, {"width", "first", "blank"}, OfAnyText<Indent>},
    {"join", 0, 1, {"d"}, Join},
    {"lower", 0, 0, {}, OfAnyText<CaseText<LetterCase::kLower>>},
    {"replace", 2, 3, {"old", "new", "count"}, OfAnyText<ReplaceText>},
    {"trim", 0, 1, {"chars"}, OfAnyText<StripText<Sides::kBoth>>},
    {"upper", 0, 0, {}, OfAnyText<CaseText<LetterCase::kUpper>>},
};

constexpr Builtin kMethods[] = {
    {"capitalize", 0, 0, {}, CaseText<LetterCase::kCapitalized>},
    {"count", 1, 1, {}, Count},
    {"endswith", 1, 1, {}, HasAffix<true>},
    {"find", 1, 1, {}, Find},
    {"format", 0, 4, {}, Format},
    {"join", 1, 1, {}, JoinItems},
    {"lower", 0, 0, {}, CaseText<LetterCase::kLower>},
    {"lstrip", 0, 1, {}, StripText<Sides::kLeft>},
    {"removeprefix", 1, 1, {}, RemoveAffix<false>},
    {"removesuffix", 1, 1, {}, RemoveAffix<true>},
    {"replace", 2, 3, {}, ReplaceText},
    {"rstrip", 0, 1, {}, StripText<Sides::kRight>},
    {"split", 0, 2, {"sep", "maxsplit"}, SplitText},
    {"splitlines", 0, 0, {}, SplitLines},
    {"startswith", 1, 1, {}, HasAffix<false>},
    {"strip", 0, 1, {}, StripText<Sides::kBoth>},
    {"upper", 0, 0, {}, CaseText<LetterCase::kUpper>},
};

}  // namespace

std::span<const Builtin> TextFilters() { return kFilters; }
std::span<const Builtin> TextMethods() { return kMethods; }

}  // namespace kvrm::jinja
