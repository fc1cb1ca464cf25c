#include "text/tokenizer_json.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/broken_corpus.h"
#include "base/test_data.h"
#include "text/test_vocabulary.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace kvrm {
namespace {

using testing::PiecesOf;

std::string GoodDir() { return testing::ProjectDataDir() + "/tokenizer_json"; }

std::unique_ptr<const Tokenizer> MustOpen(const std::string& name, std::string_view config = "") {
  auto spec = ReadTokenizerJson(testing::ReadFile(GoodDir() + "/" + name + ".json"), config);
  KVRM_CHECK(spec.ok(), "the test's file is accepted");
  auto tokenizer = Tokenizer::Create(std::move(spec).value());
  KVRM_CHECK(tokenizer.ok(), "the test's vocabulary is accepted");
  return std::move(tokenizer).value();
}

using Strings = std::vector<std::string>;

// Expected pieces of this file were made with PyPI tokenizers 0.23.3.
TEST(TokenizerJson, AByteLevelFileTokenizesAsTheReference) {
  const auto tokenizer = MustOpen("good_byte_level");
  EXPECT_EQ(tokenizer->spec().pre, "qwen2");
  EXPECT_EQ(PiecesOf(*tokenizer, "aab ab"), (Strings{"aa", "b", "\u0120ab"}));
  EXPECT_EQ(PiecesOf(*tokenizer, "<tool>a"), (Strings{"<tool>", "a"}));
  EXPECT_EQ(PiecesOf(*tokenizer, "e\u0301"), PiecesOf(*tokenizer, "\u00e9"));
  EXPECT_EQ(PiecesOf(*tokenizer, "<|im_start|> a<|im_end|> \n a"),
            (Strings{"<|im_start|>", "\u0120a", "<|im_end|>", "a"}));
}

TEST(TokenizerJson, OnlySpecialTokensAreControlTokens) {
  const auto tokenizer = MustOpen("good_byte_level");
  EXPECT_TRUE(tokenizer->IsControl(260));
  EXPECT_TRUE(tokenizer->IsControl(261));
  EXPECT_FALSE(tokenizer->IsControl(262));
  const auto ids = tokenizer->Encode("<|im_end|>", SpecialTokens::kAsText);
  EXPECT_TRUE(std::ranges::none_of(ids, [&](TokenId id) { return tokenizer->IsControl(id); }));
}

TEST(TokenizerJson, ACharacterFileTokenizesAsTheReference) {
  const auto tokenizer = MustOpen("good_characters");
  EXPECT_EQ(PiecesOf(*tokenizer, "ab  a\u00e9"),
            (Strings{"\u2581ab", "\u2581\u2581", "a", "<0xC3>", "<0xA9>"}));
  EXPECT_EQ(PiecesOf(*tokenizer, "a</s>b"), (Strings{"\u2581a", "</s>", "\u2581", "b"}));
  EXPECT_EQ(tokenizer->spec().bos, 1);
  EXPECT_TRUE(tokenizer->spec().add_bos);
}

TEST(TokenizerJson, MetaspaceFirstPutsItsBlankAtTheVeryBeginningOnly) {
  const auto tokenizer = MustOpen("good_metaspace_first");
  EXPECT_EQ(PiecesOf(*tokenizer, "a</s>b"), (Strings{"\u2581a", "</s>", "b"}));
  EXPECT_EQ(PiecesOf(*tokenizer, " a"), (Strings{"\u2581a"}));
  EXPECT_EQ(PiecesOf(*tokenizer, "</s>a"), (Strings{"</s>", "a"}));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a</s> b", SpecialTokens::kParse), true),
            "a</s> b");
}

TEST(TokenizerJson, TheConfigNamesTokensAndTemplate) {
  const auto tokenizer =
      MustOpen("good_byte_level",
               R"({"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>"},
                   "add_bos_token": true, "pad_token": "nowhere",
                   "chat_template": [{"name": "other", "template": "x"},
                                     {"name": "default", "template": "y"}]})");
  EXPECT_EQ(tokenizer->spec().bos, 260);
  EXPECT_EQ(tokenizer->spec().eos, 261);
  EXPECT_EQ(tokenizer->spec().padding, -1);
  EXPECT_TRUE(tokenizer->spec().add_bos);
  EXPECT_EQ(tokenizer->spec().chat_template, "y");
}

TEST(TokenizerJson, AFolderIsReadWithWhatLiesBesideTheTokenizer) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "kvrm_tokenizer_folder";
  std::filesystem::create_directories(folder);
  EXPECT_EQ(ReadTokenizerFolder(folder.string()).error().message,
            "'" + folder.string() + "' holds no tokenizer.json");
  std::filesystem::copy_file(GoodDir() + "/good_byte_level.json", folder / "tokenizer.json");
  testing::WriteFile(folder / "tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(ReadTokenizerFolder(folder.string()).value().chat_template, "config");
  testing::WriteFile(folder / "chat_template.jinja", "file");
  EXPECT_EQ(ReadTokenizerFolder(folder.string()).value().chat_template, "file");
  std::filesystem::remove_all(folder);
}

constexpr testing::BrokenFile kBrokenTokenizers[] = {
    {"added_flag_no_boolean", "special is no boolean"},
    {"added_id_gap", "added_tokens[0]: id 9000 leaves too many gaps, must be below 1032"},
    {"added_id_taken", "added_tokens[0]: id 1 is \"b\" already"},
    {"added_no_content", "added_tokens[0] has no content"},
    {"added_no_id", "added_tokens[0] has no id"},
    {"added_no_list", "added_tokens is no list"},
    {"added_no_object", "added_tokens[0] is no object"},
    {"added_single_word", "added_tokens[0] \"x\" with single_word is not supported"},
    {"byte_fallback", "byte_fallback beside ByteLevel is not supported"},
    {"byte_level_beside_blanks", "ByteLevel beside blanks as U+2581 is not supported"},
    {"byte_level_prefix", "ByteLevel with add_prefix_space is not supported"},
    {"byte_level_twice", "ByteLevel twice is not supported"},
    {"ignore_merges", "ignore_merges without ByteLevel is not supported"},
    {"merge_no_pair", "\"ab\" is not two tokens with a blank between them"},
    {"merge_of_three", "model.merges[0] is neither a string nor a list of two"},
    {"merge_unknown", "\"a c\": a part or the whole is no token of the vocabulary"},
    {"merge_with_blank", "model.merges[0] with a blank in a token is not supported"},
    {"merges_no_list", "model.merges is no list"},
    {"metaspace_replacement", "Metaspace with \"_\" is not supported"},
    {"metaspace_scheme", "Metaspace with prepend_scheme \"last\" is not supported"},
    {"model_no_object", "model is no object"},
    {"model_type", "model \"WordPiece\" is not supported"},
    {"model_type_unigram", "model \"Unigram\" is not supported"},
    {"model_type_no_string", "type is no string"},
    {"nested_deeply", "no JSON (too deep"},
    {"no_json", "no JSON (incomplete"},
    {"no_object", "tokenizer.json: no object"},
    {"normalizer_no_object", "normalizer is no object"},
    {"normalizer_pattern", "a pattern that is no String is not supported"},
    {"normalizer_prepend", "normalizer Prepend of \"x\" is not supported"},
    {"normalizer_replace", "normalizer Replace of \"a\" by \"b\" is not supported"},
    {"normalizer_sequence_no_list", "normalizers is no list"},
    {"normalizer_type", "normalizer \"NFKC\" is not supported"},
    {"pre_tokenizer_behavior", "Split by \"a\" Removed is not supported"},
    {"pre_tokenizer_digits", "pre_tokenizer Digits of whole numbers is not supported"},
    {"pre_tokenizer_no_object", "pre_tokenizer is no object"},
    {"pre_tokenizer_none", "a pre_tokenizer without ByteLevel, Metaspace or blanks as U+2581"},
    {"pre_tokenizer_pattern", "pre_tokenizer with the steps split (a+)+$"},
    {"pre_tokenizer_type", "pre_tokenizer \"Whitespace\" is not supported"},
    {"token_too_long", "tokenizer.ggml.tokens[0]: 2049 bytes; at most 2048 are allowed"},
    {"subword_prefix", "model.continuing_subword_prefix is not supported"},
    {"vocab_empty", "model.vocab is empty"},
    {"vocab_id_gap", "model.vocab[\"b\"]: id 5000 leaves too many gaps, must be below 1030"},
    {"vocab_id_huge", "model.vocab[\"b\"]: its id is no integer from 0 to 16777215"},
    {"vocab_id_negative", "model.vocab[\"b\"]: its id is no integer from 0 to 16777215"},
    {"vocab_id_no_integer", "model.vocab[\"b\"]: its id is no integer from 0 to 16777215"},
    {"vocab_id_twice", "model.vocab[\"b\"]: id 0 is \"a\" already"},
    {"vocab_no_object", "model.vocab is no object"},
    {"byte_level_beside_prepend", "ByteLevel beside the normalizer Prepend"},
    {"decoder_fallback_alone", "decoder with ByteFallback without byte_fallback"},
    {"decoder_metaspace", "decoder: Metaspace with \"_\""},
    {"decoder_no_object", "decoder is no object"},
    {"decoder_pattern_no_object", "decoder.decoders[0].pattern is no object"},
    {"decoder_replace", "decoder.decoders[0]: Replace of \"_\""},
    {"decoder_sequence_no_list", "decoder.decoders is no list"},
    {"decoder_strip", "decoder.decoders[1]: Strip of \"a\""},
    {"decoder_type", "decoder \"WordPiece\" is not supported"},
    {"decoder_without_blanks", "decoder without blanks for U+2581"},
    {"decoder_without_bytes", "decoder without ByteLevel, or with blanks beside it"},
    {"decoder_without_fallback", "decoder without ByteFallback beside byte_fallback"},
    {"dropout", "model.dropout above 0 is not supported"},
    {"dropout_no_number", "model.dropout is no number"},
    {"metaspace_beside_replace", "Metaspace beside a normalizer that writes blanks"},
    {"metaspace_twice", "pre_tokenizer.pretokenizers[1]: Metaspace twice"},
    {"post_processor_no_object", "post_processor is no object"},
    {"post_processor_sequence_no_list", "post_processor.processors is no list"},
    {"post_processor_type", "post_processor \"RobertaProcessing\" is not supported"},
    {"prepend_twice", "normalizer.normalizers[1] Prepend twice"},
    {"split_before_metaspace", "a pre_tokenizer without ByteLevel, Metaspace or blanks as U+2581"},
    {"template_item", "post_processor.single holds neither SpecialToken nor Sequence"},
    {"template_no_list", "post_processor.single is no list"},
    {"template_of_two_tokens", "post_processor.single other than [a token,] the text"},
    {"template_token_of_other_ids", "post_processor.single: \"a\" with the ids [1]"},
    {"template_token_unknown", "post_processor.single: \"z\" is no token"},
    {"template_without_text", "post_processor.single other than [a token,] the text"},
    {"unk_token_no_token", "model.unk_token \"<unk>\" is no token"},
    {"unk_token_without_bytes", "model.unk_token beside ByteLevel without a token for each byte"},
    {"word_suffix", "model.end_of_word_suffix is not supported"},
};

TEST(TokenizerJson, EachBrokenFileIsRefusedByTheCheckItIsNamedAfter) {
  testing::ExpectEachRefusedByItsCheck(
      "tokenizer_json/broken", ".json", kBrokenTokenizers,
      [](const std::string& name, const std::string& text) {
        auto spec = ReadTokenizerJson(text, "");
        std::string message = spec.ok() ? "" : spec.error().message;
        if (spec.ok()) {
          const auto tokenizer = Tokenizer::Create(std::move(spec).value());
          if (!tokenizer.ok()) message = tokenizer.error().message;
        }
        EXPECT_TRUE(IsValidUtf8(message)) << name;
        return message;
      });
}

// Nothing of it is ever touched.
TEST(TokenizerJson, AFileOf4GiBIsRefusedBeforeItIsRead) {
  constexpr size_t kBytes = size_t{1} << 32;
  void* const at =
      mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  const auto spec = ReadTokenizerJson({static_cast<const char*>(at), kBytes}, "");
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().message, "tokenizer.json: 4294967296 bytes, must be at most 4294967295");
  munmap(at, kBytes);
}

TEST(TokenizerJson, AFolderWhoseFilesAreTooLargeOrNoFilesIsRefusedUnread) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "kvrm_too_large_folder";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const fs::path file = folder / "tokenizer.json";
  std::ofstream(file).close();
  fs::resize_file(file, uint64_t{1} << 32);  // a hole, no bytes
  const auto large = ReadTokenizerFolder(folder.string());
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().message,
            "'" + file.string() + "': 4294967296 bytes, must be at most 4294967295");
  fs::remove(file);
  fs::create_directory(file);
  const auto directory = ReadTokenizerFolder(folder.string());
  ASSERT_FALSE(directory.ok());
  EXPECT_EQ(directory.error().message, "'" + file.string() + "' is no file that can be read");
  fs::remove_all(folder);
}

constexpr testing::BrokenFile kBrokenTokenizerConfigs[] = {
    {"no_json", "tokenizer_config.json: no JSON (incomplete"},
    {"no_object", "tokenizer_config.json: no object"},
    {"flag_no_boolean", "add_bos_token is no boolean"},
};

TEST(TokenizerJson, EachBrokenConfigIsRefusedByTheCheckItIsNamedAfter) {
  const std::string good = testing::ReadFile(GoodDir() + "/good_byte_level.json");
  testing::ExpectEachRefusedByItsCheck(
      "tokenizer_json/broken/config", ".json", kBrokenTokenizerConfigs,
      [&](const std::string&, const std::string& text) -> std::string {
        const auto spec = ReadTokenizerJson(good, text);
        return spec.ok() ? "" : spec.error().message;
      });
}

}  // namespace
}  // namespace kvrm
