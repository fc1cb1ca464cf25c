#include "text/jinja_access.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/utf8.h"

namespace kvrm::jinja {
namespace {

constexpr std::array<std::string_view, 11> kDictMethods{
    "clear", "copy",       "fromkeys", "get",    "items",  "keys",
    "pop",   "setdefault", "update",   "values", "popitem"};
constexpr std::array<std::string_view, 11> kListMethods{"append", "clear",   "copy",   "count",
                                                        "extend", "index",   "insert", "pop",
                                                        "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 22> kTextMethods{
    "capitalize", "count",  "encode",  "endswith", "find",   "format", "index", "join",
    "lower",      "lstrip", "replace", "rfind",    "rsplit", "rstrip", "split", "splitlines",
    "startswith", "strip",  "title",   "upper",    "zfill",  "isdigit"};

bool IsMethod(const Value& base, std::string_view name) {
  const auto among = [name](const auto& names) {
    return std::ranges::find(names, name) != names.end();
  };
  if (base.AsDict() != nullptr) return among(kDictMethods);
  if (base.AsList() != nullptr) return among(kListMethods);
  return base.AsText() != nullptr && among(kTextMethods);
}

Result<Value> GetNamed(const Value& base, std::string_view name, Budget& budget) {
  if (base.is_undefined()) {
    return UndefinedError("what is asked for \"" + ForMessage(name) + "\"");
  }
  const Value* found = nullptr;
  if (const Dict* dict = base.AsDict()) {
    KVRM_RETURN_IF_ERROR(budget.Spend(dict->items.size() / 8));
    found = dict->Find(name);
  } else if (Namespace* names = base.AsNamespace()) {
    KVRM_RETURN_IF_ERROR(budget.Spend(names->items.size() / 8));
    found = names->Find(name);
  } else if (const Loop* loop = base.AsLoop()) {
    return loop->Get(name);
  }
  return found == nullptr ? Value() : *found;
}

// Python's rule for slices: the indices first, first + step, ... of a sequence.
std::vector<size_t> SliceIndices(std::optional<int64_t> begin, std::optional<int64_t> end,
                                 int64_t step, size_t length) {
  const auto size = static_cast<int64_t>(length);
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto clamp = [&](int64_t at) { return std::clamp(at < 0 ? at + size : at, low, high); };
  int64_t at = begin ? clamp(*begin) : (step > 0 ? low : high);
  const int64_t stop = end ? clamp(*end) : (step > 0 ? high : low);
  std::vector<size_t> indices;
  while (step > 0 ? at < stop : at > stop) {
    indices.push_back(static_cast<size_t>(at));
    // Steps longer than the sequence would overflow.
    if (step > size || step < -size) break;
    at += step;
  }
  return indices;
}

Result<std::optional<int64_t>> SliceIndex(const Value& value) {
  if (value.is_none() || value.is_undefined()) return std::optional<int64_t>();
  if (const int64_t* number = value.AsInt()) return std::optional<int64_t>(*number);
  return InvalidInput(std::string("a slice index of type ") + value.TypeName());
}

}  // namespace

Error UndefinedError(const std::string& what) { return InvalidInput(what + " is undefined"); }

Result<Value> GetAttribute(const Value& base, std::string_view name, Budget& budget) {
  if (IsMethod(base, name)) return Value(Macro{nullptr});
  return GetNamed(base, name, budget);
}

Result<Value> GetItem(const Value& base, const Value& key, Budget& budget) {
  if (key.AsText() != nullptr) return GetNamed(base, key.AsText()->bytes(), budget);
  if (base.is_undefined()) return UndefinedError("what is indexed");
  if (key.AsInt() == nullptr) return Value();
  int64_t at = *key.AsInt();
  if (const List* list = base.AsList()) {
    const auto size = static_cast<int64_t>(list->items.size());
    if (at < 0) at += size;
    return at < 0 || at >= size ? Value() : list->items[static_cast<size_t>(at)];
  }
  if (const Text* text = base.AsText()) {
    KVRM_RETURN_IF_ERROR(budget.Spend(text->size() / 16));
    const std::vector<size_t> begins = CharacterBegins(text->bytes());
    const auto size = static_cast<int64_t>(begins.size()) - 1;
    if (at < 0) at += size;
    if (at < 0 || at >= size) return Value();
    return Value(text->Slice(begins[static_cast<size_t>(at)], begins[static_cast<size_t>(at) + 1]));
  }
  return Value();
}

Result<Value> GetPath(const Value& base, std::string_view path, Budget& budget) {
  Value value = base;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    int64_t index = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = parsed.ec == std::errc() && parsed.ptr == part.data() + part.size();
    KVRM_ASSIGN_OR_RETURN(value,
                          GetItem(value, is_index ? Value(index) : Value(Text(part)), budget));
    begin = end + 1;
  }
  return value;
}

Result<Value> Slice(const Value& base, const Value& begin, const Value& end, const Value& step,
                    Budget& budget) {
  KVRM_ASSIGN_OR_RETURN(const std::optional<int64_t> first, SliceIndex(begin));
  KVRM_ASSIGN_OR_RETURN(const std::optional<int64_t> stop, SliceIndex(end));
  KVRM_ASSIGN_OR_RETURN(const std::optional<int64_t> stride, SliceIndex(step));
  const int64_t by = stride.value_or(1);
  if (by == 0) return InvalidInput("a slice step of 0");
  if (const List* list = base.AsList()) {
    KVRM_RETURN_IF_ERROR(budget.Spend(list->items.size()));
    std::vector<Value> items;
    for (const size_t i : SliceIndices(first, stop, by, list->items.size())) {
      items.push_back(list->items[i]);
    }
    return MakeList(std::move(items));
  }
  if (const Text* text = base.AsText()) {
    KVRM_RETURN_IF_ERROR(budget.Spend(text->size() / 16));
    const std::vector<size_t> begins = CharacterBegins(text->bytes());
    Text sliced;
    for (const size_t i : SliceIndices(first, stop, by, begins.size() - 1)) {
      sliced.Append(*text, begins[i], begins[i + 1]);
    }
    return Value(std::move(sliced));
  }
  if (base.is_undefined()) return UndefinedError("what is sliced");
  return InvalidInput(std::string("a slice of a ") + base.TypeName());
}

}  // namespace kvrm::jinja
