#include "text/hub_pre_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "text/json_fields.h"

namespace kvrm {
namespace {

namespace json = boost::json;

constexpr std::string_view kWrittenBlank = "\u2581";

// The steps of a byte-level pre-tokenizer, each on a line, and the name that GGUF files give it.
struct Known {
  std::string_view steps;
  std::string_view pre;
};

#define KVRM_HUB_LLAMA3_LIKE(letters, not_letters, numbers)                        \
  "split (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letters "+|" numbers \
  "| ?[^\\s" not_letters "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+\nbytes\n"

// Letters of scripts with two cases, as DeepSeek's files list them.
constexpr std::string_view kDeepSeekSteps =
    "split [\r\n]\nsplit \\s?["
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
    "]+\nsplit \\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+\nsplit \\s+$\n"
    "split [\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+\ndigits\nbytes\n";

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
    {kDeepSeekSteps, "deepseek-llm"},
};

// `path` of a step: where it stands in the file, for messages.
class Reader {
 public:
  explicit Reader(TokenizerSpec& spec) : spec_(spec) { spec_.nfc = false; }

  Status Normalizer(const json::value& value, const std::string& path) {
    if (value.is_null()) return Ok();
    if (!value.is_object()) return hub::Invalid(path + " is no object");
    const json::object& step = value.get_object();
    KVRM_ASSIGN_OR_RETURN(const std::string type, hub::String(step, "type", path));
    if (type == "Sequence") return Each(step, "normalizers", path, &Reader::Normalizer);
    if (type == "NFC") {
      spec_.nfc = true;
      return Ok();
    }
    if (type == "Prepend") return Prepend(step, path);
    if (type == "Replace") return Replace(step, path);
    return hub::NotOffered(path + " " + Shown(type));
  }

  Status PreTokenizer(const json::value& value, const std::string& path) {
    if (value.is_null()) return Ok();
    if (!value.is_object()) return hub::Invalid(path + " is no object");
    const json::object& step = value.get_object();
    KVRM_ASSIGN_OR_RETURN(const std::string type, hub::String(step, "type", path));
    if (type == "Sequence") return Each(step, "pretokenizers", path, &Reader::PreTokenizer);
    if (type == "ByteLevel") return ByteLevel(step, path);
    if (type == "Split") return Split(step, path);
    if (type == "Metaspace") return Metaspace(step, path);
    if (type == "Digits") {
      KVRM_ASSIGN_OR_RETURN(const bool single, hub::Flag(step, "individual_digits", false, path));
      if (!single) return hub::NotOffered(path + " Digits of whole numbers");
      steps_ += "digits\n";
      return Ok();
    }
    return hub::NotOffered(path + " " + Shown(type));
  }

  Status Finish() {
    if (!is_byte_level_) {
      spec_.model = "llama";
      // A split at blanks finds none once they are written as U+2581: by the normalizer, that is.
      const bool splits_nothing = steps_.empty() || (steps_ == "split-blank\n" && replaces_);
      if (!(replaces_ || metaspace_) || !splits_nothing) {
        return hub::NotOffered("a pre_tokenizer without ByteLevel, Metaspace or blanks as U+2581");
      }
      if (metaspace_ && (replaces_ || prepends_)) {
        return hub::NotOffered("Metaspace beside a normalizer that writes blanks");
      }
      return Ok();
    }
    spec_.model = "gpt2";
    if (replaces_ || metaspace_) return hub::NotOffered("ByteLevel beside blanks as U+2581");
    if (prepends_) return hub::NotOffered("ByteLevel beside the normalizer Prepend");
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

  Status Each(const json::object& sequence, std::string_view name, const std::string& path,
              Status (Reader::*read)(const json::value&, const std::string&)) {
    const std::string list_path = hub::PathOf(path, name);
    const json::value* list = hub::Find(sequence, name);
    if (list == nullptr || !list->is_array()) return hub::Invalid(list_path + " is no list");
    size_t i = 0;
    for (const json::value& step : list->get_array()) {
      KVRM_RETURN_IF_ERROR((this->*read)(step, list_path + "[" + std::to_string(i++) + "]"));
    }
    return Ok();
  }

  // {"pattern": {"String": ...}} or {"Regex": ...}.
  static Result<std::string> Pattern(const json::object& step, std::string_view kind,
                                     const std::string& path) {
    const std::string pattern_path = hub::PathOf(path, "pattern");
    const json::value* pattern = hub::Find(step, "pattern");
    if (pattern == nullptr || !pattern->is_object()) {
      return hub::Invalid(pattern_path + " is no object");
    }
    if (hub::Find(pattern->get_object(), kind) == nullptr) {
      return hub::NotOffered(pattern_path + ": a pattern that is no " + std::string(kind));
    }
    return hub::String(pattern->get_object(), kind, pattern_path);
  }

  Status Prepend(const json::object& step, const std::string& path) {
    KVRM_ASSIGN_OR_RETURN(const std::string text, hub::String(step, "prepend", path));
    if (text != kWrittenBlank) return hub::NotOffered(path + " Prepend of " + Shown(text));
    if (prepends_) return hub::NotOffered(path + " Prepend twice");
    prepends_ = true;
    spec_.add_space_prefix = true;
    return Ok();
  }

  Status Replace(const json::object& step, const std::string& path) {
    KVRM_ASSIGN_OR_RETURN(const std::string from, Pattern(step, "String", path));
    KVRM_ASSIGN_OR_RETURN(const std::string to, hub::String(step, "content", path));
    if (from != " " || to != kWrittenBlank) {
      return hub::NotOffered(path + " Replace of " + Shown(from) + " by " + Shown(to));
    }
    replaces_ = true;
    return Ok();
  }

  Status ByteLevel(const json::object& step, const std::string& path) {
    KVRM_ASSIGN_OR_RETURN(const bool prefix, hub::Flag(step, "add_prefix_space", true, path));
    KVRM_ASSIGN_OR_RETURN(const bool words, hub::Flag(step, "use_regex", true, path));
    if (prefix) return hub::NotOffered(path + ": ByteLevel with add_prefix_space");
    if (is_byte_level_) return hub::NotOffered(path + ": ByteLevel twice");
    is_byte_level_ = true;
    steps_ += words ? "words\n" : "bytes\n";
    return Ok();
  }

  Status Split(const json::object& step, const std::string& path) {
    KVRM_ASSIGN_OR_RETURN(const std::string behavior, hub::String(step, "behavior", path));
    KVRM_ASSIGN_OR_RETURN(const bool invert, hub::Flag(step, "invert", false, path));
    const json::value* pattern = hub::Find(step, "pattern");
    const bool is_text = pattern != nullptr && pattern->is_object() &&
                         hub::Find(pattern->get_object(), "String") != nullptr;
    KVRM_ASSIGN_OR_RETURN(const std::string text,
                          Pattern(step, is_text ? "String" : "Regex", path));
    if (is_text && text == " " && behavior == "MergedWithPrevious" && !invert) {
      steps_ += "split-blank\n";
      return Ok();
    }
    // "Removed" with `invert` drops what does not match: with these patterns, nothing.
    const bool isolates = (behavior == "Isolated" && !invert) || (behavior == "Removed" && invert);
    if (is_text || !isolates) {
      return hub::NotOffered(path + ": Split by " + Shown(text) + " " + behavior);
    }
    steps_ += "split " + text + "\n";
    return Ok();
  }

  Status Metaspace(const json::object& step, const std::string& path) {
    KVRM_ASSIGN_OR_RETURN(const std::string blank, hub::String(step, "replacement", path));
    KVRM_ASSIGN_OR_RETURN(const bool old_prefix, hub::Flag(step, "add_prefix_space", true, path));
    KVRM_ASSIGN_OR_RETURN(const std::string scheme, hub::String(step, "prepend_scheme", path));
    KVRM_ASSIGN_OR_RETURN(const bool splits, hub::Flag(step, "split", true, path));
    if (blank != kWrittenBlank) return hub::NotOffered(path + ": Metaspace with " + Shown(blank));
    if (!scheme.empty() && scheme != "always" && scheme != "first" && scheme != "never") {
      return hub::NotOffered(path + ": Metaspace with prepend_scheme " + Shown(scheme));
    }
    if (metaspace_) return hub::NotOffered(path + ": Metaspace twice");
    spec_.add_space_prefix = scheme.empty() ? old_prefix : scheme != "never";
    spec_.space_prefix =
        scheme == "first" ? SpacePrefix::kFirstUnlessBlank : SpacePrefix::kEachUnlessBlank;
    spec_.cuts_at_blanks = splits;
    metaspace_ = true;
    return Ok();
  }

  TokenizerSpec& spec_;
  std::string steps_;
  bool is_byte_level_ = false;
  bool prepends_ = false, replaces_ = false;  // by the normalizer: a blank in front; blanks written
  bool metaspace_ = false;
};

}  // namespace

Status ReadHubPreTokenizer(const json::value& normalizer, const json::value& pre_tokenizer,
                           TokenizerSpec& spec) {
  Reader reader(spec);
  KVRM_RETURN_IF_ERROR(reader.Normalizer(normalizer, "normalizer"));
  KVRM_RETURN_IF_ERROR(reader.PreTokenizer(pre_tokenizer, "pre_tokenizer"));
  return reader.Finish();
}

}  // namespace kvrm
