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

// What each name means besides a cut, and the name of the table that it stands for.
struct NamedKind {
  const char* name;
  const char* kind;
  bool nfc, whole_piece_first, adds_start_token;
};

constexpr NamedKind kNamedKinds[] = {
    {"llama3", "llama-bpe", false, true, true},
    {"llama-v3", "llama-bpe", false, true, true},
    {"falcon3", "llama-bpe", false, true, true},
    {"falcon-h1", "llama-bpe", false, true, true},
    {"pixtral", "llama-bpe", false, true, true},
    {"midm-2.0", "llama-bpe", false, true, true},
    {"lfm2", "llama-bpe", false, true, true},
    {"jina-v5-nano", "llama-bpe", false, true, true},
    {"dbrx", "smaug-bpe", false, false, false},
    {"glm4", "smaug-bpe", false, false, false},
    {"chatglm-bpe", "smaug-bpe", false, false, false},
    {"deepseek-r1-qwen", "qwen2", true, false, false},
    {"megrez", "stablelm2", false, false, false},
    {"kormo", "stablelm2", false, false, false},
    {"f2llmv2", "stablelm2", false, false, false},
    {"hunyuan", "stablelm2", false, false, false},
    {"solar-open", "stablelm2", false, false, false},
    {"grok-2", "stablelm2", false, false, false},
    {"codeshell", "smollm", false, false, false},
    {"exaone", "smollm", false, false, false},
    {"minerva-7b", "smollm", false, false, false},
    {"mellum2", "smollm", false, false, false},
    {"phi-2", "gpt-2", false, false, false},
    {"jina-es", "gpt-2", false, false, false},
    {"jina-de", "gpt-2", false, false, false},
    {"jina-v2-es", "gpt-2", false, false, false},
    {"jina-v2-de", "gpt-2", false, false, false},
    {"gigachat", "gpt-2", false, false, false},
    {"a.x-4.0", "gpt-2", false, false, false},
    {"mellum", "gpt-2", false, false, false},
    {"modern-bert", "gpt-2", false, false, false},
    {"exaone4", "gpt-2", false, false, false},
    {"olmo", "gpt-2", false, false, false},
    {"jais", "gpt-2", false, false, false},
    {"trillion", "gpt-2", false, false, false},
    {"granite-docling", "gpt-2", false, false, false},
};

TEST(PreTokenizer, EachOtherNameCutsAndImpliesWhatItsKindDoes) {
  const std::string text = "I'LL pay  12345!\n\n \u4e2d\u6587 don't\tx1 n\u0323o \u00bd  ";
  for (const NamedKind& named : kNamedKinds) {
    EXPECT_EQ(Split(named.name, text), Split(named.kind, text)) << named.name;
    for (const char* name : {named.name, named.kind}) {
      const PreTokenizerTraits traits = (*PreTokenizer::Create(name))->traits();
      EXPECT_EQ(traits.normalizes_nfc, named.nfc) << name;
      EXPECT_EQ(traits.whole_piece_first, named.whole_piece_first) << name;
      EXPECT_EQ(traits.adds_start_token, named.adds_start_token) << name;
    }
  }
  // Names of the table that differ in nothing but what they imply.
  EXPECT_EQ(Split("smaug-bpe", text), Split("llama-bpe", text));
  EXPECT_EQ(Split("stablelm2", text), Split("qwen2", text));
}

TEST(PreTokenizer, NamesThatImplyMoreThanAKindOfTheTableAreRefused) {
  // A separator behind the text; a cut of its own; none.
  for (const char* name : {"roberta-bpe", "jina-v2-code", "deepseek-v3", "jais-2", "default", ""}) {
    EXPECT_FALSE(PreTokenizer::Create(name).ok()) << name;
  }
}

TEST(PreTokenizer, AnUnknownNameIsRefusedWithWhatIsKnown) {
  const auto refused = PreTokenizer::Create("tekken");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnsupported);
  EXPECT_EQ(refused.error().message.find("tokenizer.ggml.pre: \"tekken\" is not supported; known: "
                                         "command-r, deepseek-coder, "),
            0u);
  for (const NamedKind& named : kNamedKinds) {
    EXPECT_NE(refused.error().message.find(" " + std::string(named.name)), std::string::npos)
        << named.name;
  }
}

}  // namespace
}  // namespace kvrm
