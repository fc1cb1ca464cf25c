#include "text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

// White space as the reference tokenizers mean it: Unicode's White_Space. PCRE's own \s also takes
// U+180E, which lost the property in Unicode 6.3, so the class is written out.
#define KVRM_SPACE \
  R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"
#define KVRM_CONTRACTION "'(?:s|t|re|ve|m|ll|d)"
#define KVRM_ANY_CASE_CONTRACTION "(?i:" KVRM_CONTRACTION ")"

// GPT-2. Its own pattern leaves a single white-space character before a word uncovered; the last
// branch makes that one a piece, which is what the reference does with what is left over.
constexpr char kGpt2[] =
    KVRM_CONTRACTION R"(| ?\p{L}+| ?\p{N}+| ?[^)" KVRM_SPACE R"(\p{L}\p{N}]+|[)" KVRM_SPACE
                     R"(]+(?![^)" KVRM_SPACE R"(])|[)" KVRM_SPACE R"(]+)";

// Each number character on its own first, GPT-2 within what lies between. In one pattern: a number
// is never joined by a space or by its like, and white space before it counts as at the end.
constexpr char kSingleDigits[] =
    KVRM_CONTRACTION R"(| ?\p{L}+|\p{N}| ?[^)" KVRM_SPACE R"(\p{L}\p{N}]+|[)" KVRM_SPACE
                     R"(]+(?![^)" KVRM_SPACE R"(\p{N}])|[)" KVRM_SPACE R"(]+)";

#define KVRM_LLAMA3_LIKE(letter, numbers)                                                 \
  KVRM_ANY_CASE_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[)" letter R"(]+|)" numbers             \
                            R"(| ?[^)" KVRM_SPACE letter R"(\p{N}]+[\r\n]*|[)" KVRM_SPACE \
                            R"(]*[\r\n]+|[)" KVRM_SPACE R"(]+(?![^)" KVRM_SPACE           \
                            R"(])|[)" KVRM_SPACE R"(]+)"
constexpr char kLlama3[] = KVRM_LLAMA3_LIKE(R"(\p{L})", R"(\p{N}{1,3})");
constexpr char kQwen2[] = KVRM_LLAMA3_LIKE(R"(\p{L})", R"(\p{N})");
constexpr char kQwen35[] =
    KVRM_LLAMA3_LIKE(R"(\p{L}\p{M})", R"(\p{N})");  // marks stay with letters

// DeepSeek cuts in several passes, each within the pieces of the one before.
#define KVRM_MAYBE_SPACE "[" KVRM_SPACE "]?"
constexpr char kLineEnds[] = R"([\r\n])";
constexpr char kEastAsian[] = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
constexpr char kDigit[] = R"(\p{N})";
constexpr char kSpacedLetters[] = KVRM_MAYBE_SPACE R"(\p{L}+)";
constexpr char kSpacedPunctuation[] = KVRM_MAYBE_SPACE R"(\p{P}+)";
// Letters of scripts with two cases, as deepseek-llm lists them (not all of Unicode's).
#define KVRM_CASED                                                                          \
  R"(A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293})"   \
  R"(\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386})"            \
  R"(\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f})"   \
  R"(\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba})"  \
  R"(\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a})"                 \
  R"(\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d})"                 \
  R"(\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4})"          \
  R"(\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3})"         \
  R"(\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107})" \
  R"(\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d})"  \
  R"(\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184})"  \
  R"(\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d})" \
  R"(\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e})"                 \
  R"(\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a})"                 \
  R"(\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb})"           \
  R"(\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943})"
constexpr char kSpacedCasedLetters[] = KVRM_MAYBE_SPACE "[" KVRM_CASED "]+";
constexpr char kSpacedAsciiPunctuation[] = KVRM_MAYBE_SPACE
    R"([!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
// Blanks at the end only. What does not reach the end is given up as a whole: a search from each of
// its characters would take quadratic time.
constexpr char kTrailingSpaces[] = "[" KVRM_SPACE R"(]++(*SKIP)\z)";

constexpr char kFalconPunctuation[] = R"([\p{P}$+<=>^~|`]+)";
constexpr char kThreeDigits[] = R"([0-9]{3})";

struct Kind {
  std::string_view name;
  // Passes in order, each within the pieces of the one before; what a pass does not match is a
  // piece too.
  std::array<const char*, 6> passes;
  PreTokenizerTraits traits;
};

constexpr std::array<Kind, 14> kKinds{{
    {"command-r", {kSingleDigits}, {}},
    {"deepseek-coder", {kLineEnds, kSpacedLetters, kSpacedPunctuation, kEastAsian, kDigit}, {}},
    {"deepseek-llm",
     {kLineEnds, kSpacedCasedLetters, kSpacedAsciiPunctuation, kTrailingSpaces, kEastAsian, kDigit},
     {}},
    {"falcon", {kFalconPunctuation, kGpt2, kThreeDigits}, {}},
    {"gpt-2", {kGpt2}, {}},
    {"llama-bpe", {kLlama3}, {.whole_piece_first = true, .adds_start_token = true}},
    {"mpt", {kGpt2}, {}},
    {"qwen2", {kQwen2}, {.normalizes_nfc = true}},
    {"qwen35", {kQwen35}, {}},
    {"refact", {kSingleDigits}, {}},
    {"smaug-bpe", {kLlama3}, {}},
    {"smollm", {kSingleDigits}, {}},
    {"stablelm2", {kQwen2}, {}},
    {"starcoder", {kSingleDigits}, {}},
}};

// Other names that converters give to what is cut, merged and begun as one of these is.
struct Alias {
  std::string_view name, kind;
};
constexpr Alias kAliases[] = {
    {"a.x-4.0", "gpt-2"},
    {"chatglm-bpe", "smaug-bpe"},
    {"codeshell", "smollm"},
    {"dbrx", "smaug-bpe"},
    {"deepseek-r1-qwen", "qwen2"},
    {"exaone", "smollm"},
    {"exaone4", "gpt-2"},
    {"f2llmv2", "stablelm2"},
    {"falcon-h1", "llama-bpe"},
    {"falcon3", "llama-bpe"},
    {"gigachat", "gpt-2"},
    {"glm4", "smaug-bpe"},
    {"granite-docling", "gpt-2"},
    {"grok-2", "stablelm2"},
    {"hunyuan", "stablelm2"},
    {"jais", "gpt-2"},
    {"jina-de", "gpt-2"},
    {"jina-es", "gpt-2"},
    {"jina-v2-de", "gpt-2"},
    {"jina-v2-es", "gpt-2"},
    {"jina-v5-nano", "llama-bpe"},
    {"kormo", "stablelm2"},
    {"lfm2", "llama-bpe"},
    {"llama-v3", "llama-bpe"},
    {"llama3", "llama-bpe"},
    {"megrez", "stablelm2"},
    {"mellum", "gpt-2"},
    {"mellum2", "smollm"},
    {"midm-2.0", "llama-bpe"},
    {"minerva-7b", "smollm"},
    {"modern-bert", "gpt-2"},
    {"olmo", "gpt-2"},
    {"phi-2", "gpt-2"},
    {"pixtral", "llama-bpe"},
    {"solar-open", "stablelm2"},
    {"trillion", "gpt-2"},
};

std::string_view KindOfName(std::string_view name) {
  const auto* alias = std::ranges::find(kAliases, name, &Alias::name);
  return alias == std::end(kAliases) ? name : alias->kind;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

// One pass of a cut: a compiled pattern.
class Pass {
 public:
  explicit Pass(const char* pattern) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                              PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
    KVRM_CHECK(code_ != nullptr, "the patterns of the table compile");
    // PCRE's default limit guards against patterns that explode; these step back at most once over
    // each character, and a text of ten million blanks is no error.
    context_.reset(pcre2_match_context_create(nullptr));
    KVRM_CHECK(context_ != nullptr, "memory for a match context");
    pcre2_set_match_limit(context_.get(), UINT32_MAX);
    // Where executable memory is refused the same matches come from the interpreter, more slowly.
    jit_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
  }

  // Appends the ends of the pieces of `text`, valid UTF-8, each moved by `offset`.
  void Split(std::string_view text, size_t offset, pcre2_match_data* match,
             std::vector<size_t>& ends) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match);
    size_t at = 0;
    while (at < text.size()) {
      const int count =
          jit_ ? pcre2_jit_match(code_.get(), subject, text.size(), at, 0, match, context_.get())
               : pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, match,
                             context_.get());
      if (count == PCRE2_ERROR_NOMATCH) {
        ends.push_back(offset + text.size());
        return;
      }
      // Each branch is a class repeated without captures, so that the match needs no stack that
      // grows with the text.
      KVRM_CHECK(count >= 1 && span[0] >= at && span[1] > span[0],
                 "a pattern's match is not empty");
      if (span[0] > at) ends.push_back(offset + span[0]);
      at = span[1];
      ends.push_back(offset + at);
    }
  }

 private:
  std::unique_ptr<pcre2_code, CodeDeleter> code_;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context_;
  bool jit_ = false;
};

class PatternPreTokenizer final : public PreTokenizer {
 public:
  explicit PatternPreTokenizer(const Kind& kind) {
    traits_ = kind.traits;
    for (const char* pattern : kind.passes) {
      if (pattern != nullptr) passes_.emplace_back(pattern);
    }
  }

  void Split(std::string_view text, std::vector<size_t>& ends) const override {
    ends.clear();
    const std::unique_ptr<pcre2_match_data, MatchDataDeleter> match(
        pcre2_match_data_create(1, nullptr));
    KVRM_CHECK(match != nullptr, "memory for one match");
    size_t at = 0;
    while (at < text.size()) {
      const size_t valid_end = ValidUtf8End(text, at);
      SplitValid(text.substr(at, valid_end - at), at, match.get(), ends);
      at = valid_end;
      const size_t bad_begin = at;
      while (at < text.size()) {
        const Utf8Step step = NextUtf8(text, at);
        if (step.status == Utf8Status::kValid) break;
        at += step.length;
      }
      if (at > bad_begin) ends.push_back(at);
    }
  }

 private:
  void SplitValid(std::string_view text, size_t offset, pcre2_match_data* match,
                  std::vector<size_t>& ends) const {
    if (passes_.size() == 1) return passes_[0].Split(text, offset, match, ends);
    std::vector<size_t> pieces = {offset + text.size()};
    std::vector<size_t> finer;
    for (const Pass& pass : passes_) {
      finer.clear();
      size_t begin = offset;
      for (const size_t end : pieces) {
        pass.Split(text.substr(begin - offset, end - begin), begin, match, finer);
        begin = end;
      }
      pieces.swap(finer);
    }
    ends.insert(ends.end(), pieces.begin(), pieces.end());
  }

  std::vector<Pass> passes_;
};

}  // namespace

std::vector<std::string_view> PreTokenizer::Names() {
  std::vector<std::string_view> names;
  for (const Kind& kind : kKinds) names.push_back(kind.name);
  return names;
}

std::vector<std::string_view> PreTokenizer::PatternsOf(std::string_view name) {
  const auto* kind = std::ranges::find(kKinds, name, &Kind::name);
  KVRM_CHECK(kind != kKinds.end(), "PatternsOf is asked for a kind that there is");
  std::vector<std::string_view> patterns;
  for (const char* pattern : kind->passes) {
    if (pattern != nullptr) patterns.emplace_back(pattern);
  }
  return patterns;
}

Result<std::unique_ptr<const PreTokenizer>> PreTokenizer::Create(std::string_view name) {
  std::string known;
  for (const Kind& kind : kKinds) {
    if (kind.name == KindOfName(name)) {
      return std::unique_ptr<const PreTokenizer>(std::make_unique<PatternPreTokenizer>(kind));
    }
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  known += "; of their kinds:";
  for (const Alias& alias : kAliases) known += " " + std::string(alias.name);
  return Unsupported("tokenizer.ggml.pre: \"" + ForMessage(name) +
                     "\" is not supported; known: " + known);
}

}  // namespace kvrm
