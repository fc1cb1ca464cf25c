#include "text/jinja_builtins.h"

#include <algorithm>
#include <utility>

namespace kvrm::jinja {
namespace {

using Args = std::span<const Value>;

Error WrongType(const char* what, const Value& value, const char* wanted) {
  return InvalidInput(std::string(what) + ": a " + value.TypeName() + " where a " + wanted +
                      " is wanted");
}

// The text of `value`, charged to the budget as read and made anew once.
Result<const Text*> TextOf(const char* what, const Value& value, Budget& budget) {
  if (value.AsText() == nullptr) return WrongType(what, value, "string");
  KVRM_RETURN_IF_ERROR(budget.SpendText(value.AsText()->size()));
  return value.AsText();
}

// An optional argument's text; empty when it was not given or is none.
Result<std::string_view> TextArg(const char* what, const Value& arg) {
  if (arg.is_undefined() || arg.is_none()) return std::string_view{};
  if (arg.AsText() == nullptr) return WrongType(what, arg, "string");
  return arg.AsText()->bytes();
}

Result<int64_t> IntArg(const char* what, const Value& arg, int64_t fallback) {
  if (arg.is_undefined() || arg.is_none()) return fallback;
  if (arg.AsInt() == nullptr) return WrongType(what, arg, "integer");
  return *arg.AsInt();
}

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

Result<Value> Length(const Value& input, Args, Budget& budget) {
  if (const List* list = input.AsList()) return Value(static_cast<int64_t>(list->items.size()));
  if (const Dict* dict = input.AsDict()) return Value(static_cast<int64_t>(dict->items.size()));
  if (input.is_undefined()) return Value(int64_t{0});
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("length", input, budget));
  return Value(static_cast<int64_t>(CountCharacters(text->bytes())));
}

Result<Value> ToJson(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const int64_t indent, IntArg("tojson: indent", args[0], -1));
  constexpr int64_t kMaxIndent = 16;
  if (indent > kMaxIndent) return InvalidInput("tojson: indent over 16");
  if (!args[1].is_undefined() && args[1].IsTrue()) {
    return InvalidInput("tojson: ensure_ascii is not offered");
  }
  Text json;
  KVRM_RETURN_IF_ERROR(PrintJson(input, indent, budget, json));
  return Value(std::move(json));
}

Result<Value> Default(const Value& input, Args args, Budget&) {
  const bool absent = input.is_undefined() || (args[1].IsTrue() && !input.IsTrue());
  if (!absent) return input;
  return args[0].is_undefined() ? Value(Text()) : args[0];
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

Result<Value> Items(const Value& input, Args, Budget& budget) {
  if (input.is_undefined()) return MakeList({});
  if (input.AsDict() == nullptr) return WrongType("items", input, "dict");
  KVRM_RETURN_IF_ERROR(budget.Spend(2 * input.AsDict()->items.size()));
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.AsDict()->items) {
    KVRM_ASSIGN_OR_RETURN(Value pair, MakeList({Value(key), value}));
    pairs.push_back(std::move(pair));
  }
  return MakeList(std::move(pairs));
}

Result<Value> Keys(const Value& input, Args, Budget& budget) {
  if (input.AsDict() == nullptr) return WrongType("keys", input, "dict");
  KVRM_ASSIGN_OR_RETURN(std::shared_ptr<const List> keys, Iterate(input, budget));
  return Value(std::move(keys));
}

Result<Value> Values(const Value& input, Args, Budget& budget) {
  if (input.AsDict() == nullptr) return WrongType("values", input, "dict");
  KVRM_RETURN_IF_ERROR(budget.Spend(input.AsDict()->items.size()));
  std::vector<Value> values;
  for (const auto& item : input.AsDict()->items) values.push_back(item.second);
  return MakeList(std::move(values));
}

Result<Value> Get(const Value& input, Args args, Budget& budget) {
  if (input.AsDict() == nullptr) return WrongType("get", input, "dict");
  KVRM_ASSIGN_OR_RETURN(const Text* key, TextOf("get", args[0], budget));
  KVRM_RETURN_IF_ERROR(budget.Spend(input.AsDict()->items.size()));
  if (const Value* found = input.AsDict()->Find(key->bytes())) return *found;
  return args[1].is_undefined() ? Value(None{}) : args[1];
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

template <bool kLast>
Result<Value> End(const Value& input, Args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const std::shared_ptr<const List> list, Iterate(input, budget));
  if (list->items.empty()) return Value();
  return kLast ? list->items.back() : list->items.front();
}

Result<Value> ToList(const Value& input, Args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(std::shared_ptr<const List> list, Iterate(input, budget));
  return Value(std::move(list));
}

Result<Value> ToText(const Value& input, Args, Budget& budget) {
  Text text;
  KVRM_RETURN_IF_ERROR(Print(input, budget, text));
  return Value(std::move(text));
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

// Tests that look at the kind of value only.
template <bool (*kHolds)(const Value&)>
Result<Value> KindTest(const Value& input, Args, Budget&) {
  return Value(kHolds(input));
}
bool IsDefined(const Value& v) { return !v.is_undefined(); }
bool IsUndefined(const Value& v) { return v.is_undefined(); }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsText(const Value& v) { return v.AsText() != nullptr; }
bool IsMapping(const Value& v) { return v.AsDict() != nullptr; }
bool IsSequence(const Value& v) {
  return v.AsList() != nullptr || v.AsText() != nullptr || v.AsDict() != nullptr;
}
bool IsIterable(const Value& v) { return IsSequence(v) || v.is_undefined(); }
bool IsBoolean(const Value& v) { return v.AsBool() != nullptr; }
bool IsInteger(const Value& v) { return v.AsInt() != nullptr; }
bool IsNumber(const Value& v) { return v.AsInt() != nullptr || v.AsBool() != nullptr; }
bool IsTrueItself(const Value& v) { return v.AsBool() != nullptr && *v.AsBool(); }
bool IsFalseItself(const Value& v) { return v.AsBool() != nullptr && !*v.AsBool(); }

Result<Value> DivisibleBy(const Value& input, Args args, Budget&) {
  if (input.AsInt() == nullptr) return WrongType("divisibleby", input, "integer");
  if (args[0].AsInt() == nullptr) return WrongType("divisibleby", args[0], "integer");
  const int64_t divisor = *args[0].AsInt();
  if (divisor == 0) return InvalidInput("divisibleby: division by zero");
  return Value(divisor == -1 || *input.AsInt() % divisor == 0);
}

template <int64_t kRest>
Result<Value> Parity(const Value& input, Args, Budget&) {
  if (input.AsInt() == nullptr) return WrongType("even, odd", input, "integer");
  return Value((*input.AsInt() & 1) == kRest);
}

Result<Value> EqualTo(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const bool equal, Equal(input, args[0], budget));
  return Value(equal);
}

Result<Value> NotEqualTo(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const bool equal, Equal(input, args[0], budget));
  return Value(!equal);
}

Result<Value> IsIn(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const bool contains, Contains(args[0], input, budget));
  return Value(contains);
}

constexpr Builtin kFilters[] = {
    {"capitalize", 0, 0, {}, OfAnyText<CaseText<LetterCase::kCapitalized>>},
    {"count", 0, 0, {}, Length},
    {"d", 0, 2, {"default_value", "boolean"}, Default},
    {"default", 0, 2, {"default_value", "boolean"}, Default},
    {"first", 0, 0, {}, End<false>},
    {"items", 0, 0, {}, Items},
    {"join", 0, 1, {"d"}, Join},
    {"last", 0, 0, {}, End<true>},
    {"length", 0, 0, {}, Length},
    {"list", 0, 0, {}, ToList},
    {"lower", 0, 0, {}, OfAnyText<CaseText<LetterCase::kLower>>},
    {"replace", 2, 3, {"old", "new", "count"}, OfAnyText<ReplaceText>},
    {"safe", 0, 0, {}, ToText},
    {"string", 0, 0, {}, ToText},
    {"tojson", 0, 2, {"indent", "ensure_ascii"}, ToJson},
    {"trim", 0, 1, {"chars"}, OfAnyText<StripText<Sides::kBoth>>},
    {"upper", 0, 0, {}, OfAnyText<CaseText<LetterCase::kUpper>>},
};

constexpr Builtin kMethods[] = {
    {"capitalize", 0, 0, {}, CaseText<LetterCase::kCapitalized>},
    {"endswith", 1, 1, {}, HasAffix<true>},
    {"get", 1, 2, {}, Get},
    {"items", 0, 0, {}, Items},
    {"keys", 0, 0, {}, Keys},
    {"lower", 0, 0, {}, CaseText<LetterCase::kLower>},
    {"lstrip", 0, 1, {}, StripText<Sides::kLeft>},
    {"replace", 2, 3, {}, ReplaceText},
    {"rstrip", 0, 1, {}, StripText<Sides::kRight>},
    {"split", 0, 2, {"sep", "maxsplit"}, SplitText},
    {"startswith", 1, 1, {}, HasAffix<false>},
    {"strip", 0, 1, {}, StripText<Sides::kBoth>},
    {"upper", 0, 0, {}, CaseText<LetterCase::kUpper>},
    {"values", 0, 0, {}, Values},
};

constexpr Builtin kTests[] = {
    {"==", 1, 1, {}, EqualTo},
    {"boolean", 0, 0, {}, KindTest<IsBoolean>},
    {"defined", 0, 0, {}, KindTest<IsDefined>},
    {"divisibleby", 1, 1, {}, DivisibleBy},
    {"eq", 1, 1, {}, EqualTo},
    {"equalto", 1, 1, {}, EqualTo},
    {"even", 0, 0, {}, Parity<0>},
    {"false", 0, 0, {}, KindTest<IsFalseItself>},
    {"in", 1, 1, {}, IsIn},
    {"integer", 0, 0, {}, KindTest<IsInteger>},
    {"iterable", 0, 0, {}, KindTest<IsIterable>},
    {"mapping", 0, 0, {}, KindTest<IsMapping>},
    {"ne", 1, 1, {}, NotEqualTo},
    {"none", 0, 0, {}, KindTest<IsNone>},
    {"number", 0, 0, {}, KindTest<IsNumber>},
    {"odd", 0, 0, {}, Parity<1>},
    {"sequence", 0, 0, {}, KindTest<IsSequence>},
    {"string", 0, 0, {}, KindTest<IsText>},
    {"true", 0, 0, {}, KindTest<IsTrueItself>},
    {"undefined", 0, 0, {}, KindTest<IsUndefined>},
};

const Builtin* FindIn(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Builtin::name);
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

const Builtin* FindFilter(std::string_view name) { return FindIn(kFilters, name); }
const Builtin* FindTest(std::string_view name) { return FindIn(kTests, name); }
const Builtin* FindMethod(std::string_view name) { return FindIn(kMethods, name); }

Result<bool> Contains(const Value& container, const Value& item, Budget& budget) {
  if (const List* list = container.AsList()) {
    for (const Value& other : list->items) {
      KVRM_ASSIGN_OR_RETURN(const bool equal, Equal(other, item, budget));
      if (equal) return true;
    }
    return false;
  }
  if (const Dict* dict = container.AsDict()) {
    KVRM_RETURN_IF_ERROR(budget.Spend(1 + dict->items.size()));
    return item.AsText() != nullptr && dict->Find(item.AsText()->bytes()) != nullptr;
  }
  if (container.is_undefined()) return false;
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("in", container, budget));
  KVRM_ASSIGN_OR_RETURN(const Text* part, TextOf("in", item, budget));
  KVRM_RETURN_IF_ERROR(budget.SpendSearch(text->size(), part->size()));
  return text->bytes().find(part->bytes()) != std::string_view::npos;
}

}  // namespace kvrm::jinja
