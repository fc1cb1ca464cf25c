#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvrm {
namespace {

using Pieces = std::vector<std::string>;

Pieces Split(std::string_view kind, std::string_view text) {
  const auto pre_tokenizer = PreTokenizer::Create(kind);
  KVRM_CHECK(pre_tokenizer.ok(), "the test's kind is known");
  std::vector<size_t> ends = {999};
  (*pre_tokenizer)->Split(text, ends);
  Pieces pieces;
  size_t begin = 0;
  for (const size_t end : ends) {
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

TEST(PreTokenizer, Gpt2KeepsOneBlankWithTheWordAndNumbersWhole) {
  EXPECT_EQ(Split("gpt-2", "We'll pay  2003 now!\n"),
            (Pieces{"We", "'ll", " pay", " ", " 2003", " now", "!", "\n"}));
  EXPECT_EQ(Split("gpt-2", "a \n b"), (Pieces{"a", " \n", " b"}));
  EXPECT_EQ(Split("gpt-2", "a\nb"), (Pieces{"a", "\n", "b"}));
  EXPECT_EQ(Split("gpt-2", ""), Pieces{});
}

TEST(PreTokenizer, SmolLmCutsEachNumberCharacterFirst) {
  for (const char* kind : {"smollm", "starcoder", "refact", "command-r"}) {
    EXPECT_EQ(Split(kind, "x1y 22"), (Pieces{"x", "1", "y", " ", "2", "2"}));
    EXPECT_EQ(Split(kind, "a  7"), (Pieces{"a", "  ", "7"}));
    EXPECT_EQ(Split(kind, "\u0663\u00bd"), (Pieces{"\u0663", "\u00bd"}));
  }
}

TEST(PreTokenizer, Llama3TakesThreeDigitsAndAnyCaseContractions) {
  EXPECT_EQ(Split("llama-bpe", "I'LL 12345"), (Pieces{"I", "'LL", " ", "123", "45"}));
  EXPECT_EQ(Split("llama-bpe", "a!\n\n b"), (Pieces{"a", "!\n\n", " b"}));
  EXPECT_EQ(Split("llama-bpe", "\tword  \n x"), (Pieces{"\tword", "  \n", " x"}));
}

TEST(PreTokenizer, Qwen2TakesSingleDigits) {
  EXPECT_EQ(Split("qwen2", "I'LL 12"), (Pieces{"I", "'LL", " ", "1", "2"}));
}

TEST(PreTokenizer, Qwen35KeepsCombiningMarksWithTheirLetters) {
  EXPECT_EQ(Split("qwen35", "n\u0323o I'LL"), (Pieces{"n\u0323o", " I", "'LL"}));
  EXPECT_EQ(Split("qwen2", "n\u0323o"), (Pieces{"n", "\u0323o"}));
}

TEST(PreTokenizer, DeepSeekCutsInPasses) {
  for (const char* kind : {"deepseek-coder", "deepseek-llm"}) {
    EXPECT_EQ(Split(kind, "a b!? \n\n\u4e2d\u6587x"),
              (Pieces{"a", " b", "!?", " ", "\n", "\n", "\u4e2d\u6587", "x"}));
    EXPECT_EQ(Split(kind, "a  b  "), (Pieces{"a", " ", " b", "  "}));
    EXPECT_EQ(Split(kind, "\t\ta"), (Pieces{"\t", "\ta"}));
  }
  EXPECT_EQ(Split("deepseek-coder", "12"), (Pieces{"1", "2"}));
  EXPECT_EQ(Split("deepseek-llm", "12"), (Pieces{"1", "2"}));
  // Letters without case are no letters to deepseek-llm, blanks before them stay apart.
  EXPECT_EQ(Split("deepseek-coder", " \u05d0"), (Pieces{" \u05d0"}));
  EXPECT_EQ(Split("deepseek-llm", "a \u05d0 \u4e2d"), (Pieces{"a", " \u05d0 ", "\u4e2d"}));
}

TEST(PreTokenizer, MongolianVowelSeparatorIsNoWhiteSpace) {
  EXPECT_EQ(Split("gpt-2", "\u180e a"), (Pieces{"\u180e", " a"}));
  EXPECT_EQ(Split("gpt-2", "\u3000 a"), (Pieces{"\u3000", " a"}));
  EXPECT_EQ(Split("gpt-2", "\x1c\x1d a"), (Pieces{"\x1c\x1d", " a"}));
}

TEST(PreTokenizer, InvalidBytesAreAPieceOfTheirOwn) {
  EXPECT_EQ(Split("gpt-2", "a \xff\xc0 b"), (Pieces{"a", " ", "\xff\xc0", " b"}));
  EXPECT_EQ(Split("gpt-2", "\xe2\x82"), (Pieces{"\xe2\x82"}));
  EXPECT_EQ(Split("gpt-2", "\xe2\x82z"), (Pieces{"\xe2\x82", "z"}));
}

// B053: PCRE's default bound on matching stops at ten million steps.
TEST(B053, ARunOfManyMegabytesIsCutWithoutALimit) {
  for (const char* kind : {"gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-llm"}) {
    for (const char* unit : {" ", "\n", "a", "!"}) {
      std::string text(size_t{11} << 20, *unit);
      text += "\xff";
      // deepseek-llm is here for its blanks at the end, which a search could find slowly.
      if (kind == std::string_view("deepseek-llm") && *unit != ' ') continue;
      const Pieces pieces = Split(kind, text);
      ASSERT_EQ(pieces.size(), 2u) << kind;
      EXPECT_EQ(pieces[0].size(), size_t{11} << 20);
    }
  }
}

TEST(PreTokenizer, AnUnknownNameIsRefusedWithWhatIsKnown) {
  const auto refused = PreTokenizer::Create("tekken");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(
      refused.error().message,
      "tokenizer.ggml.pre: \"tekken\" is not supported; known: command-r, "
      "deepseek-coder, deepseek-llm, falcon, gpt-2, llama-bpe, mpt, qwen2, qwen35, refact, smollm, "
      "starcoder");
}

}  // namespace
}  // namespace kvrm
