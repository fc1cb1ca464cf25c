#include "text/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
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

#define KVRM_LLAMA3_LIKE(numbers)                                                             \
  KVRM_ANY_CASE_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" numbers R"(| ?[^)" KVRM_SPACE     \
                            R"(\p{L}\p{N}]+[\r\n]*|[)" KVRM_SPACE R"(]*[\r\n]+|[)" KVRM_SPACE \
                            R"(]+(?![^)" KVRM_SPACE R"(])|[)" KVRM_SPACE R"(]+)"
constexpr char kLlama3[] = KVRM_LLAMA3_LIKE(R"(\p{N}{1,3})");
constexpr char kQwen2[] = KVRM_LLAMA3_LIKE(R"(\p{N})");

struct Kind {
  std::string_view name;
  const char* pattern;
  PreTokenizerTraits traits;
};

constexpr std::array<Kind, 6> kKinds{{
    {"gpt-2", kGpt2, {}},
    {"llama-bpe", kLlama3, {.whole_piece_first = true}},
    {"qwen2", kQwen2, {.normalizes_nfc = true}},
    {"refact", kSingleDigits, {}},
    {"smollm", kSingleDigits, {}},
    {"starcoder", kSingleDigits, {}},
}};

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

class PatternPreTokenizer final : public PreTokenizer {
 public:
  explicit PatternPreTokenizer(const Kind& kind) {
    traits_ = kind.traits;
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kind.pattern), PCRE2_ZERO_TERMINATED,
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
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match);
    size_t at = 0;
    while (at < text.size()) {
      int count =
          jit_ ? pcre2_jit_match(code_.get(), subject, text.size(), at, 0, match, context_.get())
               : pcre2_match(code_.get(), subject, text.size(), at,
                             PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, match, context_.get());
      // Each branch is a class repeated without captures, so that the match needs no stack that
      // grows with the text, and together they cover every character.
      KVRM_CHECK(count >= 1 && span[0] == at && span[1] > at, "the pattern covers all text");
      at = span[1];
      ends.push_back(offset + at);
    }
  }

  std::unique_ptr<pcre2_code, CodeDeleter> code_;
  std::unique_ptr<pcre2_match_context, MatchContextDeleter> context_;
  bool jit_ = false;
};

}  // namespace

Result<std::unique_ptr<const PreTokenizer>> PreTokenizer::Create(std::string_view name) {
  std::string known;
  for (const Kind& kind : kKinds) {
    if (kind.name == name) {
      return std::unique_ptr<const PreTokenizer>(std::make_unique<PatternPreTokenizer>(kind));
    }
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  return Unsupported("tokenizer.ggml.pre: \"" + ForMessage(name) +
                     "\" is not supported; known: " + known);
}

}  // namespace kvrm
