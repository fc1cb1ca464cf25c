#include "text/jinja_value.h"

#include <algorithm>

#include "text/utf8.h"

namespace kvrm::jinja {
namespace {

// Python's bool is a number.
struct Number {
  bool is_number = false;
  bool is_integer = false;
  int64_t integer = 0;
  double real = 0;
};

Number NumberOf(const Value& value) {
  if (const double* real = value.AsFloat()) return {true, false, 0, *real};
  if (const int64_t* integer = value.AsInt()) {
    return {true, true, *integer, static_cast<double>(*integer)};
  }
  if (const bool* flag = value.AsBool()) return {true, true, *flag ? 1 : 0, *flag ? 1.0 : 0.0};
  return {};
}

template <class Items, class Get>
Result<uint32_t> DepthOver(const Items& items, Get get) {
  uint32_t depth = 1;
  for (const auto& item : items) {
    const Value& value = get(item);
    if (value.AsNamespace() != nullptr || value.AsLoop() != nullptr) {
      return InvalidInput(std::string("a list or dict cannot hold a ") + value.TypeName());
    }
    depth = std::max(depth, value.Depth() + 1);
  }
  if (depth > Budget::kMaxValueDepth) {
    return InvalidInput("lists and dicts are nested deeper than " +
                        std::to_string(Budget::kMaxValueDepth) + " levels");
  }
  return depth;
}

Result<bool> EqualLists(const List& a, const List& b, Budget& budget) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  for (size_t i = 0; i < a.items.size(); ++i) {
    KVRM_ASSIGN_OR_RETURN(const bool same, Equal(a.items[i], b.items[i], budget));
    if (!same) return false;
  }
  return true;
}

Result<bool> EqualDicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    KVRM_RETURN_IF_ERROR(budget.Spend(1 + b.items.size()));
    const Value* other = b.Find(key.bytes());
    if (other == nullptr) return false;
    KVRM_ASSIGN_OR_RETURN(const bool same, Equal(value, *other, budget));
    if (!same) return false;
  }
  return true;
}

}  // namespace

bool Value::IsTrue() const {
  if (const bool* flag = AsBool()) return *flag;
  if (const int64_t* number = AsInt()) return *number != 0;
  if (const double* number = AsFloat()) return *number != 0;
  if (const Text* text = AsText()) return text->size() > 0;
  if (const List* list = AsList()) {
    return list->kind == List::Kind::kGenerator || !list->items.empty();
  }
  if (const Dict* dict = AsDict()) return !dict->items.empty();
  return !is_undefined() && !is_none();
}

const char* Value::TypeName() const {
  static constexpr const char* kNames[] = {"undefined", "none",   "boolean", "integer",
                                           "float",     "string", "list",    "dict",
                                           "namespace", "loop",   "function"};
  return kNames[data_.index()];
}

uint32_t Value::Depth() const {
  if (const List* list = AsList()) return list->depth;
  if (const Dict* dict = AsDict()) return dict->depth;
  return 0;
}

const Value* Dict::Find(std::string_view key) const {
  const auto found =
      std::ranges::find_if(items, [&](const auto& item) { return item.first.bytes() == key; });
  return found == items.end() ? nullptr : &found->second;
}

Value* Namespace::Find(std::string_view key) {
  const auto found =
      std::ranges::find_if(items, [&](const auto& item) { return item.first == key; });
  return found == items.end() ? nullptr : &found->second;
}

Value Loop::Get(std::string_view attribute) const {
  const auto size = static_cast<int64_t>(items->items.size());
  const auto at = static_cast<int64_t>(index);
  if (attribute == "index0") return at;
  if (attribute == "index") return at + 1;
  if (attribute == "revindex0") return size - at - 1;
  if (attribute == "revindex") return size - at;
  if (attribute == "length") return size;
  if (attribute == "first") return at == 0;
  if (attribute == "last") return at + 1 == size;
  if (attribute == "previtem" && at > 0) return items->items[index - 1];
  if (attribute == "nextitem" && at + 1 < size) return items->items[index + 1];
  return {};
}

Status Budget::Spend(uint64_t steps) {
  if (steps > steps_left_) {
    return InvalidInput("rendering takes over " + std::to_string(kMaxSteps) + " steps");
  }
  steps_left_ -= steps;
  return Ok();
}

Status Budget::SpendSearch(size_t whole, size_t part) {
  if (part > whole) return Ok();
  return Spend((whole - part + 1) * part / 65536);
}

Status Budget::MakeText(size_t bytes, size_t existing) {
  if (existing > kMaxTextBytes || bytes > kMaxTextBytes - existing) {
    return InvalidInput("a text of over " + std::to_string(kMaxTextBytes) + " bytes");
  }
  return SpendText(bytes);
}

Result<Value> MakeList(std::vector<Value> items, List::Kind kind) {
  KVRM_ASSIGN_OR_RETURN(const uint32_t depth,
                        DepthOver(items, [](const Value& item) -> const Value& { return item; }));
  return Value(std::make_shared<const List>(List{std::move(items), depth, kind}));
}

Result<Value> MakeDict(std::vector<std::pair<Text, Value>> items) {
  KVRM_ASSIGN_OR_RETURN(
      const uint32_t depth,
      DepthOver(items, [](const auto& item) -> const Value& { return item.second; }));
  return Value(std::make_shared<const Dict>(Dict{std::move(items), depth}));
}

Result<bool> Equal(const Value& a, const Value& b, Budget& budget) {
  KVRM_RETURN_IF_ERROR(budget.Spend(1));
  if (a.AsText() != nullptr && b.AsText() != nullptr) {
    KVRM_RETURN_IF_ERROR(budget.SpendText(std::min(a.AsText()->size(), b.AsText()->size())));
    return a.AsText()->bytes() == b.AsText()->bytes();
  }
  if (a.AsList() != nullptr && b.AsList() != nullptr) {
    return EqualLists(*a.AsList(), *b.AsList(), budget);
  }
  if (a.AsDict() != nullptr && b.AsDict() != nullptr) {
    return EqualDicts(*a.AsDict(), *b.AsDict(), budget);
  }
  const Number x = NumberOf(a);
  const Number y = NumberOf(b);
  if (x.is_integer && y.is_integer) return x.integer == y.integer;
  if (x.is_number && y.is_number) return x.real == y.real;
  if (a.AsNamespace() != nullptr) return a.AsNamespace() == b.AsNamespace();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Result<std::partial_ordering> Compare(const Value& a, const Value& b, Budget& budget) {
  if (a.AsText() != nullptr && b.AsText() != nullptr) {
    KVRM_RETURN_IF_ERROR(budget.SpendText(std::min(a.AsText()->size(), b.AsText()->size())));
    return std::partial_ordering(a.AsText()->bytes() <=> b.AsText()->bytes());
  }
  const Number x = NumberOf(a);
  const Number y = NumberOf(b);
  if (x.is_integer && y.is_integer) return std::partial_ordering(x.integer <=> y.integer);
  if (x.is_number && y.is_number) return x.real <=> y.real;
  return InvalidInput(std::string("operator <, <=, > or >= between a ") + a.TypeName() + " and a " +
                      b.TypeName());
}

Result<std::shared_ptr<const List>> Iterate(const Value& value, Budget& budget) {
  if (value.AsList() != nullptr) return value.shared_list();
  List list;
  if (const Dict* dict = value.AsDict()) {
    KVRM_RETURN_IF_ERROR(budget.Spend(dict->items.size()));
    for (const auto& item : dict->items) list.items.emplace_back(item.first);
  } else if (const Text* text = value.AsText()) {
    KVRM_RETURN_IF_ERROR(budget.Spend(4 * text->size()));
    const std::vector<size_t> begins = CharacterBegins(text->bytes());
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      list.items.emplace_back(text->Slice(begins[i], begins[i + 1]));
    }
  } else if (!value.is_undefined()) {
    return InvalidInput(std::string("a ") + value.TypeName() + " cannot be iterated over");
  }
  return std::make_shared<const List>(std::move(list));
}

}  // namespace kvrm::jinja
