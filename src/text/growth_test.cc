// B053: what runs of one unit cost at most doubles, and three tenths, where they are twice as long.
// Work is counted, not timed (tools/check-text growth does that): steps of merging, and what PCRE
// tries and how far it goes through the text.
#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/test_data.h"
#include "text/pre_tokenizer.h"
#include "text/test_vocabulary.h"
#include "text/vocab_tokenizer.h"

namespace kvrm {
namespace {

constexpr double kAtMost = 2.3;
constexpr const char* kUnits[] = {"a",      "_",      " ",          "\n",  "7",  "\u4e2d",
                                  "\u0301", "\u00e9", "\U0001F642", "a\n", "a ", " \n"};

std::string RunOf(std::string_view unit, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += unit;
  return text;
}

// The work for runs of twice `count` over that for `count`, and a little for what both begin with.
template <class WorkOf>
double GrowthOf(std::string_view unit, size_t count, WorkOf work_of) {
  const uint64_t once = work_of(RunOf(unit, count));
  const uint64_t twice = work_of(RunOf(unit, 2 * count));
  constexpr double kBeginning = 64;
  return static_cast<double>(twice) / (static_cast<double>(once) + kBeginning);
}

// Steps of a pattern in PCRE's interpreter: its items as they are tried, and the bytes between one
// and the next.
class CountedPattern {
 public:
  explicit CountedPattern(std::string_view pattern) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_AUTO_CALLOUT, &error, &at, nullptr);
    KVRM_CHECK(code_ != nullptr, "the patterns of the table compile");
    match_ = pcre2_match_data_create(1, nullptr);
    context_ = pcre2_match_context_create(nullptr);
    pcre2_set_match_limit(context_, UINT32_MAX);
    pcre2_set_callout(context_, &CountedPattern::Count, this);
  }
  CountedPattern(const CountedPattern&) = delete;
  CountedPattern& operator=(const CountedPattern&) = delete;
  ~CountedPattern() {
    pcre2_match_context_free(context_);
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }

  uint64_t steps() const { return steps_; }

  // The pieces of `text`, as PreTokenizer's passes cut it.
  std::vector<std::string_view> Split(std::string_view text) {
    std::vector<std::string_view> pieces;
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(match_);
    for (size_t at = 0; at < text.size();) {
      last_ = at;
      const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                    at, PCRE2_NO_UTF_CHECK, match_, context_);
      KVRM_CHECK(found >= 1 || found == PCRE2_ERROR_NOMATCH, "a match has no limit");
      const size_t begin = found >= 1 ? span[0] : text.size();
      const size_t end = found >= 1 ? span[1] : text.size();
      if (begin > at) pieces.push_back(text.substr(at, begin - at));
      if (end > begin) pieces.push_back(text.substr(begin, end - begin));
      at = end;
    }
    return pieces;
  }

 private:
  static int Count(pcre2_callout_block* block, void* self) {
    auto& pattern = *static_cast<CountedPattern*>(self);
    const size_t at = block->current_position;
    pattern.steps_ += 1 + (at > pattern.last_ ? at - pattern.last_ : pattern.last_ - at);
    pattern.last_ = at;
    return 0;
  }

  pcre2_code* code_ = nullptr;
  pcre2_match_data* match_ = nullptr;
  pcre2_match_context* context_ = nullptr;
  uint64_t steps_ = 0;
  size_t last_ = 0;
};

uint64_t CutSteps(const std::vector<std::string_view>& patterns, std::string_view text) {
  uint64_t steps = 0;
  std::vector<std::string_view> pieces = {text};
  for (const std::string_view pattern : patterns) {
    CountedPattern counted(pattern);
    std::vector<std::string_view> finer;
    for (const std::string_view piece : pieces) {
      const std::vector<std::string_view> cut = counted.Split(piece);
      finer.insert(finer.end(), cut.begin(), cut.end());
    }
    pieces.swap(finer);
    steps += counted.steps();
  }
  return steps;
}

TEST(B053, TheCutsOfEveryPreTokenizerGrowWithTheRun) {
  for (const std::string_view kind : PreTokenizer::Names()) {
    const std::vector<std::string_view> patterns = PreTokenizer::PatternsOf(kind);
    for (const char* unit : kUnits) {
      const double growth =
          GrowthOf(unit, 4000, [&](const std::string& run) { return CutSteps(patterns, run); });
      EXPECT_LE(growth, kAtMost) << kind << " \"" << unit << "\"";
      EXPECT_GE(growth, 1.7) << kind << " \"" << unit << "\": not counted";
    }
  }
}

// The law's own test: a search for blanks at the end that begins anew at each of them is seen.
TEST(B053, APatternOfQuadraticTimeWouldBeSeen) {
  const std::vector<std::string_view> slow = {R"([\x20]+\z|[^\x20])"};
  const auto steps = [&](const std::string& run) { return CutSteps(slow, run + "a"); };
  EXPECT_GE(GrowthOf(" ", 4000, steps), 3.5);
}

void ExpectMergesGrowWithTheRun(TokenizerSpec spec, const std::string& name) {
  const auto created = Tokenizer::Create(std::move(spec));
  ASSERT_TRUE(created.ok()) << name << ": " << created.error().message;
  const auto& tokenizer = static_cast<const VocabTokenizer&>(**created);
  for (const char* unit : kUnits) {
    const double growth = GrowthOf(unit, 20'000, [&](const std::string& run) {
      uint64_t steps = 0;
      (void)tokenizer.EncodeCounting(run, {}, steps);
      return steps;
    });
    EXPECT_LE(growth, kAtMost) << name << " \"" << unit << "\"";
  }
}

TEST(B053, TheMergesOfEveryKindGrowWithTheRun) {
  for (const std::string_view kind : PreTokenizer::Names()) {
    const std::string name(kind);
    ExpectMergesGrowWithTheRun(testing::MakeSmallVocabulary(name), name);
  }
  for (const std::string model : {"llama", "gemma4"}) {
    ExpectMergesGrowWithTheRun(testing::MakeSmallCharVocabulary(model), model);
  }
}

class GrowthOfVocabFile : public ::testing::TestWithParam<const char*> {};

TEST_P(GrowthOfVocabFile, ItsMergesGrowWithTheRun) {
  const std::string folder = testing::DataDir() + "/tokenizers/";
  const std::string path = folder + "ggml-vocab-" + GetParam() + ".gguf";
  KVRM_REQUIRE_DATA(path);
  ExpectMergesGrowWithTheRun(testing::ReadGgufTokenizer(path), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, GrowthOfVocabFile,
                         ::testing::Values("gpt-2", "starcoder", "refact", "deepseek-coder",
                                           "llama-spm", "phi-3"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(B053, TheMergesOfTheDefaultModelGrowWithTheRun) {
  KVRM_REQUIRE_DATA(testing::DefaultModelPath());
  ExpectMergesGrowWithTheRun(testing::ReadGgufTokenizer(testing::DefaultModelPath()), "smollm");
}

TEST(B053, TheMergesOfQwen2GrowWithTheRun) {
  const std::string folder = testing::DataDir() + "/tokenizers/";
  KVRM_REQUIRE_DATA(folder + "qwen2_merges.txt");
  ExpectMergesGrowWithTheRun(testing::ReadQwen2Tokenizer(folder + "qwen2_merges.txt",
                                                         folder + "qwen2_tokenizer_facts.json"),
                             "qwen2");
}

}  // namespace
}  // namespace kvrm
