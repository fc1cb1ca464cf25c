#include "text/hub_pre_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "text/json_fields.h"

namespace kvrm {
namespace {

namespace json = boost::json;

constexpr std::string_view kBlank = "\u2581";

// The steps of a byte-level pre-tokenizer, each on a line, and the name that GGUF files give it.
struct Known {
  std::string_view steps;
  std::string_view pre;
};

#define KVRM_HUB_LLAMA3_LIKE(letters, not_letters, numbers)                        \
  "split (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letters "+|" numbers \
  "| ?[^\\s" not_letters "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+\nbytes\n"

constexpr Known kKnown[] = {
    {"words\n", "gpt-2"},
    {"split '(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+\n"
     "bytes\n",
     "gpt-2"},
    {"digits\nwords\n", "smollm"},
    {KVRM_HUB_LLAMA3_LIKE("\\p{L}", "\\p{L}", "\\p{N}{1,3}"), "llama-bpe"},
    {KVRM_HUB_LLAMA3_LIKE("\\p{L}", "\\p{L}", "\\p{N}"), "qwen2"},
    {KVRM_HUB_LLAMA3_LIKE("[\\p{L}\\p{M}]", "\\p{L}\\p{M}", "\\p{N}"), "qwen35"},
    {"split [\r\n]\nsplit \\s?\\p{L}+\nsplit \\s?\\p{P}+\n"
     "split [\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+\ndigits\nbytes\n",
     "deepseek-coder"},
};

class Reader {
 public:
  explicit Reader(TokenizerSpec& spec) : spec_(spec) { spec_.nfc = false; }

  Status Normalizer(const json::value& value) {
    if (value.is_null()) return Ok();
    if (!value.is_object()) return hub::Invalid("normalizer is no object");
    const json::object& step = value.get_object();
    KVRM_ASSIGN_OR_RETURN(const std::string type, hub::String(step, "type"));
    if (type == "Sequence") return Each(step, "normalizers", &Reader::Normalizer);
    if (type == "NFC") {
      spec_.nfc = true;
    } else if (type == "Prepend") {
      KVRM_ASSIGN_OR_RETURN(const std::string text, hub::String(step, "prepend"));
      if (text != kBlank) return hub::NotOffered("normalizer Prepend of " + Shown(text));
      spec_.add_space_prefix = true;
    } else if (type == "Replace") {
      KVRM_ASSIGN_OR_RETURN(const std::string from, Pattern(step, "String"));
      KVRM_ASSIGN_OR_RETURN(const std::string to, hub::String(step, "content"));
      if (from != " " || to != kBlank) {
        return hub::NotOffered("normalizer Replace of " + Shown(from) + " by " + Shown(to));
      }
      escapes_blanks_ = true;
    } else {
      return hub::NotOffered("normalizer " + Shown(type));
    }
    return Ok();
  }

  Status PreTokenizer(const json::value& value) {
    if (value.is_null()) return Ok();
    if (!value.is_object()) return hub::Invalid("pre_tokenizer is no object");
    const json::object& step = value.get_object();
    KVRM_ASSIGN_OR_RETURN(const std::string type, hub::String(step, "type"));
    if (type == "Sequence") return Each(step, "pretokenizers", &Reader::PreTokenizer);
    if (type == "ByteLevel") return ByteLevel(step);
    if (type == "Split") return Split(step);
    if (type == "Metaspace") return Metaspace(step);
    if (type == "Digits") {
      KVRM_ASSIGN_OR_RETURN(const bool single, hub::Flag(step, "individual_digits", false));
      if (!single) return hub::NotOffered("pre_tokenizer Digits of whole numbers");
      steps_ += "digits\n";
      return Ok();
    }
    return hub::NotOffered("pre_tokenizer " + Shown(type));
  }

  Status Finish() {
    if (!is_byte_level_) {
      spec_.model = "llama";
      // A split at blanks finds none once they are written as U+2581.
      const bool splits_nothing = steps_.empty() || steps_ == "split-blank\n";
      if (!escapes_blanks_ || !splits_nothing) {
        return hub::NotOffered("a pre_tokenizer without ByteLevel, Metaspace or blanks as U+2581");
      }
      return Ok();
    }
    spec_.model = "gpt2";
    if (escapes_blanks_) return hub::NotOffered("ByteLevel beside blanks as U+2581");
    const auto* known = std::ranges::find(kKnown, steps_, &Known::steps);
    if (known == std::end(kKnown)) {
      return hub::NotOffered("pre_tokenizer with the steps " +
                             ForMessage(steps_, /*max_bytes=*/300));
    }
    spec_.pre = known->pre;
    return Ok();
  }

 private:
  static std::string Shown(std::string_view text) { return "\"" + ForMessage(text) + "\""; }

  Status Each(const json::object& sequence, std::string_view name,
              Status (Reader::*read)(const json::value&)) {
    const json::value* list = hub::Find(sequence, name);
    if (list == nullptr || !list->is_array()) {
      return hub::Invalid(std::string(name) + " is no list");
    }
    for (const json::value& step : list->get_array()) KVRM_RETURN_IF_ERROR((this->*read)(step));
    return Ok();
  }

  // {"pattern": {"String": ...}} or {"Regex": ...}.
  static Result<std::string> Pattern(const json::object& step, std::string_view kind) {
    const json::value* pattern = hub::Find(step, "pattern");
    if (pattern == nullptr || !pattern->is_object()) return hub::Invalid("pattern is no object");
    if (hub::Find(pattern->get_object(), kind) == nullptr) {
      return hub::NotOffered("a pattern that is no " + std::string(kind));
    }
    return hub::String(pattern->get_object(), kind);
  }

  Status ByteLevel(const json::object& step) {
    KVRM_ASSIGN_OR_RETURN(const bool prefix, hub::Flag(step, "add_prefix_space", true));
    KVRM_ASSIGN_OR_RETURN(const bool words, hub::Flag(step, "use_regex", true));
    if (prefix) return hub::NotOffered("ByteLevel with add_prefix_space");
    if (is_byte_level_) return hub::NotOffered("ByteLevel twice");
    is_byte_level_ = true;
    steps_ += words ? "words\n" : "bytes\n";
    return Ok();
  }

  Status Split(const json::object& step) {
    KVRM_ASSIGN_OR_RETURN(const std::string behavior, hub::String(step, "behavior"));
    KVRM_ASSIGN_OR_RETURN(const bool invert, hub::Flag(step, "invert", false));
    const json::value* pattern = hub::Find(step, "pattern");
    const bool is_text = pattern != nullptr && pattern->is_object() &&
                         hub::Find(pattern->get_object(), "String") != nullptr;
    KVRM_ASSIGN_OR_RETURN(const std::string text, Pattern(step, is_text ? "String" : "Regex"));
    if (is_text && text == " " && behavior == "MergedWithPrevious" && !invert) {
      steps_ += "split-blank\n";
      return Ok();
    }
    // "Removed" with `invert` drops what does not match: with these patterns, nothing.
    const bool isolates = (behavior == "Isolated" && !invert) || (behavior == "Removed" && invert);
    if (is_text || !isolates) return hub::NotOffered("Split by " + Shown(text) + " " + behavior);
    steps_ += "split " + text + "\n";
    return Ok();
  }

  Status Metaspace(const json::object& step) {
    KVRM_ASSIGN_OR_RETURN(const std::string blank, hub::String(step, "replacement"));
    KVRM_ASSIGN_OR_RETURN(const bool old_prefix, hub::Flag(step, "add_prefix_space", true));
    KVRM_ASSIGN_OR_RETURN(const std::string scheme, hub::String(step, "prepend_scheme"));
    KVRM_ASSIGN_OR_RETURN(const bool splits, hub::Flag(step, "split", true));
    if (blank != kBlank) return hub::NotOffered("Metaspace with " + Shown(blank));
    if (!scheme.empty() && scheme != "always" && scheme != "first" && scheme != "never") {
      return hub::NotOffered("Metaspace with prepend_scheme " + Shown(scheme));
    }
    spec_.add_space_prefix = scheme.empty() ? old_prefix : scheme != "never";
    spec_.space_prefix =
        scheme == "first" ? SpacePrefix::kFirstUnlessBlank : SpacePrefix::kEachUnlessBlank;
    spec_.cuts_at_blanks = splits;
    escapes_blanks_ = true;
    return Ok();
  }

  TokenizerSpec& spec_;
  std::string steps_;
  bool is_byte_level_ = false;
  bool escapes_blanks_ = false;
};

}  // namespace

Status ReadHubPreTokenizer(const json::value& normalizer, const json::value& pre_tokenizer,
                           TokenizerSpec& spec) {
  Reader reader(spec);
  KVRM_RETURN_IF_ERROR(reader.Normalizer(normalizer));
  KVRM_RETURN_IF_ERROR(reader.PreTokenizer(pre_tokenizer));
  return reader.Finish();
}

}  // namespace kvrm
