// Text and JSON of a model description.
#include <cmath>
#include <cstdio>

#include "model/describe.h"

namespace kvrm {
namespace {

constexpr size_t kMaxShownItems = 8;

std::string_view ChoiceName(WeightChoice choice) {
  switch (choice) {
    case WeightChoice::kAuto:
      return "auto";
    case WeightChoice::kF32:
      return "f32";
    case WeightChoice::kQ4:
      return "q4";
    case WeightChoice::kQ8:
      return "q8";
  }
  KVRM_CHECK(false, "weight choices are auto, f32, q4 and q8");
}

std::string_view FormatName(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return "f32";
    case KvFormat::kF16:
      return "f16";
    case KvFormat::kInt8:
      return "int8";
  }
  KVRM_CHECK(false, "KV formats are f32, f16 and int8");
}

std::string_view GroupKindName(KvGroupKind kind) {
  return kind == KvGroupKind::kFull ? "full" : "sliding";
}

template <class... Args>
std::string Format(const char* format, Args... args) {
  char buffer[256];
  const int length = std::snprintf(buffer, sizeof buffer, format, args...);
  KVRM_CHECK(length >= 0 && static_cast<size_t>(length) < sizeof buffer, "short lines fit");
  return buffer;
}

std::string Number(double value) { return Format("%.9g", value); }

std::string Mib(uint64_t bytes) {
  return Format("%.1f MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// ---- JSON

// Length of the UTF-8 character at `at`, 0 when the bytes there are none (overlong forms,
// surrogates and values past U+10FFFF included).
size_t Utf8Length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                   (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return bad ? 0 : length;
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    const size_t length = Utf8Length(text, at);
    if (length == 0) {
      out += "\\ufffd";
      ++at;
      continue;
    }
    if (c == '"' || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c < 0x20 || c == 0x7F) {
      out += Format("\\u%04x", static_cast<unsigned>(c));
    } else {
      out += text.substr(at, length);
    }
    at += length;
  }
  return out + "\"";
}

std::string JsonNumber(double value) { return std::isfinite(value) ? Number(value) : "null"; }

// Comma-separated members or items between brackets.
class JsonList {
 public:
  explicit JsonList(char open) : text_(1, open), close_(open == '{' ? '}' : ']') {}
  void Add(std::string_view item) {
    if (text_.size() > 1) text_ += ", ";
    text_ += item;
  }
  void Add(std::string_view name, std::string_view value) {
    Add(JsonString(name) + ": " + std::string(value));
  }
  void Add(std::string_view name, uint64_t value) { Add(name, std::to_string(value)); }
  std::string Finish() const { return text_ + close_; }

 private:
  std::string text_;
  char close_;
};

template <class Items, class ToJson>
std::string JsonArray(const char* type, const Items& items, ToJson to_json) {
  if (items.size() > kMaxShownItems) {
    JsonList summary('{');
    summary.Add("type", JsonString(type));
    summary.Add("length", items.size());
    return summary.Finish();
  }
  JsonList list('[');
  for (size_t i = 0; i < items.size(); ++i) list.Add(to_json(items[i]));
  return list.Finish();
}

std::string JsonValue(const GgufValue& value) {
  return std::visit(
      Overloaded{[](uint64_t v) { return std::to_string(v); },
                 [](int64_t v) { return std::to_string(v); },
                 [](double v) { return JsonNumber(v); },
                 [](bool v) { return std::string(v ? "true" : "false"); },
                 [](const std::string& v) { return JsonString(v); },
                 [](const IntegerList& v) {
                   return JsonArray("integer", v, [](int64_t i) { return std::to_string(i); });
                 },
                 [](const std::vector<double>& v) { return JsonArray("float", v, JsonNumber); },
                 [](const GgufValue::Strings& v) { return JsonArray("string", v, JsonString); }},
      value.data);
}

std::string JsonConfig(const ModelConfig& config) {
  JsonList object('{');
  object.Add("family", JsonString(config.family));
  object.Add("name", JsonString(config.name));
  object.Add("layers", config.num_layers);
  object.Add("hidden", config.hidden);
  object.Add("ffn", config.ffn);
  object.Add("heads", config.num_heads);
  object.Add("kv_heads", config.num_kv_heads);
  object.Add("head_dim", config.head_dim);
  object.Add("vocab", config.vocab);
  object.Add("max_context", config.max_context);
  object.Add("rope_base", JsonNumber(config.rope.base));
  object.Add("rope_factors", config.rope.factors.empty() ? "false" : "true");
  object.Add("tied_head", config.tied_head ? "true" : "false");
  return object.Finish();
}

std::string JsonGroup(const KvGroupDescription& group) {
  const KvGroupGeometry& geometry = group.geometry;
  JsonList object('{');
  object.Add("kind", JsonString(GroupKindName(geometry.kind)));
  object.Add("window_tokens", geometry.window_tokens);
  object.Add("page_tokens", geometry.page_tokens);
  object.Add("parts", geometry.num_parts);
  object.Add("part_page_bytes", geometry.part_page_bytes);
  object.Add("superblock_bytes", geometry.superblock_bytes);
  object.Add("pages_per_superblock", geometry.pages_per_superblock);
  object.Add("waste", JsonNumber(group.waste));
  return object.Finish();
}

std::string JsonKv(const KvDescription& kv) {
  JsonList groups('[');
  for (const KvGroupDescription& group : kv.groups) groups.Add(JsonGroup(group));
  JsonList object('{');
  object.Add("format", JsonString(FormatName(kv.format)));
  object.Add("groups", groups.Finish());
  object.Add("bytes_per_token", kv.bytes_per_token);
  return object.Finish();
}

std::string JsonMemory(const ModelDescription& description) {
  JsonList list('[');
  if (description.weights.empty()) return list.Finish();
  for (const KvDescription& kv : description.kv) {
    for (size_t i = 0; i < kDescribedSequences.size(); ++i) {
      JsonList object('{');
      object.Add("sequences", kDescribedSequences[i]);
      object.Add("context", description.config->max_context);
      object.Add("kv_format", JsonString(FormatName(kv.format)));
      object.Add("weight_bytes", description.weights[0].bytes);
      object.Add("kv_bytes", kv.bytes[i]);
      object.Add("total_bytes", description.weights[0].bytes + kv.bytes[i]);
      list.Add(object.Finish());
    }
  }
  return list.Finish();
}

// ---- text

std::string TextValue(const GgufValue& value) {
  const auto array = [](size_t length, const char* type) {
    return "[" + std::to_string(length) + " " + type + "]";
  };
  return std::visit(
      Overloaded{[](uint64_t v) { return std::to_string(v); },
                 [](int64_t v) { return std::to_string(v); }, [](double v) { return Number(v); },
                 [](bool v) { return std::string(v ? "true" : "false"); },
                 [](const std::string& v) { return PrintableName(v); },
                 [&](const IntegerList& v) { return array(v.size(), "integers"); },
                 [&](const std::vector<double>& v) { return array(v.size(), "floats"); },
                 [&](const GgufValue::Strings& v) { return array(v.size(), "strings"); }},
      value.data);
}

std::string TextTensors(const ModelDescription& description) {
  std::string text = "\ntensors by type\n";
  for (const TensorTypeUse& use : description.types) {
    text += Format("  %-8s %5llu tensors %14llu values %12s%s\n", use.type.c_str(),
                   static_cast<unsigned long long>(use.tensors),
                   static_cast<unsigned long long>(use.values), Mib(use.bytes).c_str(),
                   use.readable ? "" : "  (not readable)");
  }
  return text;
}

std::string TextGroup(KvFormat format, const KvGroupDescription& group) {
  const KvGroupGeometry& geometry = group.geometry;
  std::string sees = "everything";
  if (geometry.window_tokens > 0) sees = Format("a window of %u tokens", geometry.window_tokens);
  return Format(
      "  %-4s page of %u tokens, %u parts of %llu bytes; superblock %.4g MiB, %u pages, waste "
      "%.2f %%; sees %s\n",
      std::string(FormatName(format)).c_str(), geometry.page_tokens, geometry.num_parts,
      static_cast<unsigned long long>(geometry.part_page_bytes),
      static_cast<double>(geometry.superblock_bytes) / (1024.0 * 1024.0),
      geometry.pages_per_superblock, 100 * group.waste, sees.c_str());
}

std::string TextKv(const ModelDescription& description) {
  std::string text =
      "\nfamily " + description.config->family +
      Format(", %u layers; KV cache in %zu groups of layers\n", description.config->num_layers,
             description.kv.empty() ? size_t{0} : description.kv[0].groups.size());
  for (const KvDescription& kv : description.kv) {
    for (const KvGroupDescription& group : kv.groups) text += TextGroup(kv.format, group);
    text += Format("       %llu bytes a token that all layers hold\n",
                   static_cast<unsigned long long>(kv.bytes_per_token));
  }
  return text;
}

std::string TextMemory(const ModelDescription& description) {
  std::string text = "\nweights in memory\n";
  for (const WeightsDescription& weights : description.weights) {
    text += Format("  --weights %-5s %12s  ", std::string(ChoiceName(weights.choice)).c_str(),
                   Mib(weights.bytes).c_str()) +
            weights.encodings + "\n";
  }
  if (description.weights.empty() || description.kv.empty()) return text;
  text += Format("\nmemory at full context (%u tokens), weights auto + KV\n",
                 description.config->max_context);
  for (const KvDescription& kv : description.kv) {
    for (size_t i = 0; i < kDescribedSequences.size(); ++i) {
      text += Format("  %-4s %3u sequences: %12s + %12s = %12s\n",
                     std::string(FormatName(kv.format)).c_str(), kDescribedSequences[i],
                     Mib(description.weights[0].bytes).c_str(), Mib(kv.bytes[i]).c_str(),
                     Mib(description.weights[0].bytes + kv.bytes[i]).c_str());
    }
  }
  return text;
}

}  // namespace

std::string DescribeText(const GgufFile& file) {
  const ModelDescription description = Describe(file);
  const std::string kind = description.source == ModelSource::kSafetensors
                               ? ": safetensors, "
                               : Format(": GGUF v%u, ", description.version);
  std::string text =
      PrintableName(description.file) + kind + Mib(description.file_bytes) + "\n\nmetadata\n";
  for (const auto& [key, value] : *description.metadata) {
    text += "  " + PrintableName(key) + " = " + TextValue(value) + "\n";
  }
  text += TextTensors(description);
  if (description.config) text += TextKv(description) + TextMemory(description);
  if (description.missing.empty()) return text;
  text += "\ncannot be run\n";
  for (const std::string& reason : description.missing) text += "  " + reason + "\n";
  return text;
}

std::string DescribeJson(const GgufFile& file) {
  const ModelDescription description = Describe(file);
  JsonList metadata('{');
  for (const auto& [key, value] : *description.metadata) metadata.Add(key, JsonValue(value));
  JsonList types('[');
  for (const TensorTypeUse& use : description.types) {
    JsonList object('{');
    object.Add("type", JsonString(use.type));
    object.Add("readable", use.readable ? "true" : "false");
    object.Add("tensors", use.tensors);
    object.Add("values", use.values);
    object.Add("bytes", use.bytes);
    types.Add(object.Finish());
  }
  JsonList weights('[');
  for (const WeightsDescription& choice : description.weights) {
    JsonList object('{');
    object.Add("choice", JsonString(ChoiceName(choice.choice)));
    object.Add("encodings", JsonString(choice.encodings));
    object.Add("bytes", choice.bytes);
    weights.Add(object.Finish());
  }
  JsonList kv('[');
  for (const KvDescription& format : description.kv) kv.Add(JsonKv(format));
  JsonList missing('[');
  for (const std::string& reason : description.missing) missing.Add(JsonString(reason));

  JsonList root('{');
  root.Add("file", JsonString(description.file));
  root.Add("file_bytes", description.file_bytes);
  root.Add("source", JsonString(description.source == ModelSource::kGguf ? "gguf" : "safetensors"));
  root.Add("version", description.version);
  root.Add("metadata", metadata.Finish());
  root.Add("tensor_types", types.Finish());
  root.Add("config", description.config ? JsonConfig(*description.config) : "null");
  root.Add("kv", kv.Finish());
  root.Add("weights", weights.Finish());
  root.Add("memory", JsonMemory(description));
  root.Add("missing", missing.Finish());
  return root.Finish();
}

}  // namespace kvrm
