#include "text/jinja_builtins.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "text/jinja_args.h"
#include "text/jinja_print.h"
#include "text/jinja_sequences.h"
#include "text/jinja_strings.h"

namespace kvrm::jinja {
namespace {

bool IsGenerator(const Value& value) {
  return value.AsList() != nullptr && value.AsList()->kind == List::Kind::kGenerator;
}

Result<Value> Length(const Value& input, Args, Budget& budget) {
  if (IsGenerator(input)) return InvalidInput("length of what select, map, unique or items gives");
  if (const List* list = input.AsList()) return Value(static_cast<int64_t>(list->items.size()));
  if (const Dict* dict = input.AsDict()) return Value(static_cast<int64_t>(dict->items.size()));
  if (input.is_undefined()) return Value(int64_t{0});
  KVRM_ASSIGN_OR_RETURN(const Text* text, TextOf("length", input, budget));
  return Value(static_cast<int64_t>(CountCharacters(text->bytes())));
}

Result<Value> ToJson(const Value& input, Args args, Budget& budget) {
  JsonStyle style;
  style.ascii_only = args[0].IsTrue();
  KVRM_ASSIGN_OR_RETURN(style.indent, IntArg("tojson: indent", args[1], -1));
  constexpr int64_t kMaxIndent = 16;
  if (style.indent > kMaxIndent) return InvalidInput("tojson: indent over 16");
  if (style.indent >= 0) style.item_separator = ",";
  if (const List* separators = args[2].AsList()) {
    constexpr size_t kMaxSeparator = 16;
    std::string* const parts[] = {&style.item_separator, &style.key_separator};
    if (separators->items.size() != 2) return InvalidInput("tojson: separators are two strings");
    for (size_t i = 0; i < 2; ++i) {
      const Text* part = separators->items[i].AsText();
      if (part == nullptr || part->size() > kMaxSeparator) {
        return InvalidInput("tojson: separators are two strings of at most 16 bytes");
      }
      if (part->HasUserText()) return InvalidInput("tojson: separators that a request brought");
      *parts[i] = part->bytes();
    }
  }
  style.sorts_keys = args[3].IsTrue();
  Text json;
  KVRM_RETURN_IF_ERROR(PrintJson(input, style, budget, json));
  return Value(std::move(json));
}

// Python's int(): of a number, or of the digits of a text; the default for anything else.
Result<Value> ToInteger(const Value& input, Args args, Budget& budget) {
  const Value fallback = args[0].is_undefined() ? Value(int64_t{0}) : args[0];
  if (input.AsInt() != nullptr) return input;
  if (const bool* flag = input.AsBool()) return Value(int64_t{*flag ? 1 : 0});
  double real = 0;
  if (const double* number = input.AsFloat()) {
    real = *number;
  } else if (input.AsText() != nullptr) {
    KVRM_RETURN_IF_ERROR(budget.SpendText(input.AsText()->size()));
    const Text stripped = Strip(*input.AsText(), Sides::kBoth);
    std::string_view digits = stripped.bytes();
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const char* const end = digits.data() + digits.size();
    int64_t integer = 0;
    if (const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), integer);
        parsed.ec == std::errc() && parsed.ptr == end) {
      return Value(integer);
    }
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), real);
    if (parsed.ec != std::errc() || parsed.ptr != end) return fallback;
  } else {
    return fallback;
  }
  constexpr double kLimit = 9.2e18;
  if (!(real > -kLimit && real < kLimit)) return fallback;
  return Value(static_cast<int64_t>(real));
}

Result<Value> Absolute(const Value& input, Args, Budget&) {
  if (const double* real = input.AsFloat()) return Value(*real < 0 ? -*real : *real);
  if (input.AsInt() == nullptr || *input.AsInt() == INT64_MIN) {
    return WrongType("abs", input, "number");
  }
  return Value(*input.AsInt() < 0 ? -*input.AsInt() : *input.AsInt());
}

Result<Value> Default(const Value& input, Args args, Budget&) {
  const bool absent = input.is_undefined() || (args[1].IsTrue() && !input.IsTrue());
  if (!absent) return input;
  return args[0].is_undefined() ? Value(Text()) : args[0];
}

Result<Value> Items(const Value& input, Args, Budget& budget) {
  if (input.is_undefined()) return MakeList({});
  if (input.AsDict() == nullptr) return WrongType("items", input, "dict");
  KVRM_RETURN_IF_ERROR(budget.Spend(2 * input.AsDict()->items.size()));
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.AsDict()->items) {
    KVRM_ASSIGN_OR_RETURN(Value pair, MakeList({Value(key), value}, List::Kind::kTuple));
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

template <bool kLast>
Result<Value> End(const Value& input, Args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const std::shared_ptr<const List> list, Iterate(input, budget));
  if (list->items.empty()) return Value();
  return kLast ? list->items.back() : list->items.front();
}

// What the sandbox of the reference renderer refuses as well, once it comes to it.
Result<Value> Changes(const Value&, Args, Budget&) {
  return InvalidInput("a template cannot change a list or dict");
}

Result<Value> ToList(const Value& input, Args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(std::shared_ptr<const List> list, Iterate(input, budget));
  KVRM_RETURN_IF_ERROR(budget.Spend(list->items.size()));  // each is copied
  return MakeList(list->items);
}

Result<Value> ToText(const Value& input, Args, Budget& budget) {
  if (input.AsText() != nullptr) return input;
  Text text;
  KVRM_RETURN_IF_ERROR(Print(input, budget, text));
  return Value(std::move(text));
}

Result<Value> ToMarkup(const Value& input, Args args, Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const Value text, ToText(input, args, budget));
  KVRM_RETURN_IF_ERROR(budget.SpendText(text.AsText()->size()));
  return Value(text.AsText()->AsMarkup());
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
bool IsSequenceValue(const Value& v) {
  if (IsGenerator(v)) return false;
  return v.AsList() != nullptr || v.AsText() != nullptr || v.AsDict() != nullptr;
}
bool IsIterable(const Value& v) {
  return v.AsList() != nullptr || IsSequenceValue(v) || v.is_undefined();
}
bool IsBoolean(const Value& v) { return v.AsBool() != nullptr; }
// To Jinja a bool is a number, but no integer.
bool IsInteger(const Value& v) { return v.AsInt() != nullptr; }
bool IsFloat(const Value& v) { return v.AsFloat() != nullptr; }
bool IsNumber(const Value& v) { return IsInteger(v) || IsFloat(v) || IsBoolean(v); }
bool IsCallable(const Value& v) { return v.AsMacro() != nullptr; }
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
    {"abs", 0, 0, {}, Absolute},
    {"count", 0, 0, {}, Length},
    {"d", 0, 2, {"default_value", "boolean"}, Default},
    {"default", 0, 2, {"default_value", "boolean"}, Default},
    {"dictsort", 0, 3, {"case_sensitive", "by", "reverse"}, DictSort},
    {"first", 0, 0, {}, End<false>},
    {"int", 0, 1, {"default"}, ToInteger},
    {"items", 0, 0, {}, Items},
    {"last", 0, 0, {}, End<true>},
    {"length", 0, 0, {}, Length},
    {"list", 0, 0, {}, ToList},
    {"max", 0, 2, {"case_sensitive", "attribute"}, Max},
    {"min", 0, 2, {"case_sensitive", "attribute"}, Min},
    {"reverse", 0, 0, {}, Reverse},
    {"safe", 0, 0, {}, ToMarkup},
    {"sort", 0, 3, {"reverse", "case_sensitive", "attribute"}, Sort},
    {"string", 0, 0, {}, ToText},
    {"tojson", 0, 4, {"ensure_ascii", "indent", "separators", "sort_keys"}, ToJson},
    {"unique", 0, 2, {"case_sensitive", "attribute"}, Unique},
};

constexpr Builtin kMethods[] = {
    {"append", 1, 1, {}, Changes}, {"extend", 1, 1, {}, Changes}, {"get", 1, 2, {}, Get},
    {"items", 0, 0, {}, Items},    {"keys", 0, 0, {}, Keys},      {"pop", 0, 2, {}, Changes},
    {"update", 0, 1, {}, Changes}, {"values", 0, 0, {}, Values},
};

constexpr Builtin kTests[] = {
    {"==", 1, 1, {}, EqualTo},
    {"boolean", 0, 0, {}, KindTest<IsBoolean>},
    {"callable", 0, 0, {}, KindTest<IsCallable>},
    {"defined", 0, 0, {}, KindTest<IsDefined>},
    {"divisibleby", 1, 1, {}, DivisibleBy},
    {"eq", 1, 1, {}, EqualTo},
    {"equalto", 1, 1, {}, EqualTo},
    {"even", 0, 0, {}, Parity<0>},
    {"false", 0, 0, {}, KindTest<IsFalseItself>},
    {"float", 0, 0, {}, KindTest<IsFloat>},
    {"in", 1, 1, {}, IsIn},
    {"integer", 0, 0, {}, KindTest<IsInteger>},
    {"iterable", 0, 0, {}, KindTest<IsIterable>},
    {"mapping", 0, 0, {}, KindTest<IsMapping>},
    {"ne", 1, 1, {}, NotEqualTo},
    {"none", 0, 0, {}, KindTest<IsNone>},
    {"number", 0, 0, {}, KindTest<IsNumber>},
    {"odd", 0, 0, {}, Parity<1>},
    {"sequence", 0, 0, {}, KindTest<IsSequenceValue>},
    {"string", 0, 0, {}, KindTest<IsText>},
    {"true", 0, 0, {}, KindTest<IsTrueItself>},
    {"undefined", 0, 0, {}, KindTest<IsUndefined>},
};

const Builtin* FindIn(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Builtin::name);
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

const Builtin* FindFilter(std::string_view name) {
  const Builtin* found = FindIn(kFilters, name);
  return found != nullptr ? found : FindIn(TextFilters(), name);
}
const Builtin* FindTest(std::string_view name) { return FindIn(kTests, name); }
const Builtin* FindMethod(std::string_view name) {
  const Builtin* found = FindIn(kMethods, name);
  return found != nullptr ? found : FindIn(TextMethods(), name);
}

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
