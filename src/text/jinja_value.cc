#include "text/jinja_value.h"

#include <algorithm>

#include "text/utf8.h"

namespace kvrm::jinja {
namespace {

Status AppendBounded(const Text& text, Budget& budget, Text& out) {
  KVRM_RETURN_IF_ERROR(budget.MakeText(text.size(), out.size()));
  out.Append(text);
  return Ok();
}

// Text as a JSON string; each byte keeps its mark.
void AppendJsonString(const Text& text, Text& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out.Append("\"", /*from_user=*/false);
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    std::string escaped;
    for (const char c : text.bytes().substr(begin, run.end - begin)) {
      switch (c) {
        case '"':
          escaped += "\\\"";
          break;
        case '\\':
          escaped += "\\\\";
          break;
        case '\n':
          escaped += "\\n";
          break;
        case '\r':
          escaped += "\\r";
          break;
        case '\t':
          escaped += "\\t";
          break;
        case '\b':
          escaped += "\\b";
          break;
        case '\f':
          escaped += "\\f";
          break;
        default:
          if (static_cast<unsigned char>(c) < 0x20) {
            escaped += "\\u00";
            escaped += kHex[c >> 4];
            escaped += kHex[c & 15];
          } else {
            escaped += c;
          }
      }
    }
    out.Append(escaped, run.from_user);
    begin = run.end;
  }
  out.Append("\"", /*from_user=*/false);
}

class JsonPrinter {
 public:
  JsonPrinter(int64_t indent, Budget& budget, Text& out)
      : indent_(indent), budget_(budget), out_(out) {}

  Status Print(const Value& value, uint32_t level) {
    // The line end, blanks and separator before it included.
    const size_t blanks = indent_ < 0 ? 0 : static_cast<size_t>(indent_) * level;
    KVRM_RETURN_IF_ERROR(budget_.MakeText(blanks, out_.size()));
    if (const Text* text = value.AsText()) {
      KVRM_RETURN_IF_ERROR(budget_.MakeText(text->size(), out_.size()));
      AppendJsonString(*text, out_);
      return Ok();
    }
    if (const List* list = value.AsList()) return PrintList(*list, level);
    if (const Dict* dict = value.AsDict()) return PrintDict(*dict, level);
    if (const bool* flag = value.AsBool()) {
      Write(*flag ? "true" : "false");
    } else if (const int64_t* number = value.AsInt()) {
      Write(std::to_string(*number));
    } else if (value.is_none()) {
      Write("null");
    } else {
      return InvalidInput(std::string("tojson: a value of type ") + value.TypeName());
    }
    return Ok();
  }

 private:
  void Write(std::string_view text) { out_.Append(text, /*from_user=*/false); }

  // Between items, and before the first and after the last of a level.
  void BreakLine(uint32_t level) {
    if (indent_ < 0) return;
    Write("\n" + std::string(static_cast<size_t>(indent_) * level, ' '));
  }
  void Separate(bool first, uint32_t level) {
    if (!first) Write(indent_ < 0 ? ", " : ",");
    BreakLine(level);
  }

  Status PrintList(const List& list, uint32_t level) {
    if (list.items.empty()) return Write("[]"), Ok();
    Write("[");
    for (size_t i = 0; i < list.items.size(); ++i) {
      Separate(i == 0, level + 1);
      KVRM_RETURN_IF_ERROR(Print(list.items[i], level + 1));
    }
    BreakLine(level);
    Write("]");
    return Ok();
  }

  Status PrintDict(const Dict& dict, uint32_t level) {
    if (dict.items.empty()) return Write("{}"), Ok();
    Write("{");
    for (size_t i = 0; i < dict.items.size(); ++i) {
      Separate(i == 0, level + 1);
      AppendJsonString(dict.items[i].first, out_);
      Write(": ");
      KVRM_RETURN_IF_ERROR(Print(dict.items[i].second, level + 1));
    }
    BreakLine(level);
    Write("}");
    return Ok();
  }

  const int64_t indent_;
  Budget& budget_;
  Text& out_;
};

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
  if (a.items.size() != b.items.size()) return false;
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
  if (const Text* text = AsText()) return text->size() > 0;
  if (const List* list = AsList()) return !list->items.empty();
  if (const Dict* dict = AsDict()) return !dict->items.empty();
  return !is_undefined() && !is_none();
}

const char* Value::TypeName() const {
  static constexpr const char* kNames[] = {"undefined", "none", "boolean",   "integer", "string",
                                           "list",      "dict", "namespace", "loop",    "macro"};
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

Result<Value> MakeList(std::vector<Value> items) {
  KVRM_ASSIGN_OR_RETURN(const uint32_t depth,
                        DepthOver(items, [](const Value& item) -> const Value& { return item; }));
  return Value(std::make_shared<const List>(List{std::move(items), depth}));
}

Result<Value> MakeDict(std::vector<std::pair<Text, Value>> items) {
  KVRM_ASSIGN_OR_RETURN(
      const uint32_t depth,
      DepthOver(items, [](const auto& item) -> const Value& { return item.second; }));
  return Value(std::make_shared<const Dict>(Dict{std::move(items), depth}));
}

Result<bool> Equal(const Value& a, const Value& b, Budget& budget) {
  KVRM_RETURN_IF_ERROR(budget.Spend(1));
  const auto number = [](const Value& value) -> std::pair<bool, int64_t> {
    if (const int64_t* integer = value.AsInt()) return {true, *integer};
    if (const bool* flag = value.AsBool()) return {true, *flag ? 1 : 0};
    return {false, 0};
  };
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
  if (number(a).first && number(b).first) return number(a).second == number(b).second;
  if (a.AsNamespace() != nullptr) return a.AsNamespace() == b.AsNamespace();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Status Print(const Value& value, Budget& budget, Text& out) {
  if (const Text* text = value.AsText()) return AppendBounded(*text, budget, out);
  if (const int64_t* number = value.AsInt()) {
    return AppendBounded(Text(std::to_string(*number)), budget, out);
  }
  if (const bool* flag = value.AsBool()) {
    return AppendBounded(Text(*flag ? "True" : "False"), budget, out);
  }
  if (value.is_none()) return AppendBounded(Text("None"), budget, out);
  if (value.is_undefined()) return Ok();
  return InvalidInput(std::string("a ") + value.TypeName() +
                      " has no text of its own; tojson prints lists and dicts");
}

Status PrintJson(const Value& value, int64_t indent, Budget& budget, Text& out) {
  return JsonPrinter(indent, budget, out).Print(value, 0);
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
