#include "text/jinja_print.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "text/utf8.h"

namespace kvrm::jinja {
namespace {

Status AppendBounded(const Text& text, Budget& budget, Text& out) {
  KVRM_RETURN_IF_ERROR(budget.MakeText(text.size(), out.size()));
  out.Append(text);
  return Ok();
}

std::string Escape(const char* format, uint32_t code) {
  char text[16];
  std::snprintf(text, sizeof(text), format, code);
  return text;
}

// The escape that JSON and Python share; empty = the character has none.
std::string_view ShortEscape(char32_t c) {
  switch (c) {
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return {};
  }
}

std::string JsonEscape(char32_t c, bool ascii_only) {
  if (c == '"') return "\\\"";
  if (c == '\b') return "\\b";
  if (c == '\f') return "\\f";
  if (const std::string_view escape = ShortEscape(c); !escape.empty()) return std::string(escape);
  if (c < 0x20) return Escape("\\u%04x", c);
  if (!ascii_only || c < 0x7F) return {};
  if (c < 0x10000) return Escape("\\u%04x", c);
  const uint32_t offset = c - 0x10000;
  return Escape("\\u%04x", 0xD800 + (offset >> 10)) + Escape("\\u%04x", 0xDC00 + (offset & 0x3FF));
}

// What Python's str.isprintable() says.
bool IsPrintable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string ReprEscape(char32_t c, char quote) {
  if (c == static_cast<unsigned char>(quote)) return {'\\', quote};
  if (const std::string_view escape = ShortEscape(c); !escape.empty()) return std::string(escape);
  if (IsPrintable(c)) return {};
  if (c < 0x100) return Escape("\\x%02x", c);
  return Escape(c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

// Appends `text` between quotes, each character as `escape` writes it, or as it is where that is
// empty. Each byte keeps its mark.
template <class EscapeOf>
void AppendQuoted(const Text& text, char quote, EscapeOf escape, Text& out) {
  out.Append({&quote, 1}, /*from_user=*/false);
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    const std::string_view bytes = text.bytes().substr(begin, run.end - begin);
    std::string escaped;
    for (size_t at = 0; at < bytes.size();) {
      const Utf8Step step = NextUtf8(bytes, at);
      std::string written;
      if (step.status == Utf8Status::kValid) written = escape(step.code_point);
      escaped += written.empty() ? bytes.substr(at, step.length) : std::string_view(written);
      at += step.length;
    }
    out.Append(escaped, run.from_user);
    begin = run.end;
  }
  out.Append({&quote, 1}, /*from_user=*/false);
}

Error NotPrinted(const char* what) {
  return InvalidInput(std::string(what) + ": what select, map, unique or items gives; add |list");
}

// Python's repr.
class ReprPrinter {
 public:
  ReprPrinter(Budget& budget, Text& out) : budget_(budget), out_(out) {}

  Status Print(const Value& value) {
    KVRM_RETURN_IF_ERROR(budget_.Spend(1));
    if (const Text* text = value.AsText()) {
      KVRM_RETURN_IF_ERROR(budget_.MakeText(text->size(), out_.size()));
      const bool single = text->bytes().find('\'') == std::string_view::npos ||
                          text->bytes().find('"') != std::string_view::npos;
      const char quote = single ? '\'' : '"';
      AppendQuoted(*text, quote, [quote](char32_t c) { return ReprEscape(c, quote); }, out_);
      return Ok();
    }
    if (const List* list = value.AsList()) {
      if (list->kind == List::Kind::kGenerator) return NotPrinted("print");
      const bool is_tuple = list->kind == List::Kind::kTuple;
      Write(is_tuple ? "(" : "[");
      for (size_t i = 0; i < list->items.size(); ++i) {
        if (i > 0) Write(", ");
        KVRM_RETURN_IF_ERROR(Print(list->items[i]));
      }
      if (is_tuple) return Write(list->items.size() == 1 ? ",)" : ")"), Ok();
      return Write("]"), Ok();
    }
    if (const Dict* dict = value.AsDict()) {
      Write("{");
      for (size_t i = 0; i < dict->items.size(); ++i) {
        if (i > 0) Write(", ");
        KVRM_RETURN_IF_ERROR(Print(Value(dict->items[i].first)));
        Write(": ");
        KVRM_RETURN_IF_ERROR(Print(dict->items[i].second));
      }
      return Write("}"), Ok();
    }
    if (value.is_undefined()) return Write("Undefined"), Ok();
    return jinja::Print(value, budget_, out_);
  }

 private:
  void Write(std::string_view text) { out_.Append(text, /*from_user=*/false); }

  Budget& budget_;
  Text& out_;
};

class JsonPrinter {
 public:
  JsonPrinter(const JsonStyle& style, Budget& budget, Text& out)
      : style_(style), budget_(budget), out_(out) {}

  Status Print(const Value& value, uint32_t level) {
    // The line end, blanks and separators before it included.
    const size_t blanks = style_.indent < 0 ? 0 : static_cast<size_t>(style_.indent) * level;
    KVRM_RETURN_IF_ERROR(budget_.MakeText(blanks + style_.item_separator.size(), out_.size()));
    if (const Text* text = value.AsText()) return PrintText(*text);
    if (const List* list = value.AsList()) return PrintList(*list, level);
    if (const Dict* dict = value.AsDict()) return PrintDict(*dict, level);
    if (const bool* flag = value.AsBool()) {
      Write(*flag ? "true" : "false");
    } else if (const int64_t* number = value.AsInt()) {
      Write(std::to_string(*number));
    } else if (const double* real = value.AsFloat()) {
      Write(FloatText(*real));
    } else if (value.is_none()) {
      Write("null");
    } else {
      return InvalidInput(std::string("tojson: a value of type ") + value.TypeName());
    }
    return Ok();
  }

 private:
  void Write(std::string_view text) { out_.Append(text, /*from_user=*/false); }

  Status PrintText(const Text& text) {
    KVRM_RETURN_IF_ERROR(budget_.MakeText(text.size(), out_.size()));
    AppendQuoted(text, '"', [this](char32_t c) { return JsonEscape(c, style_.ascii_only); }, out_);
    return Ok();
  }

  // Between items, and before the first and after the last of a level.
  void BreakLine(uint32_t level) {
    if (style_.indent < 0) return;
    Write("\n" + std::string(static_cast<size_t>(style_.indent) * level, ' '));
  }
  void Separate(bool first, uint32_t level) {
    if (!first) Write(style_.item_separator);
    BreakLine(level);
  }

  Status PrintList(const List& list, uint32_t level) {
    if (list.kind == List::Kind::kGenerator) return NotPrinted("tojson");
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
    std::vector<const std::pair<Text, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sorts_keys) {
      std::ranges::sort(items, {}, [](const auto* item) { return item->first.bytes(); });
    }
    Write("{");
    for (size_t i = 0; i < items.size(); ++i) {
      Separate(i == 0, level + 1);
      KVRM_RETURN_IF_ERROR(PrintText(items[i]->first));
      Write(style_.key_separator);
      KVRM_RETURN_IF_ERROR(Print(items[i]->second, level + 1));
    }
    BreakLine(level);
    Write("}");
    return Ok();
  }

  const JsonStyle& style_;
  Budget& budget_;
  Text& out_;
};

}  // namespace

Status Print(const Value& value, Budget& budget, Text& out) {
  if (const Text* text = value.AsText()) return AppendBounded(*text, budget, out);
  if (const int64_t* number = value.AsInt()) {
    return AppendBounded(Text(std::to_string(*number)), budget, out);
  }
  if (const double* number = value.AsFloat()) {
    return AppendBounded(Text(FloatText(*number)), budget, out);
  }
  if (const bool* flag = value.AsBool()) {
    return AppendBounded(Text(*flag ? "True" : "False"), budget, out);
  }
  if (value.is_none()) return AppendBounded(Text("None"), budget, out);
  if (value.is_undefined()) return Ok();
  if (value.AsList() != nullptr || value.AsDict() != nullptr) {
    return ReprPrinter(budget, out).Print(value);
  }
  return InvalidInput(std::string("a ") + value.TypeName() + " has no text of its own");
}

Status PrintJson(const Value& value, const JsonStyle& style, Budget& budget, Text& out) {
  return JsonPrinter(style, budget, out).Print(value, 0);
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(scientific.ptr - buffer));
  int exponent = 0;
  const size_t e = text.find('e');
  const std::string_view digits = text.substr(e + 1).substr(text[e + 1] == '+' ? 1 : 0);
  std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  // Python writes an exponent below 1e-4 and from 1e16 on.
  if (exponent < -4 || exponent >= 16) return std::string(text);
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string plain(buffer, static_cast<size_t>(fixed.ptr - buffer));
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

}  // namespace kvrm::jinja
