#include "text/char_bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "text/test_vocabulary.h"
#include "text/text_stream.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

using testing::MakeSmallCharVocabulary;
using testing::PiecesOf;
using testing::Vector;

std::unique_ptr<const CharBpeTokenizer> MustCreate(TokenizerSpec spec) {
  auto tokenizer = CharBpeTokenizer::Create(std::move(spec));
  KVRM_CHECK(tokenizer.ok(), "the test vocabulary is accepted");
  return std::move(tokenizer).value();
}

using Strings = std::vector<std::string>;

class CharVocabFile : public ::testing::TestWithParam<const char*> {};

TEST_P(CharVocabFile, GivesTheIdsOfTheReference) {
  const std::string path =
      testing::DataDir() + "/tokenizers/ggml-vocab-" + std::string(GetParam()) + ".gguf";
  KVRM_REQUIRE_DATA(path);
  const auto tokenizer = MustCreate(testing::ReadGgufTokenizer(path));
  const std::vector<Vector> vectors = testing::ReadVocabVectors(path);
  EXPECT_EQ(vectors.size(), 46u);
  for (const Vector& vector : vectors) {
    EXPECT_EQ(tokenizer->Encode(vector.text, SpecialTokens::kParse), vector.ids) << vector.text;
    EXPECT_EQ(tokenizer->Decode(vector.ids), vector.text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CharVocabFile, ::testing::Values("llama-spm", "phi-3"));

TEST(CharBpe, ABlankStandsBeforeEachTextAndAfterEachSpecialToken) {
  const auto tokenizer = MustCreate(MakeSmallCharVocabulary("llama"));
  EXPECT_EQ(PiecesOf(*tokenizer, "a"), (Strings{"\u2581a"}));
  EXPECT_EQ(PiecesOf(*tokenizer, " a"), (Strings{"\u2581\u2581", "a"}));
  EXPECT_EQ(PiecesOf(*tokenizer, "a<s>b", SpecialTokens::kParse),
            (Strings{"\u2581a", "<s>", "\u2581b"}));
  EXPECT_EQ(PiecesOf(*tokenizer, "<tool>b"), (Strings{"<tool>", "\u2581b"}));
  EXPECT_EQ(PiecesOf(*tokenizer, ""), Strings{});
  TokenizerSpec without = MakeSmallCharVocabulary("llama");
  without.add_space_prefix = false;
  EXPECT_EQ(PiecesOf(*MustCreate(without), "a b"), (Strings{"a", "\u2581b"}));
}

// Decode is the inverse of Encode; a stream continues a text and keeps every blank.
TEST(CharBpe, DecodeTakesTheBlankOfEncodeAwayAndAStreamKeepsIt) {
  const auto tokenizer = MustCreate(MakeSmallCharVocabulary("llama"));
  const std::vector<TokenId> ids = tokenizer->Encode(" ab<s> c", SpecialTokens::kParse);
  EXPECT_EQ(tokenizer->Decode(ids, /*with_special=*/true), " ab<s> c");
  TextStream stream(*tokenizer, {});
  std::string streamed;
  for (const TokenId id : ids) streamed += stream.Push(id);
  EXPECT_EQ(streamed + stream.Finish(), "  ab  c");
}

TEST(CharBpe, OfEqualScoresTheLeftmostMergesFirst) {
  TokenizerSpec spec = MakeSmallCharVocabulary("llama");
  spec.add_space_prefix = false;
  // "ab" and "bc" have the same score, "abc" a worse one.
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    if (spec.tokens[i] == "ab" || spec.tokens[i] == "bc") spec.scores[i] = -1;
    if (spec.tokens[i] == "abc") spec.scores[i] = -1000;
  }
  EXPECT_EQ(PiecesOf(*MustCreate(spec), "abc"), (Strings{"abc"}));
  EXPECT_EQ(PiecesOf(*MustCreate(spec), "bcbab"), (Strings{"bc", "b", "ab"}));
  testing::ReplaceToken(spec, "abc", "zzz");
  EXPECT_EQ(PiecesOf(*MustCreate(spec), "abc"), (Strings{"ab", "c"}));
}

// The textbook rule over the texts themselves, as slow as it reads.
Strings MergeSlowly(const std::map<std::string, float>& scores, const std::string& text) {
  Strings symbols;
  for (size_t at = 0; at < text.size(); at += symbols.back().size()) {
    symbols.push_back(text.substr(at, NextUtf8(text, at).length));
  }
  for (;;) {
    size_t best = symbols.size();
    float best_score = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = scores.find(symbols[i] + symbols[i + 1]);
      if (found == scores.end()) continue;
      if (best == symbols.size() || found->second > best_score) {
        best = i;
        best_score = found->second;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(CharBpe, EqualsTheTextbookRuleOnRandomVocabulariesWithEqualScores) {
  std::mt19937 random(11);
  const Strings letters = {"a", "b", "\u00e9", "\u2581"};
  for (int round = 0; round < 40; ++round) {
    TokenizerSpec spec;
    spec.model = "llama";
    spec.tokens = StringList(letters);
    spec.scores.assign(letters.size(), -100);
    std::map<std::string, float> scores;
    for (int i = 0; i < 40; ++i) {
      std::string token;
      const uint32_t length = 2 + random() % 5;
      for (uint32_t k = 0; k < length; ++k) token += letters[random() % letters.size()];
      const float score = -static_cast<float>(random() % 8);
      if (!scores.emplace(token, score).second) continue;
      spec.tokens.push_back(token);
      spec.scores.push_back(score);
    }
    const auto tokenizer = MustCreate(spec);
    for (int i = 0; i < 20; ++i) {
      std::string text;
      const uint32_t length = random() % (i % 4 != 0 ? 20 : 100);  // both ways to merge
      for (uint32_t k = 0; k < length; ++k) text += letters[random() % letters.size()];
      EXPECT_EQ(PiecesOf(*tokenizer, text), MergeSlowly(scores, text)) << text;
    }
  }
}

TEST(CharBpe, AMergeListDecidesTheOrderWhereThereIsOne) {
  const auto tokenizer = MustCreate(MakeSmallCharVocabulary("gemma4"));
  EXPECT_EQ(PiecesOf(*tokenizer, "abc aaaa"), (Strings{"abc", "\u2581", "aaaa"}));
  EXPECT_EQ(PiecesOf(*tokenizer, "a\n\nb"), (Strings{"a", "\n", "\n", "b"}));
}

TEST(CharBpe, ACharacterWithoutATokenMayStillBeMerged) {
  const auto tokenizer = MustCreate(MakeSmallCharVocabulary("gemma4"));
  EXPECT_EQ(PiecesOf(*tokenizer, "qa"), (Strings{"qa"}));
  EXPECT_EQ(PiecesOf(*tokenizer, "qb"), (Strings{"<0x71>", "b"}));
}

TEST(CharBpe, WithoutByteTokensARunOfUnknownCharactersIsOneUnknownToken) {
  TokenizerSpec spec = MakeSmallCharVocabulary("gemma4");
  for (TokenType& type : spec.types) {
    if (type == TokenType::kByte) type = TokenType::kUnused;
  }
  EXPECT_EQ(PiecesOf(*MustCreate(spec), "a\u4e2d\u6587b"), (Strings{"a", "<unk>", "b"}));
}

TEST(B052, AnUnknownCharacterIsNoWayToWriteAnEndToken) {
  TokenizerSpec spec = MakeSmallCharVocabulary("gemma4");
  for (TokenType& type : spec.types) {
    if (type == TokenType::kByte) type = TokenType::kUnused;
  }
  spec.unknown = spec.eos;
  EXPECT_EQ(PiecesOf(*MustCreate(spec), "a\u4e2db"), (Strings{"ab"}));
}

TEST(CharBpe, WordsMergedOneByOneGiveTheIdsOfTheWholeText) {
  const auto by_words = MustCreate(MakeSmallCharVocabulary("gemma4"));
  TokenizerSpec spec = MakeSmallCharVocabulary("gemma4");
  // A token with a blank inside, which no merge makes: the text is merged as a whole.
  spec.tokens.push_back("x\u2581x");
  spec.types.push_back(TokenType::kNormal);
  spec.scores.push_back(-900);
  const auto as_a_whole = MustCreate(spec);
  std::mt19937 random(5);
  const Strings parts = {"a", "b", "c", " ", "  ", "q", "\n", "\u4e2d", "\xff", "<tool>", "\u2581"};
  for (int i = 0; i < 300; ++i) {
    std::string text;
    const uint32_t length = i < 290 ? random() % 60 : 6000;  // long ones use the cache
    for (uint32_t k = 0; k < length; ++k) text += parts[random() % parts.size()];
    EXPECT_EQ(by_words->Encode(text, SpecialTokens::kAsText),
              as_a_whole->Encode(text, SpecialTokens::kAsText));
  }
}

TEST(CharBpe, RefusesABrokenVocabularyByName) {
  TokenizerSpec spec = MakeSmallCharVocabulary("llama");
  testing::ReplaceToken(spec, "<0x01>", "<0xZZ>");
  auto refused = Tokenizer::Create(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "tokenizer.ggml.tokens[4]: \"<0xZZ>\" is of type byte, but not written <0xNN>");
  spec = MakeSmallCharVocabulary("llama");
  spec.scores.clear();
  spec.merges.clear();
  refused = Tokenizer::Create(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "tokenizer.ggml.scores: missing; model \"llama\" needs one a token");
  spec = MakeSmallCharVocabulary("gemma4");
  spec.merges.push_back("a zz");
  refused = Tokenizer::Create(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "tokenizer.ggml.merges[" +
                                         std::to_string(spec.merges.size() - 1) +
                                         "]: \"a zz\": a part or the whole is no token of the "
                                         "vocabulary");
}

// B052, for the vocabularies in which the best score is that of the control tokens.
TEST(B052, NeitherMergesNorByteNamesForgeATokenFromText) {
  for (const char* model : {"llama", "gemma4"}) {
    const auto tokenizer = MustCreate(MakeSmallCharVocabulary(model));
    for (const char* text : {"<s>", "</s>", "<unk>", "<|turn|>", "<0x0A>", "a<s>b"}) {
      const std::vector<TokenId> ids = tokenizer->Encode(text, SpecialTokens::kAsText);
      EXPECT_TRUE(std::ranges::none_of(ids, [&](TokenId id) { return tokenizer->IsControl(id); }));
      EXPECT_EQ(std::ranges::find(ids, TokenId{3 + 0x0A}), ids.end()) << text;
      EXPECT_EQ(tokenizer->Decode(ids), text);
    }
  }
}

// B053: work grows linearly with a text that is one word, or many without blanks or line ends.
TEST(B053, CharacterMergeStepsGrowLinearlyWithRunsOfOneUnit) {
  for (const char* model : {"llama", "gemma4"}) {
    const auto tokenizer = MustCreate(MakeSmallCharVocabulary(model));
    for (const char* unit : {"a", " ", "b", "q", "\n", "\u4e2d", "abc", "a\n", "a ", " \n"}) {
      const auto steps = [&](size_t count) {
        std::string text;
        for (size_t i = 0; i < count; ++i) text += unit;
        uint64_t counted = 0;
        tokenizer->EncodeCounting(text, {}, counted);
        return counted;
      };
      const uint64_t once = steps(20000);
      const uint64_t twice = steps(40000);
      EXPECT_LE(static_cast<double>(twice), 2.3 * static_cast<double>(std::max<uint64_t>(once, 1)))
          << model << " " << unit;
    }
  }
}

// B055 and B056: blanks, line ends and rare characters come out as they went in.
TEST(B056, CharacterVocabulariesFallBackToBytes) {
  for (const char* model : {"llama", "gemma4"}) {
    const auto tokenizer = MustCreate(MakeSmallCharVocabulary(model));
    for (const char* text :
         {"\U0010FFFF", "\u0301", "\ue000", "a\u07ca b", "      a", "\t\t\ta", "\n\n\n", "a\r\n",
          "<tool>   a", "\u00a0a", "\xff\xfe", "\xe2\x82", "a  "}) {
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, SpecialTokens::kAsText)), text);
    }
  }
}

// B036: bytes of one character lie in several tokens.
TEST(B036, ByteTokensAreSentAsWholeCharacters) {
  const auto tokenizer = MustCreate(MakeSmallCharVocabulary("gemma4"));
  const std::string text = "a\U0001F642b\u4e2d";
  TextStream stream(*tokenizer, {});
  std::string streamed;
  for (const TokenId id : tokenizer->Encode(text, SpecialTokens::kAsText)) {
    const std::string sent = stream.Push(id);
    EXPECT_TRUE(IsValidUtf8(sent));
    EXPECT_EQ(sent.find(kReplacementCharacter), std::string::npos);
    streamed += sent;
  }
  EXPECT_EQ(streamed + stream.Finish(), text);
}

}  // namespace
}  // namespace kvrm
