// Each option of a tokenizer.json is honoured, as PyPI tokenizers has it, or refused when the file
// is read, by the path of its field; none is passed over.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/test_data.h"
#include "text/bpe_tokenizer.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

namespace json = boost::json;

// Made by tools/oracle/tokenizer_json_goldens.py, which has the command and the version.
json::value Goldens() {
  return json::parse(testing::ReadFile(testing::ProjectDataDir() + "/tokenizer_json/goldens.json"));
}

std::vector<TokenId> IdsOf(const json::value& list) {
  std::vector<TokenId> ids;
  for (const json::value& id : list.as_array()) ids.push_back(id.to_number<TokenId>());
  return ids;
}

std::unique_ptr<const Tokenizer> MustMake(const json::value& file, std::string_view config = "") {
  auto spec = ReadTokenizerJson(json::serialize(file), config);
  KVRM_CHECK(spec.ok(), "the test's file is accepted");
  return Tokenizer::Create(std::move(spec).value()).value();
}

TEST(TokenizerJson, EveryOptionGivesTheIdsOfTheReference) {
  const json::value goldens = Goldens();
  const json::array& texts = goldens.at("texts").as_array();
  size_t compared = 0;
  for (const json::value& golden : goldens.at("cases").as_array()) {
    SCOPED_TRACE(golden.at("name").as_string().c_str());
    const auto tokenizer = MustMake(golden.at("tokenizer"));
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string text(texts[i].as_string());
      EXPECT_EQ(tokenizer->Encode(text, SpecialTokens::kParse), IdsOf(golden.at("ids").at(i)))
          << "text: \"" << text << "\"";
      ++compared;
    }
  }
  EXPECT_GE(compared, 700u);
}

// Files of the first Llamas say `normalized` of their marks; beside Prepend that would be
// "\u2581</s>".
TEST(TokenizerJson, AMarkIsFoundAsItIsWrittenWhateverNormalizedSays) {
  json::value goldens = Goldens();
  const json::array& texts = goldens.at("texts").as_array();
  size_t changed = 0;
  for (json::value& golden : goldens.at("cases").as_array()) {
    SCOPED_TRACE(golden.at("name").as_string().c_str());
    for (json::value& token : golden.at("tokenizer").at("added_tokens").as_array()) {
      if (!token.at("special").as_bool() || token.at("normalized").as_bool()) continue;
      token.at("normalized") = true;
      ++changed;
    }
    const auto tokenizer = MustMake(golden.at("tokenizer"));
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string text(texts[i].as_string());
      EXPECT_EQ(tokenizer->Encode(text, SpecialTokens::kParse), IdsOf(golden.at("ids").at(i)))
          << "text: \"" << text << "\"";
    }
    if (golden.at("name").as_string() != "characters: normalized") continue;
    const auto turns = tokenizer->Encode("a</s><s>[INST] ", SpecialTokens::kParse);
    EXPECT_EQ(std::ranges::count(turns, 2), 1);  // </s>
    EXPECT_EQ(std::ranges::count(turns, 1), 1);  // <s>
  }
  EXPECT_GE(changed, 30u);
}

TEST(TokenizerJson, ANormalizedMarkIsNotFoundInWhatAUserWrote) {
  size_t found = 0;
  const json::value goldens = Goldens();
  for (const json::value& golden : goldens.at("cases").as_array()) {
    if (golden.at("name").as_string().find("marks") == json::string::npos) continue;
    ++found;
    SCOPED_TRACE(golden.at("name").as_string().c_str());
    const auto tokenizer = MustMake(golden.at("tokenizer"));
    const std::string mark = "</s>";
    // "a </s>b </s>c </s>": the ranges hold the first mark with its blank, half the second,
    // and the third with its blank.
    const std::string text = "a " + mark + "b " + mark + "c " + mark;
    const ControlRange ranges[] = {{1, 6}, {9, 12}, {13, 18}};
    const auto count = [&](const std::vector<TokenId>& ids) { return std::ranges::count(ids, 2); };
    EXPECT_EQ(count(tokenizer->Encode(text, SpecialTokens::kParse)), 3);
    EXPECT_EQ(count(tokenizer->Encode(text, SpecialTokens::kAsText)), 0);
    EXPECT_EQ(count(tokenizer->EncodeRanges(text, ranges)), 2);
    const ControlRange first{0, 4};
    EXPECT_EQ(count(tokenizer->EncodeRanges(mark + " " + mark, {&first, 1})), 1);
  }
  EXPECT_EQ(found, 3u);
}

// A file of the ByteLevel kind, and one of SentencePiece's, with more fields of each part.
std::string OfBytes(const std::string& root, const std::string& model = "") {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"])" +
         model + R"(}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false})" + root +
         "}";
}
std::string OfCharacters(const std::string& root, const std::string& model = "",
                         const std::string& pre_tokenizer = "null") {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u2581": 3},
             "merges": ["a b"])" +
         model + R"(}, "pre_tokenizer": )" + pre_tokenizer + root + "}";
}

constexpr char kWritesBlanks[] =
    R"(, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})";

std::string OptionRefusal(const std::string& text) {
  const auto spec = ReadTokenizerJson(text, "");
  if (spec.ok()) return "";
  const std::string& message = spec.error().message;
  constexpr std::string_view kFile = "tokenizer.json: ";
  EXPECT_EQ(message.find(kFile), 0u) << message;
  return message.substr(kFile.size());
}

struct RefusedOption {
  const char* fields;
  const char* message;
};

TEST(TokenizerJson, WhatIsNotHonouredInTheModelIsRefusedByItsPath) {
  constexpr RefusedOption kModel[] = {
      {R"(, "dropout": 0.1)", "model.dropout above 0 is not supported"},
      {R"(, "dropout": "none")", "model.dropout is no number"},
      {R"(, "fuse_unk": 1)", "model.fuse_unk is no boolean"},
      {R"(, "byte_fallback": "yes")", "model.byte_fallback is no boolean"},
      {R"(, "ignore_merges": 0)", "model.ignore_merges is no boolean"},
      {R"(, "unk_token": 0)", "model.unk_token is no string"},
      {R"(, "unk_token": "<unk>")", "model.unk_token \"<unk>\" is no token"},
      {R"(, "unk_token": "a")",
       "model.unk_token beside ByteLevel without a token for each byte of UTF-8 is not supported"},
      {R"(, "end_of_word_suffix": 1)", "model.end_of_word_suffix is no string"},
  };
  for (const RefusedOption& option : kModel) {
    EXPECT_EQ(OptionRefusal(OfBytes("", option.fields)), option.message) << option.fields;
  }
  EXPECT_EQ(OptionRefusal(OfBytes("", R"(, "dropout": 0)")), "");
}

// A file with a token for each byte but those of `left_out`, and <unk>.
std::string OfBytesWithout(const std::vector<int>& left_out) {
  json::object vocab;
  for (char32_t point = 0; point < 0x200; ++point) {
    std::string character;
    AppendUtf8(point, character);
    const std::optional<uint8_t> byte = ByteOfCharacter(character);
    if (!byte || std::ranges::find(left_out, int{*byte}) != left_out.end()) continue;
    vocab[character] = vocab.size();
  }
  EXPECT_EQ(vocab.size(), 256 - left_out.size());
  vocab["<unk>"] = vocab.size();
  return R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model":
      {"type": "BPE", "merges": [], "unk_token": "<unk>", "vocab": )" +
         json::serialize(vocab) + "}}";
}

TEST(TokenizerJson, AnUnknownTokenBesideByteLevelNeedsTheBytesOfUtf8Alone) {
  const std::vector<int> in_no_text = {0xC0, 0xC1, 0xF5, 0xF6, 0xF7, 0xF8, 0xF9,
                                       0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF};
  EXPECT_EQ(OptionRefusal(OfBytesWithout(in_no_text)), "");
  for (const int byte : {0x00, 0x7F, 0xBF, 0xC2, 0xF4}) {
    EXPECT_NE(OptionRefusal(OfBytesWithout({byte})), "") << byte;
  }
}

TEST(TokenizerJson, WhatIsNotHonouredOfAnAddedTokenIsRefusedByItsPath) {
  constexpr RefusedOption kAdded[] = {
      {R"("normalized": 0)", "added_tokens[1].normalized is no boolean"},
      {R"("lstrip": 1)", "added_tokens[1].lstrip is no boolean"},
      {R"("rstrip": "a")", "added_tokens[1].rstrip is no boolean"},
      {R"("special": 1)", "added_tokens[1].special is no boolean"},
      {R"("single_word": 1)", "added_tokens[1].single_word is no boolean"},
      {R"("single_word": true)", "added_tokens[1] \"y\" with single_word is not supported"},
  };
  for (const RefusedOption& option : kAdded) {
    EXPECT_EQ(OptionRefusal(OfBytes(
                  R"(, "added_tokens": [{"id": 3, "content": "x"}, {"id": 4, "content": "y", )" +
                  std::string(option.fields) + "}]")),
              option.message)
        << option.fields;
  }
}

TEST(TokenizerJson, WhatIsNotHonouredOfTheStepsIsRefusedByItsPath) {
  constexpr RefusedOption kSteps[] = {
      {R"(, "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFD"}]})",
       "normalizer.normalizers[1] \"NFD\" is not supported"},
      {R"(, "normalizer": {"type": "Lowercase"})", "normalizer \"Lowercase\" is not supported"},
      {R"(, "normalizer": {"type": "Prepend", "prepend": "\u2581"})",
       "ByteLevel beside the normalizer Prepend is not supported"},
      {R"(, "normalizer": {"type": 5})", "normalizer.type is no string"},
      {R"(, "decoder": {"type": "WordPiece"})", "decoder \"WordPiece\" is not supported"},
      {R"(, "decoder": {"type": "BPEDecoder", "suffix": "</w>"})",
       "decoder \"BPEDecoder\" is not supported"},
      {R"(, "decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "CTC"}]})",
       "decoder.decoders[1] \"CTC\" is not supported"},
      {R"(, "decoder": {"type": "Sequence", "decoders": 1})", "decoder.decoders is no list"},
      {R"(, "decoder": {"type": "Sequence", "decoders": []})",
       "decoder without ByteLevel, or with blanks beside it is not supported"},
      {R"(, "decoder": {"type": "Metaspace", "replacement": "\u2581"})",
       "decoder without ByteLevel, or with blanks beside it is not supported"},
      {R"(, "decoder": 1)", "decoder is no object"},
      {R"(, "post_processor": {"type": "RobertaProcessing"})",
       "post_processor \"RobertaProcessing\" is not supported"},
      {R"(, "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
           {"type": "BertProcessing"}]})",
       "post_processor.processors[1] \"BertProcessing\" is not supported"},
      {R"(, "post_processor": {"type": "TemplateProcessing"})", "post_processor.single is no list"},
      {R"(, "post_processor": {"type": "TemplateProcessing", "single": []})",
       "post_processor.single other than [a token,] the text is not supported"},
      {R"(, "post_processor": {"type": "TemplateProcessing", "single": [
           {"SpecialToken": {"id": "a"}}, {"SpecialToken": {"id": "b"}}, {"Sequence": {"id": "A"}}]})",
       "post_processor.single other than [a token,] the text is not supported"},
      {R"(, "post_processor": {"type": "TemplateProcessing", "single": [
           {"SpecialToken": {"id": "z"}}, {"Sequence": {"id": "A"}}]})",
       "post_processor.single: \"z\" is no token"},
      {R"(, "post_processor": {"type": "TemplateProcessing", "single": [
           {"SpecialToken": {"id": "a"}}, {"Sequence": {"id": "A"}}],
           "special_tokens": {"a": {"id": "a", "ids": [1], "tokens": ["b"]}}})",
       "post_processor.single: \"a\" with the ids [1] is not supported"},
  };
  for (const RefusedOption& option : kSteps) {
    EXPECT_EQ(OptionRefusal(OfBytes(option.fields)), option.message) << option.fields;
  }
}

TEST(TokenizerJson, WhatIsNotHonouredOfBlanksIsRefusedByItsPath) {
  const std::string writes = kWritesBlanks;
  const std::string metaspace = R"({"type": "Metaspace", "replacement": "\u2581"})";
  EXPECT_EQ(OptionRefusal(OfCharacters(writes)), "");
  EXPECT_EQ(OptionRefusal(OfCharacters("", "", metaspace)), "");
  EXPECT_EQ(OptionRefusal(OfCharacters(writes, "", metaspace)),
            "Metaspace beside a normalizer that writes blanks is not supported");
  // Before Metaspace a split at blanks still finds them.
  const std::string split =
      R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"})";
  EXPECT_EQ(OptionRefusal(OfCharacters(writes, "", split)), "");
  EXPECT_NE(
      OptionRefusal(OfCharacters(
          "", "", R"({"type": "Sequence", "pretokenizers": [)" + split + ", " + metaspace + "]}")),
      "");
  EXPECT_EQ(OptionRefusal(OfCharacters(R"(, "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"}, {"type": "Prepend", "prepend": "\u2581"}]})")),
            "normalizer.normalizers[1] Prepend twice is not supported");
  const std::string blanks =
      R"({"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "})";
  const auto decoder = [&](const std::string& steps) {
    return OptionRefusal(
        OfCharacters(writes + R"(, "decoder": {"type": "Sequence", "decoders": [)" + steps + "]}"));
  };
  EXPECT_EQ(decoder(blanks + R"(, {"type": "Fuse"})"), "");
  EXPECT_EQ(decoder(R"({"type": "Fuse"})"), "decoder without blanks for U+2581 is not supported");
  EXPECT_EQ(decoder(blanks + R"(, {"type": "ByteFallback"})"),
            "decoder with ByteFallback without byte_fallback is not supported");
  EXPECT_EQ(decoder(blanks + R"(, {"type": "Strip", "content": "a", "start": 1, "stop": 0})"),
            "decoder.decoders[1]: Strip of \"a\" is not supported");
  EXPECT_EQ(decoder(blanks + R"(, {"type": "Strip", "content": " ", "start": 2, "stop": 0})"),
            "decoder.decoders[1]: Strip of \" \" is not supported");
  EXPECT_EQ(decoder(R"({"type": "Replace", "pattern": {"String": "_"}, "content": " "})"),
            "decoder.decoders[0]: Replace of \"_\" is not supported");
  EXPECT_EQ(OptionRefusal(OfCharacters(
                writes + R"(, "decoder": {"type": "Sequence", "decoders": [)" + blanks + "]}",
                R"(, "byte_fallback": true)")),
            "decoder without ByteFallback beside byte_fallback is not supported");
}

// A file of which each text begins with "a", or with what `single` says.
json::value WithTemplate(
    const std::string& single = R"({"SpecialToken": {"id": "a"}}, {"Sequence": {"id": "A"}})") {
  return json::parse(
      OfBytes(R"(, "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel"},
          {"type": "TemplateProcessing", "single": [)" +
              single + "]}]}"));
}

std::vector<TokenId> AsPrompt(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids = tokenizer.Encode(text, SpecialTokens::kAsText);
  AddStartToken(tokenizer, ids);
  return ids;
}

TEST(TokenizerJson, ATemplateSaysWhatStandsBeforeEachTextWhateverBosTokenIs) {
  for (const char* config : {"", R"({"bos_token": "b"})", R"({"bos_token": "a"})", "{}"}) {
    EXPECT_EQ(AsPrompt(*MustMake(WithTemplate(), config), "b"), (std::vector<TokenId>{0, 1}))
        << config;
  }
  const auto silent = MustMake(WithTemplate(), R"({"bos_token": "b", "add_bos_token": false})");
  EXPECT_EQ(silent->spec().bos, 1);
  EXPECT_EQ(AsPrompt(*silent, "a"), (std::vector<TokenId>{0}));
}

// No prompt ends with such a token, and the end of a generation is what eos_token says.
TEST(TokenizerJson, ATemplateWithATokenBehindTheTextIsRefused) {
  for (const char* before : {"", R"({"SpecialToken": {"id": "a"}}, )"}) {
    const std::string single =
        std::string(before) + R"({"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "b"}})";
    EXPECT_EQ(
        OptionRefusal(json::serialize(WithTemplate(single))),
        "post_processor.processors[1].single other than [a token,] the text is not supported");
  }
}

// They are of a request: PyPI transformers sets them anew for each.
TEST(TokenizerJson, TruncationAndPaddingOfTheFileDoNotTouchAText) {
  const auto tokenizer = Tokenizer::Create(
      ReadTokenizerJson(OfBytes(R"(, "truncation": {"max_length": 1}, "padding": {"pad_id": 0})"),
                        "")
          .value());
  EXPECT_EQ((*tokenizer)->Encode("abab", SpecialTokens::kAsText), (std::vector<TokenId>{2, 2}));
}

}  // namespace
}  // namespace kvrm
