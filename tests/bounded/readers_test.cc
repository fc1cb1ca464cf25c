// What readers of files that strangers made take of memory: no count, length or id of a file is
// believed before the file could hold it. Every file of the fuzz corpora, broken or not.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/counted_new.h"
#include "base/string_list.h"
#include "hub/repo.h"
#include "model/config.h"
#include "model/describe.h"
#include "model/generation_defaults.h"
#include "model/gguf.h"
#include "model/gguf_writer.h"
#include "model/hub_config.h"
#include "model/safetensors.h"
#include "model/safetensors_index.h"
#include "text/chat_json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

namespace kvrm {
namespace {

namespace fs = std::filesystem;

void ReadTokenizer(Result<TokenizerSpec> spec) {
  if (spec.ok()) (void)Tokenizer::Create(std::move(spec).value());
}

void ReadGguf(std::string_view text) {
  const auto file = GgufFile::Parse(std::as_bytes(std::span(text)), "file");
  if (!file.ok()) return;
  (void)ReadConfig(**file);
  (void)Describe(**file);
  ReadTokenizer(ReadTokenizerSpec(**file));
}

void ReadHubFile(std::string_view text) {
  (void)ParseSafetensors(std::as_bytes(std::span(text)));
  (void)ParseSafetensorsIndex(text);
  (void)ReadHubConfig(text, "file");
  (void)ReadHubGeneration(text);
}

// A file may take a_file + a_byte * its bytes: all that was ever asked for, what was given back
// meanwhile included (every file of the corpus takes two thirds of that at most).
struct Reader {
  const char* corpus;
  void (*read)(std::string_view text);
  uint64_t a_file, a_byte;
  uint64_t Allowed(size_t bytes) const { return a_file + a_byte * bytes; }
};
constexpr uint64_t kKiB = 1024;
const Reader kReaders[] = {
    {"gguf", ReadGguf, 12 * kKiB, 6},
    {"safetensors", ReadHubFile, 12 * kKiB, 16},
    {"tokenizer_json", [](auto text) { ReadTokenizer(ReadTokenizerJson(text, text)); }, 96 * kKiB,
     32},
    {"template", [](auto text) { (void)ChatTemplate::Parse(text); }, 96 * kKiB, 32},
    {"conversation", [](auto text) { (void)ParseConversation(text); }, 8 * kKiB, 8},
    {"hub_listing", [](auto text) { (void)ParseRepoListing(text); }, 4 * kKiB, 8},
};

TEST(Readers, TakeMemoryInProportionToTheFileWhateverItClaims) {
  for (const Reader& reader : kReaders) {
    size_t files = 0;
    const fs::path corpus = fs::path(KVRM_SOURCE_DIR) / "tests/fuzz" / reader.corpus;
    for (const auto& entry : fs::recursive_directory_iterator(corpus)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      const uint64_t before = testing::AllocatedBytes();
      reader.read(text);
      const uint64_t taken = testing::AllocatedBytes() - before;
      EXPECT_LE(taken, reader.Allowed(text.size())) << entry.path();
      ++files;
    }
    EXPECT_GE(files, 5u) << reader.corpus;
  }
}

// While a model is loaded its vocabulary is held twice, by the file and by the tokenizer's
// specification, beside the weights; a std::string each would take three to five times as much.
TEST(Readers, AVocabularyTakesNoMoreMemoryThanItTakesOfItsFile) {
  constexpr uint64_t kBeside = uint64_t{16} << 10;
  StringList tokens, merges;
  for (int i = 0; i < 100'000; ++i) {
    tokens.push_back(std::string(1 + i % 21, 't') + std::to_string(i));
    merges.push_back("t " + std::to_string(i));
  }
  GgufWriter writer;
  writer.AddString("tokenizer.ggml.model", "gpt2");
  writer.AddStrings("tokenizer.ggml.tokens", tokens);
  writer.AddStrings("tokenizer.ggml.merges", merges);
  const std::vector<std::byte> bytes = writer.Finish();
  uint64_t before = testing::AllocatedBytes();
  const auto file = GgufFile::Parse(bytes, "file");
  EXPECT_LE(testing::AllocatedBytes() - before, bytes.size() + kBeside);
  ASSERT_TRUE(file.ok()) << file.error().message;
  before = testing::AllocatedBytes();
  const auto spec = ReadTokenizerSpec(**file);
  EXPECT_LE(testing::AllocatedBytes() - before, bytes.size() + kBeside);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->tokens, tokens);
  EXPECT_EQ(spec->merges, merges);
}

// Where what a file takes beside its bytes counts for nothing.
TEST(Readers, ALargeTokenizerJsonTakesNoMorePerByteThanASmallOne) {
  std::string vocab, merges;
  for (int i = 0; i < 50'000; ++i) {
    vocab += ", \"t" + std::to_string(i) + "\": " + std::to_string(i + 3);
    merges += std::string(i == 0 ? "" : ", ") + R"(["a", "b"])";
  }
  const std::string text =
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2)" + vocab +
      "}, \"merges\": [" + merges +
      R"(]}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}})";
  const uint64_t before = testing::AllocatedBytes();
  auto spec = ReadTokenizerJson(text, "");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  ASSERT_TRUE(Tokenizer::Create(std::move(spec).value()).ok());
  EXPECT_LE(testing::AllocatedBytes() - before, 24 * text.size());
}

TEST(Readers, AnArrayOfIntegersTakesNoMoreMemoryThanItTakesOfItsFile) {
  constexpr uint64_t kBeside = uint64_t{4} << 10;
  GgufWriter writer;
  writer.AddUint8s("bytes", std::vector<uint8_t>(300'000, 7));
  writer.AddBools("flags", std::vector<uint8_t>(300'000, 1));
  writer.AddInt32s("numbers", std::vector<int32_t>(100'000, -3));
  const std::vector<std::byte> bytes = writer.Finish();
  const uint64_t before = testing::AllocatedBytes();
  const auto file = GgufFile::Parse(bytes, "file");
  EXPECT_LE(testing::AllocatedBytes() - before, bytes.size() + kBeside);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(std::get<IntegerList>((*file)->Find("bytes")->data)[299'999], 7);
  EXPECT_EQ(std::get<IntegerList>((*file)->Find("flags")->data)[0], 1);
  EXPECT_EQ(std::get<IntegerList>((*file)->Find("numbers")->data)[5], -3);
}

// The law's own test: what believes a count is seen.
TEST(Readers, AReaderThatBelievedACountWouldBeSeen) {
  const uint64_t before = testing::AllocatedBytes();
  ::operator delete(::operator new(size_t{1} << 20));
  EXPECT_GE(testing::AllocatedBytes() - before, uint64_t{1} << 20);
}

}  // namespace
}  // namespace kvrm
