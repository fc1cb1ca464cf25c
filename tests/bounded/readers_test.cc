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

// All that was ever asked for, what was given back meanwhile included.
constexpr uint64_t kBytesAByte = 256;
constexpr uint64_t kBytesAFile = uint64_t{256} << 10;

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

struct Reader {
  const char* corpus;
  void (*read)(std::string_view text);
};
const Reader kReaders[] = {
    {"gguf", ReadGguf},
    {"safetensors", ReadHubFile},
    {"tokenizer_json", [](auto text) { ReadTokenizer(ReadTokenizerJson(text, text)); }},
    {"template", [](auto text) { (void)ChatTemplate::Parse(text); }},
    {"conversation", [](auto text) { (void)ParseConversation(text); }},
    {"hub_listing", [](auto text) { (void)ParseRepoListing(text); }},
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
      EXPECT_LE(taken, kBytesAFile + kBytesAByte * text.size()) << entry.path();
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

// The law's own test: what believes a count is seen.
TEST(Readers, AReaderThatBelievedACountWouldBeSeen) {
  const uint64_t before = testing::AllocatedBytes();
  ::operator delete(::operator new(size_t{1} << 20));
  EXPECT_GE(testing::AllocatedBytes() - before, uint64_t{1} << 20);
}

}  // namespace
}  // namespace kvrm
