#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/test_data.h"
#include "text/bpe_tokenizer.h"
#include "text/test_vocabulary.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

using testing::MakeSmallVocabulary;
using testing::Vector;

std::unique_ptr<const Tokenizer> MustCreate(TokenizerSpec spec) {
  auto tokenizer = Tokenizer::Create(std::move(spec));
  KVRM_CHECK(tokenizer.ok(), "the test vocabulary is accepted");
  return std::move(tokenizer).value();
}

std::string CreateError(TokenizerSpec spec) {
  const auto tokenizer = Tokenizer::Create(std::move(spec));
  return tokenizer.ok() ? "" : tokenizer.error().message;
}

TokenId IdOf(const Tokenizer& tokenizer, std::string_view token) {
  const auto& tokens = tokenizer.spec().tokens;
  const auto found = std::ranges::find(tokens, token);
  KVRM_CHECK(found != tokens.end(), "the test's token is in the vocabulary");
  return static_cast<TokenId>(found - tokens.begin());
}

void ExpectVectors(const Tokenizer& tokenizer, const std::vector<Vector>& vectors) {
  ASSERT_FALSE(vectors.empty());
  for (const Vector& vector : vectors) {
    EXPECT_EQ(tokenizer.Encode(vector.text, SpecialTokens::kParse), vector.ids)
        << "text: \"" << vector.text << "\"";
  }
}

// A random string over characters that pre-tokenizers treat differently, invalid bytes included
// when asked for.
std::string RandomText(std::mt19937& random, bool with_invalid) {
  static const std::vector<std::string> kParts = {
      " ",   "  ",     "\t",     "\n",         "\r\n",   "a",          "ab",
      "The", "\u00e9", "7",      "42",         "'s",     "'",          "!?",
      "_",   "\u00a0", "\u180e", "\u3000",     "\u4e2d", "\U0001F642", "\u0301",
      "<|",  "im_",    "end|>",  "<|im_end|>", "\u0663", "\U0010FFFF"};
  static const std::vector<std::string> kInvalid = {"\xff", "\xc0\x80", "\xe2\x82", "\xed\xa0\x80",
                                                    "\x80"};
  std::string text;
  const uint32_t parts = random() % 24;
  for (uint32_t i = 0; i < parts; ++i) {
    if (with_invalid && random() % 6 == 0) {
      text += kInvalid[random() % kInvalid.size()];
    } else {
      text += kParts[random() % kParts.size()];
    }
  }
  return text;
}

class VocabFile : public ::testing::TestWithParam<const char*> {};

TEST_P(VocabFile, GivesTheIdsOfTheReference) {
  const std::string path =
      testing::DataDir() + "/tokenizers/ggml-vocab-" + std::string(GetParam()) + ".gguf";
  KVRM_REQUIRE_DATA(path);
  const auto tokenizer = MustCreate(testing::ReadGgufTokenizer(path));
  const std::vector<Vector> vectors = testing::ReadVocabVectors(path);
  EXPECT_EQ(vectors.size(), 46u);
  ExpectVectors(*tokenizer, vectors);
}

TEST_P(VocabFile, DecodeUndoesEncode) {
  const std::string path =
      testing::DataDir() + "/tokenizers/ggml-vocab-" + std::string(GetParam()) + ".gguf";
  KVRM_REQUIRE_DATA(path);
  const auto tokenizer = MustCreate(testing::ReadGgufTokenizer(path));
  std::mt19937 random(7);
  // Bytes that these vocabularies lack vanish; \xff, \xc0 and their like are among them.
  for (int i = 0; i < 500; ++i) {
    const std::string text = RandomText(random, /*with_invalid=*/false);
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, SpecialTokens::kAsText)), text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, VocabFile,
                         ::testing::Values("gpt-2", "starcoder", "refact", "deepseek-coder"));

TEST(Qwen2, GivesTheIdsOfTheReference) {
  const std::string folder = testing::DataDir() + "/tokenizers/";
  KVRM_REQUIRE_DATA(folder + "qwen2_merges.txt");
  const auto tokenizer = MustCreate(testing::ReadQwen2Tokenizer(
      folder + "qwen2_merges.txt", folder + "qwen2_tokenizer_facts.json"));
  const std::vector<Vector> vectors = testing::ReadVocabVectors(folder + "ggml-vocab-qwen2.gguf");
  EXPECT_EQ(vectors.size(), 46u);
  ExpectVectors(*tokenizer, vectors);
  // NFC: a letter and its combining accent are the one character.
  EXPECT_EQ(tokenizer->Encode("e\u0301", SpecialTokens::kAsText),
            tokenizer->Encode("\u00e9", SpecialTokens::kAsText));
}

class SmolLm2 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (testing::Exists(testing::DefaultModelPath())) {
      tokenizer_ = MustCreate(testing::ReadGgufTokenizer(testing::DefaultModelPath())).release();
    }
  }
  static void TearDownTestSuite() { delete tokenizer_; }
  static const Tokenizer* tokenizer_;
};
const Tokenizer* SmolLm2::tokenizer_ = nullptr;

TEST_F(SmolLm2, GivesTheIdsOfTheOracleOnOddTexts) {
  KVRM_REQUIRE_DATA(testing::DefaultModelPath());
  ExpectVectors(*tokenizer_,
                testing::ReadJsonVectors(testing::ProjectDataDir() + "/oracle/tok_smollm2.jsonl"));
}

TEST_F(SmolLm2, GivesTheIdsOfTheOracleOnWikiText) {
  KVRM_REQUIRE_DATA(testing::DefaultModelPath());
  const std::string path = testing::DataDir() + "/oracle/tok_smollm2.jsonl";
  KVRM_REQUIRE_DATA(path);
  const std::vector<Vector> vectors = testing::ReadJsonVectors(path);
  EXPECT_EQ(vectors.size(), 272u);
  ExpectVectors(*tokenizer_, vectors);
}

TEST_F(SmolLm2, EndsAtItsTurnAndItsDocumentMark) {
  KVRM_REQUIRE_DATA(testing::DefaultModelPath());
  EXPECT_EQ(tokenizer_->end_tokens(), (std::vector<TokenId>{2, 0}));
  EXPECT_TRUE(tokenizer_->IsControl(1));
  EXPECT_FALSE(tokenizer_->IsEnd(1));
  EXPECT_EQ(tokenizer_->TokenBytes(2, /*with_special=*/false), "");
  EXPECT_EQ(tokenizer_->TokenBytes(2, /*with_special=*/true), "<|im_end|>");
}

TEST_F(SmolLm2, ALongTextGivesTheIdsOfItsPiecesEncodedAlone) {
  KVRM_REQUIRE_DATA(testing::DefaultModelPath());
  // Long enough for the cache of pieces, which short texts never use.
  std::string text;
  std::vector<TokenId> expected;
  std::mt19937 random(11);
  for (int i = 0; i < 4000; ++i) {
    const std::string word =
        " w" + std::string(random() % 8, static_cast<char>('a' + random() % 3));
    text += word;
    const std::vector<TokenId> ids = tokenizer_->Encode(word, SpecialTokens::kAsText);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(tokenizer_->Encode(text, SpecialTokens::kAsText), expected);
}

TEST(Tokenizer, ParsesControlTokensOnlyWhereAllowed) {
  const auto tokenizer = MustCreate(MakeSmallVocabulary("smollm"));
  const TokenId end = IdOf(*tokenizer, "<|im_end|>");
  const std::string text = "a<|im_end|>b";
  EXPECT_EQ(tokenizer->Encode(text, SpecialTokens::kParse),
            (std::vector<TokenId>{IdOf(*tokenizer, "a"), end, IdOf(*tokenizer, "b")}));
  const auto as_text = tokenizer->Encode(text, SpecialTokens::kAsText);
  EXPECT_EQ(std::ranges::count(as_text, end), 0);
  EXPECT_EQ(tokenizer->Decode(as_text), text);
  const ControlRange inside{1, 11};
  EXPECT_EQ(std::ranges::count(tokenizer->EncodeRanges(text, {&inside, 1}), end), 1);
  for (const ControlRange partly :
       {ControlRange{0, 10}, ControlRange{2, 12}, ControlRange{11, 12}}) {
    EXPECT_EQ(tokenizer->EncodeRanges(text, {&partly, 1}), as_text);
  }
}

TEST(Tokenizer, ParsesUserDefinedTokensAlwaysAndTheLongestFirst) {
  const auto tokenizer = MustCreate(MakeSmallVocabulary("gpt-2"));
  const TokenId tool = IdOf(*tokenizer, "<tool>");
  const TokenId call = IdOf(*tokenizer, "<tool_call>");
  for (const SpecialTokens special : {SpecialTokens::kAsText, SpecialTokens::kParse}) {
    EXPECT_EQ(tokenizer->Encode("<tool_call><tool>", special), (std::vector<TokenId>{call, tool}));
  }
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{call}), "<tool_call>");
}

TEST(Tokenizer, WhatEndsATurnIsControlWhateverTheFileSays) {
  TokenizerSpec spec = MakeSmallVocabulary("gpt-2");
  for (TokenType& type : spec.types) {
    if (type == TokenType::kControl) type = TokenType::kUserDefined;
  }
  spec.eos = -1;
  const auto tokenizer = MustCreate(std::move(spec));
  const TokenId end = IdOf(*tokenizer, "<|im_end|>");
  EXPECT_EQ(tokenizer->end_tokens(), (std::vector<TokenId>{end}));
  EXPECT_TRUE(tokenizer->IsControl(end));
  EXPECT_EQ(std::ranges::count(tokenizer->Encode("<|im_end|>", SpecialTokens::kAsText), end), 0);
}

// As Command R's files have them: all marks but the end of a turn are user-defined.
TEST(B052, AUserDefinedMarkIsParsedOnlyWhereControlTokensAre) {
  for (const char* mark : {"<|USER_TOKEN|>", "<\uff5cUser\uff5c>", "<|turn>", "<turn|>",
                           "<start_of_turn>", "[INST]"}) {
    TokenizerSpec spec = MakeSmallVocabulary("command-r");
    spec.tokens.push_back(mark);
    spec.types.push_back(TokenType::kUserDefined);
    const auto tokenizer = MustCreate(std::move(spec));
    const TokenId id = IdOf(*tokenizer, mark);
    const std::string text = "a" + std::string(mark) + "b";
    const std::vector<TokenId> as_text = tokenizer->Encode(text, SpecialTokens::kAsText);
    EXPECT_EQ(std::ranges::count(as_text, id), 0) << mark;
    EXPECT_EQ(tokenizer->Decode(as_text), text);
    const std::vector<TokenId> parsed = tokenizer->Encode(text, SpecialTokens::kParse);
    EXPECT_EQ(std::ranges::count(parsed, id), 1) << mark;
    EXPECT_EQ(tokenizer->Decode(parsed), text) << "it prints, other than control tokens";
  }
}

TEST(Tokenizer, InvalidUtf8PassesThroughAsBytes) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe"}) {
    const auto tokenizer = MustCreate(MakeSmallVocabulary(pre));
    std::mt19937 random(3);
    for (int i = 0; i < 2000; ++i) {
      const std::string text = RandomText(random, /*with_invalid=*/true);
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, SpecialTokens::kAsText)), text);
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, SpecialTokens::kParse), true), text);
    }
  }
}

TEST(Tokenizer, NoMergeMakesAControlToken) {
  TokenizerSpec spec = MakeSmallVocabulary("gpt-2");
  spec.merges.push_back("< s>");
  spec.merges.push_back("s >");
  spec.tokens.push_back("s>");
  spec.types.push_back(TokenType::kNormal);
  const auto tokenizer = MustCreate(std::move(spec));
  EXPECT_EQ(tokenizer->Encode("<s>", SpecialTokens::kParse),
            (std::vector<TokenId>{IdOf(*tokenizer, "<s>")}));
  for (const TokenId id : tokenizer->Encode("<s><s>", SpecialTokens::kAsText)) {
    EXPECT_FALSE(tokenizer->IsControl(id));
  }
}

// Llama 3's files and SmolLM3's have one pattern under two names.
TEST(Tokenizer, SmaugMergesAPieceThatLlamaTakesWholeAndAddsNoStartToken) {
  const auto made = [](const char* pre, bool unsaid) {
    TokenizerSpec spec = MakeSmallVocabulary(pre);
    spec.tokens.push_back("zyz");  // no merge leads to it
    spec.types.push_back(TokenType::kNormal);
    spec.bos = spec.eos - 1;
    spec.add_bos_unsaid = unsaid;
    return MustCreate(std::move(spec));
  };
  const auto llama = made("llama-bpe", true), smaug = made("smaug-bpe", true);
  const std::vector<std::string> whole = {"zyz"}, cut = {"z", "y", "z"};
  EXPECT_EQ(testing::PiecesOf(*llama, "zyz"), whole);
  EXPECT_EQ(testing::PiecesOf(*smaug, "zyz"), cut);
  EXPECT_TRUE(llama->spec().add_bos);
  EXPECT_FALSE(smaug->spec().add_bos);
  EXPECT_FALSE(made("llama-bpe", false)->spec().add_bos) << "the file said so";
}

TEST(Tokenizer, RefusesWhatItDoesNotKnowByName) {
  TokenizerSpec spec = MakeSmallVocabulary("gpt-2");
  for (const auto& [model, said] :
       {std::pair("t5", "\"t5\" (unigram)"), std::pair("bert", "\"bert\" (WordPiece)"),
        std::pair("rwkv", "\"rwkv\" (RWKV)"), std::pair("", "\"\"")}) {
    spec.model = model;
    EXPECT_EQ(CreateError(spec), std::string("tokenizer.ggml.model: ") + said +
                                     " is not supported; known: gemma4, gpt2, llama");
  }
  EXPECT_EQ(
      CreateError(MakeSmallVocabulary("tekken")),
      "tokenizer.ggml.pre: \"tekken\" is not supported; known: command-r, deepseek-coder, "
      "deepseek-llm, falcon, gpt-2, llama-bpe, mpt, qwen2, qwen35, refact, smaug-bpe, smollm, "
      "stablelm2, starcoder; of their kinds: a.x-4.0 chatglm-bpe codeshell dbrx "
      "deepseek-r1-qwen exaone exaone4 f2llmv2 falcon-h1 falcon3 gigachat glm4 "
      "granite-docling grok-2 hunyuan jais jina-de jina-es jina-v2-de jina-v2-es jina-v5-nano "
      "kormo lfm2 llama-v3 llama3 megrez mellum mellum2 midm-2.0 minerva-7b modern-bert olmo "
      "phi-2 pixtral solar-open trillion");
}

TEST(Tokenizer, RefusesSizesThatContradictEachOther) {
  const TokenizerSpec good = MakeSmallVocabulary("gpt-2");
  const std::string size = std::to_string(good.tokens.size());
  TokenizerSpec spec = good;
  spec.types.pop_back();
  EXPECT_NE(CreateError(spec).find("tokenizer.ggml.token_type: "), std::string::npos);
  spec = good;
  spec.scores.assign(3, 0.0f);
  EXPECT_EQ(CreateError(spec), "tokenizer.ggml.scores: 3 entries for " + size + " tokens");
  spec = good;
  spec.eos = static_cast<TokenId>(spec.tokens.size());
  EXPECT_EQ(CreateError(spec), "tokenizer.ggml.eos_token_id: " + size + " is not below " + size);
  spec = good;
  spec.types[5] = static_cast<TokenType>(9);
  EXPECT_EQ(CreateError(spec), "tokenizer.ggml.token_type[5]: 9; 1 to 6 are known");
  spec = good;
  spec.tokens.clear();
  spec.types.clear();
  EXPECT_NE(CreateError(spec).find("tokenizer.ggml.tokens: 0 tokens"), std::string::npos);
}

// Work at load grows with the square of a token's length, and that of a text with the longest
// special token: neither is left to the file.
TEST(Tokenizer, RefusesTokensOfOver2048BytesOfAnyType) {
  for (const char* model : {"gpt2", "llama", "gemma4"}) {
    const TokenizerSpec good = std::string(model) == "gpt2"
                                   ? MakeSmallVocabulary("gpt-2")
                                   : testing::MakeSmallCharVocabulary(model);
    for (const TokenType type :
         {TokenType::kNormal, TokenType::kControl, TokenType::kUserDefined, TokenType::kUnused}) {
      TokenizerSpec spec = good;
      spec.types.resize(spec.tokens.size(), TokenType::kNormal);
      if (!spec.scores.empty()) spec.scores.push_back(-1000);
      spec.tokens.push_back(std::string(2048, 'a'));
      spec.types.push_back(type);
      EXPECT_TRUE(Tokenizer::Create(spec).ok()) << model;
      testing::ReplaceToken(spec, std::string(2048, 'a'), std::string(2049, 'a'));
      EXPECT_EQ(CreateError(spec), "tokenizer.ggml.tokens[" + std::to_string(good.tokens.size()) +
                                       "]: 2049 bytes; at most 2048 are allowed");
    }
  }
}

TEST(Tokenizer, RefusesMergesThatNameNoToken) {
  TokenizerSpec spec = MakeSmallVocabulary("gpt-2");
  const size_t at = spec.merges.size();
  const std::string field = "tokenizer.ggml.merges[" + std::to_string(at) + "]: ";
  for (const char* merge : {"x y", "zz a", "a zz"}) {
    spec.merges.resize(at);
    spec.merges.push_back(merge);
    EXPECT_EQ(CreateError(spec),
              field + "\"" + merge + "\": a part or the whole is no token of the vocabulary");
  }
  for (const char* merge : {"", " ", "ab", "a ", " a"}) {
    spec.merges.resize(at);
    spec.merges.push_back(merge);
    EXPECT_EQ(CreateError(spec),
              field + "\"" + merge + "\" is not two tokens with a blank between them");
  }
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const auto tokenizer = MustCreate(MakeSmallVocabulary("smollm"));
  std::mt19937 random(29);
  std::string text;
  while (text.size() < 50'000) text += RandomText(random, /*with_invalid=*/true);
  const std::vector<TokenId> expected = tokenizer->Encode(text, SpecialTokens::kParse);
  std::vector<std::vector<TokenId>> results(4);
  std::vector<std::thread> threads;
  for (std::vector<TokenId>& result : results) {
    threads.emplace_back([&] { result = tokenizer->Encode(text, SpecialTokens::kParse); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<TokenId>& result : results) EXPECT_EQ(result, expected);
}

TEST(Tokenizer, BytesWithoutATokenVanish) {
  TokenizerSpec spec = MakeSmallVocabulary("gpt-2");
  testing::ReplaceToken(spec, "!", "unreachable");
  const auto tokenizer = MustCreate(std::move(spec));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a! b!?", SpecialTokens::kAsText)), "a b?");
  EXPECT_TRUE(tokenizer->Encode("!!!", SpecialTokens::kAsText).empty());
}

// B053: one long "word". Steps are counted, not seconds.
uint64_t StepsFor(const BpeTokenizer& tokenizer, const std::string& text) {
  uint64_t steps = 0;
  const std::vector<TokenId> ids = tokenizer.EncodeCounting(text, {}, steps);
  EXPECT_EQ(tokenizer.Decode(ids), text);
  return steps;
}

TEST(B053, MergeStepsGrowLinearlyWithOneLongWord) {
  const auto created = BpeTokenizer::Create(MakeSmallVocabulary("smollm"));
  ASSERT_TRUE(created.ok());
  const BpeTokenizer& tokenizer = **created;
  for (const std::string unit : {"a", "_", "abc", "aab", " ", "\n", "\xff", "\U0001F642"}) {
    const auto repeat = [&](size_t bytes) {
      std::string text;
      while (text.size() < bytes) text += unit;
      return text;
    };
    const uint64_t once = StepsFor(tokenizer, repeat(100'000));
    const uint64_t twice = StepsFor(tokenizer, repeat(200'000));
    const uint64_t four_times = StepsFor(tokenizer, repeat(400'000));
    EXPECT_LE(once, 6u * 100'000u) << "unit \"" << unit << "\"";
    EXPECT_LE(twice, once * 21 / 10 + 64) << "unit \"" << unit << "\"";
    EXPECT_LE(four_times, twice * 21 / 10 + 64) << "unit \"" << unit << "\"";
  }
}

TEST(B053, JsonWithoutBlanksAndBase64StayNearLinear) {
  const auto created = BpeTokenizer::Create(MakeSmallVocabulary("gpt-2"));
  ASSERT_TRUE(created.ok());
  std::mt19937 random(5);
  std::string json = "[";
  while (json.size() < 11'000) json += "{\"a\":" + std::to_string(random() % 1000) + "},";
  std::string base64;
  while (base64.size() < 200'000) base64 += static_cast<char>('A' + random() % 26);
  EXPECT_LE(StepsFor(**created, json), 8 * json.size());
  EXPECT_LE(StepsFor(**created, base64), 6 * base64.size());
}

// B055: runs of white space, alone and after added tokens.
TEST(B055, RunsOfWhiteSpaceRoundTripAfterAddedTokens) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    const auto tokenizer = MustCreate(MakeSmallVocabulary(pre));
    std::vector<std::string> runs = {"\n\n\n", "\r\n", "\u00a0", " \t ", "\n ", "\u3000 "};
    for (size_t n = 0; n <= 6; ++n) runs.emplace_back(n, ' ');
    for (size_t n = 1; n <= 6; ++n) runs.emplace_back(n, '\t');
    for (const std::string before : {"", "a", "<tool>", "<|im_start|>"}) {
      for (const std::string& run : runs) {
        for (const std::string after : {"", "a", "1", "<tool>"}) {
          const std::string text = before + run + after;
          const auto ids = tokenizer->Encode(text, SpecialTokens::kParse);
          EXPECT_EQ(tokenizer->Decode(ids, /*with_special=*/true), text) << pre;
        }
      }
    }
  }
}

TEST(B055, TextAfterAnAddedTokenIsEncodedAsAtTheStart) {
  const auto tokenizer = MustCreate(MakeSmallVocabulary("smollm"));
  std::mt19937 random(13);
  for (int i = 0; i < 10'000; ++i) {
    const std::string left = RandomText(random, /*with_invalid=*/false);
    const std::string right = RandomText(random, /*with_invalid=*/false);
    std::vector<TokenId> expected = tokenizer->Encode(left, SpecialTokens::kAsText);
    expected.push_back(IdOf(*tokenizer, "<tool>"));
    const auto tail = tokenizer->Encode(right, SpecialTokens::kAsText);
    expected.insert(expected.end(), tail.begin(), tail.end());
    EXPECT_EQ(tokenizer->Encode(left + "<tool>" + right, SpecialTokens::kAsText), expected);
  }
}

// B056: a character that no token holds is written in bytes.
TEST(B056, RareCharactersFallBackToBytes) {
  const auto tokenizer = MustCreate(MakeSmallVocabulary("smollm"));
  for (const std::string text : {"\U0010FFFF", "\U00012000\U00013000", "\uE000", "\u0378", "\u0301",
                                 "a\u0301b \U000E0001 c"}) {
    const auto ids = tokenizer->Encode(text, SpecialTokens::kAsText);
    EXPECT_FALSE(ids.empty());
    EXPECT_EQ(tokenizer->Decode(ids), text);
  }
}

TEST_F(SmolLm2, B056RareCharactersFallBackToBytes) {
  KVRM_REQUIRE_DATA(testing::DefaultModelPath());
  for (const std::string text : {"\U0010FFFF", "\U00012000\U00013000", "\uE000", "\u0378", "\u0301",
                                 "a\u0301b \U000E0001 c"}) {
    EXPECT_EQ(tokenizer_->Decode(tokenizer_->Encode(text, SpecialTokens::kAsText)), text);
  }
}

}  // namespace
}  // namespace kvrm
