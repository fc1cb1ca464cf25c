#include "model/gguf.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/model_test_support.h"

namespace kvrm {
namespace {

using testing::MemoryFile;
using testing::OpenBytes;
using testing::OpenRandom;

// Files written field by field, so that each field can lie.
class RawFile {
 public:
  template <class T>
  RawFile& Put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
    return *this;
  }
  RawFile& PutText(std::string_view text) {
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), bytes, bytes + text.size());
    return *this;
  }
  RawFile& PutString(std::string_view text) { return Put<uint64_t>(text.size()).PutText(text); }
  RawFile& Header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    return PutText("GGUF").Put(version).Put(tensors).Put(keys);
  }
  RawFile& Tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                  uint64_t offset) {
    PutString(name).Put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) Put(dim);
    return Put(type).Put(offset);
  }
  // Padding to the data section, then that many bytes of data.
  RawFile& Data(size_t data_bytes) {
    bytes_.resize((bytes_.size() + 31) / 32 * 32 + data_bytes);
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

constexpr uint32_t kTypeUint32 = 4, kTypeInt32 = 5, kTypeString = 8, kTypeArray = 9;
constexpr uint32_t kF32 = 0;

// The message of a file that must be refused: one line of printable ASCII.
std::string Refusal(const std::vector<std::byte>& bytes) {
  const MemoryFile memory = OpenBytes(bytes);
  EXPECT_EQ(memory.file, nullptr) << "accepted";
  for (const char c : memory.error) EXPECT_TRUE(c >= 0x20 && c < 0x7F) << memory.error;
  return memory.error;
}

struct HostileFile {
  const char* name;
  RawFile file;
  std::vector<std::string> said;  // what the message must hold
};

void ExpectEachRefusedWithItsOwnMessage(const std::vector<HostileFile>& files) {
  std::set<std::string> messages;
  for (const HostileFile& hostile : files) {
    SCOPED_TRACE(hostile.name);
    const std::string message = Refusal(hostile.file.bytes());
    for (const std::string& part : hostile.said) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
    EXPECT_TRUE(messages.insert(message).second) << "said twice: " << message;
  }
}

RawFile Header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
  return RawFile().Header(tensors, keys, version);
}

std::string WriteTemporary(const std::vector<std::byte>& bytes) {
  const std::string path = ::testing::TempDir() + "/kvrm_gguf_test_" + std::to_string(getpid());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  return path;
}

RandomModelSpec TinySpec() {
  RandomModelSpec spec;
  spec.layers = 1;
  spec.hidden = spec.ffn = 32;
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.vocab = kMinRandomVocab;
  return spec;
}

// ---- well-formed files

TEST(Gguf, ValuesOfEveryTypeAreWidened) {
  RawFile file = Header(0, 13);
  file.PutString("u8").Put<uint32_t>(0).Put<uint8_t>(200);
  file.PutString("i8").Put<uint32_t>(1).Put<int8_t>(-3);
  file.PutString("u16").Put<uint32_t>(2).Put<uint16_t>(65'535);
  file.PutString("i16").Put<uint32_t>(3).Put<int16_t>(-2);
  file.PutString("u32").Put<uint32_t>(4).Put<uint32_t>(4'000'000'000u);
  file.PutString("i32").Put<uint32_t>(5).Put<int32_t>(-1);
  file.PutString("f32").Put<uint32_t>(6).Put<float>(0.5f);
  file.PutString("bool").Put<uint32_t>(7).Put<uint8_t>(1);
  file.PutString("str").Put<uint32_t>(8).PutString("text");
  file.PutString("u64").Put<uint32_t>(10).Put<uint64_t>(~uint64_t{0});
  file.PutString("i64").Put<uint32_t>(11).Put<int64_t>(INT64_MIN);
  file.PutString("f64").Put<uint32_t>(12).Put<double>(1e300);
  file.PutString("strs").Put(kTypeArray).Put(kTypeString).Put<uint64_t>(2);
  file.PutString("a").PutString("");
  const MemoryFile memory = OpenBytes(file.bytes());
  ASSERT_TRUE(memory.file) << memory.error;
  const GgufFile& gguf = *memory.file;
  EXPECT_EQ(*gguf.GetUint("u8", {}), 200u);
  EXPECT_FALSE(gguf.GetUint("i8", {}).ok());
  EXPECT_EQ(*gguf.GetUint("u16", {}), 65'535u);
  EXPECT_EQ(*gguf.GetFloat("i16", {}), -2.0);
  EXPECT_EQ(*gguf.GetUint("u32", {}), 4'000'000'000u);
  EXPECT_EQ(std::get<int64_t>(gguf.Find("i32")->data), -1);
  EXPECT_EQ(*gguf.GetFloat("f32", {}), 0.5);
  EXPECT_TRUE(*gguf.GetBool("bool", {}));
  EXPECT_EQ(*gguf.GetString("str", {}), "text");
  EXPECT_EQ(*gguf.GetUint("u64", {}), ~uint64_t{0});
  EXPECT_EQ(std::get<int64_t>(gguf.Find("i64")->data), INT64_MIN);
  EXPECT_EQ(*gguf.GetFloat("f64", {}), 1e300);
  EXPECT_EQ(std::get<GgufValue::Strings>(gguf.Find("strs")->data), (GgufValue::Strings{"a", ""}));
}

template <class T>
std::vector<int64_t> ArrayReadBack(uint32_t type, const std::vector<T>& values) {
  RawFile file = Header(0, 1);
  file.PutString("k").Put(kTypeArray).Put(type).template Put<uint64_t>(values.size());
  for (const T value : values) file.Put(value);
  const MemoryFile memory = OpenBytes(file.bytes());
  EXPECT_TRUE(memory.file) << memory.error;
  if (!memory.file) return {};
  return std::get<IntegerList>(memory.file->Find("k")->data).ToVector();
}

TEST(Gguf, ArraysOfEveryIntegerTypeReadBack) {
  using Wide = std::vector<int64_t>;
  EXPECT_EQ(ArrayReadBack<uint8_t>(0, {0, 200, 255}), (Wide{0, 200, 255}));
  EXPECT_EQ(ArrayReadBack<int8_t>(1, {-128, 127}), (Wide{-128, 127}));
  EXPECT_EQ(ArrayReadBack<uint16_t>(2, {65'535, 1}), (Wide{65'535, 1}));
  EXPECT_EQ(ArrayReadBack<int16_t>(3, {-32'768, 5}), (Wide{-32'768, 5}));
  EXPECT_EQ(ArrayReadBack<uint32_t>(4, {4'000'000'000u}), (Wide{4'000'000'000}));
  EXPECT_EQ(ArrayReadBack<int32_t>(5, {-1, 7}), (Wide{-1, 7}));
  EXPECT_EQ(ArrayReadBack<uint8_t>(7, {0, 1, 1}), (Wide{0, 1, 1}));
  EXPECT_EQ(ArrayReadBack<uint64_t>(10, {uint64_t{INT64_MAX}}), Wide{INT64_MAX});
  EXPECT_EQ(ArrayReadBack<int64_t>(11, {INT64_MIN, 3}), (Wide{INT64_MIN, 3}));
  EXPECT_EQ(ArrayReadBack<int32_t>(5, {}), Wide{});
}

TEST(Gguf, LookUpsTellAbsentFromWrong) {
  RawFile file = Header(0, 1);
  file.PutString("text").Put(kTypeString).PutString("x");
  const MemoryFile memory = OpenBytes(file.bytes());
  ASSERT_TRUE(memory.file);
  EXPECT_EQ(*memory.file->GetUint("absent", 7), 7u);
  EXPECT_FALSE(memory.file->GetUint("absent", {}).ok());
  EXPECT_FALSE(memory.file->GetUint("text", 7).ok());
  EXPECT_FALSE(memory.file->GetFloat("text", 7).ok());
  EXPECT_FALSE(memory.file->GetBool("text", true).ok());
  EXPECT_EQ(memory.file->Find("absent"), nullptr);
  EXPECT_EQ(memory.file->FindTensor("text"), nullptr);
}

TEST(Gguf, TensorsLieWhereTheFileSays) {
  RawFile file = Header(2, 0, /*version=*/2);
  file.Tensor("b", {4, 2}, kF32, 32).Tensor("a", {8}, kF32, 0).Data(64);
  const MemoryFile memory = OpenBytes(file.bytes());
  ASSERT_TRUE(memory.file) << memory.error;
  const GgufTensor* a = memory.file->FindTensor("a");
  const GgufTensor* b = memory.file->FindTensor("b");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(b->rows(), 2u);
  EXPECT_EQ(a->data.data() + 32, b->data.data());
  EXPECT_EQ(b->data.data() + 32, memory.bytes.data() + memory.bytes.size());
  EXPECT_EQ(memory.file->version(), 2u);
}

TEST(Gguf, AlignmentOfTheFileIsUsed) {
  RawFile file = Header(1, 1);
  file.PutString("general.alignment").Put(kTypeUint32).Put<uint32_t>(8);
  file.Tensor("t", {2}, kF32, 8);
  const size_t list_end = file.bytes().size();
  std::vector<std::byte> bytes = file.bytes();
  bytes.resize((list_end + 7) / 8 * 8 + 16);
  const MemoryFile memory = OpenBytes(bytes);
  ASSERT_TRUE(memory.file) << memory.error;
  EXPECT_EQ(memory.file->tensors()[0].data.data(), memory.bytes.data() + bytes.size() - 8);
}

TEST(Gguf, OpenReadsWhatParseReads) {
  const MemoryFile memory = OpenRandom(TinySpec());
  const std::string path = WriteTemporary(memory.bytes);
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ((*file)->tensors().size(), memory.file->tensors().size());
  for (size_t i = 0; i < memory.file->tensors().size(); ++i) {
    const GgufTensor& mapped = (*file)->tensors()[i];
    const GgufTensor& parsed = memory.file->tensors()[i];
    EXPECT_EQ(mapped.name, parsed.name);
    ASSERT_EQ(mapped.data.size(), parsed.data.size());
    EXPECT_EQ(std::memcmp(mapped.data.data(), parsed.data.data(), parsed.data.size()), 0);
  }
  std::remove(path.c_str());
}

TEST(Gguf, PathsThatAreNoFilesAreRefused) {
  const auto absent = GgufFile::Open("/nonexistent/model.gguf");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().kind, ErrorKind::kNotFound);
  const auto folder = GgufFile::Open(::testing::TempDir());
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().message.find("config.json"), std::string::npos);
}

TEST(Gguf, NamesInMessagesArePrintable) {
  EXPECT_EQ(PrintableName("plain"), "plain");
  EXPECT_EQ(PrintableName(std::string("a\n\0\xFF", 4)), "a\\x0a\\x00\\xff");
  EXPECT_LE(PrintableName(std::string(500, 'x')).size(), 83u);
}

// ---- B058: files cut off, or longer than they say

TEST(B058, FilesCutAnywhereAreRefused) {
  const MemoryFile whole = OpenRandom(TinySpec());
  ASSERT_TRUE(whole.file);
  std::set<size_t> cuts = {0, 1, whole.bytes.size() - 1};
  for (const GgufTensor& tensor : whole.file->tensors()) {
    const auto begin = static_cast<size_t>(tensor.data.data() - whole.bytes.data());
    cuts.insert({begin - 1, begin, begin + 1, begin + tensor.data.size() / 2,
                 begin + tensor.data.size() - 1});
  }
  const auto data_begin =
      static_cast<size_t>(whole.file->tensors()[0].data.data() - whole.bytes.data());
  for (size_t cut = 0; cut < data_begin; cut += cut < 400 ? 1 : 7) cuts.insert(cut);
  for (const size_t cut : cuts) {
    if (cut >= whole.bytes.size()) continue;
    // A copy of exactly that length, so that a sanitizer sees a read past its end.
    const std::vector<std::byte> bytes(whole.bytes.begin(),
                                       whole.bytes.begin() + static_cast<ptrdiff_t>(cut));
    const std::string message = Refusal(bytes);
    EXPECT_NE(message.find(std::to_string(cut)), std::string::npos) << message;
  }
}

TEST(B058, MessageNamesTensorNeededAndRealSize) {
  const MemoryFile whole = OpenRandom(TinySpec());
  std::vector<std::byte> bytes = whole.bytes;
  bytes.pop_back();
  const GgufTensor& last = whole.file->tensors().back();
  const std::string message = Refusal(bytes);
  EXPECT_NE(message.find("'" + last.name + "'"), std::string::npos) << message;
  EXPECT_NE(message.find("needs " + std::to_string(last.data.size())), std::string::npos);
  EXPECT_NE(message.find(std::to_string(bytes.size())), std::string::npos);
}

TEST(B058, BytesAfterTheLastTensorAreAllowed) {
  MemoryFile whole = OpenRandom(TinySpec());
  std::vector<std::byte> bytes = whole.bytes;
  bytes.push_back(std::byte{0});
  const MemoryFile longer = OpenBytes(bytes);
  ASSERT_TRUE(longer.file) << longer.error;
  EXPECT_EQ(longer.file->tensors().size(), whole.file->tensors().size());
}

TEST(B058, EmptyFilesAreRefusedByPath) {
  const std::string path = WriteTemporary({});
  const auto file = GgufFile::Open(path);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().message, path + ": is empty (0 bytes), not a model file");
  std::remove(path.c_str());
}

TEST(B058, AFileCutAfterItsLoadCostsTheModelNothing) {
  const std::string path = WriteTemporary(WriteRandomModel(TinySpec()));
  auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok());
  const auto model = Model::Load(**file, {});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const LinearWeights& head = (*model)->head();
  const uint64_t head_bytes = EncodedBytes(head.encoding, head.n, head.k);
  const std::vector<std::byte> before(head.panels, head.panels + head_bytes);
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  EXPECT_EQ(std::memcmp(before.data(), head.panels, head_bytes), 0);
  EXPECT_EQ((*model)->tokenizer_spec().tokens.size(), kMinRandomVocab);
  std::remove(path.c_str());
}

// ---- B059: sizes and offsets that wrap round

TEST(B059, OffsetsAndSizesThatWrapAreRefused) {
  const auto one = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    return Header(1, 0).Tensor("t", dims, type, offset).Data(64);
  };
  const uint64_t k32 = uint64_t{1} << 32;
  // The data section of these files begins at 96: an offset of 2^64 - 64 would wrap to byte 32.
  ExpectEachRefusedWithItsOwnMessage({
      {"offset 2^40", one({4}, kF32, uint64_t{1} << 40), {"'t'", "1099511627776", "has 64"}},
      {"offset 2^63", one({4}, kF32, uint64_t{1} << 63), {"9223372036854775808"}},
      {"offset 2^64-32", one({4}, kF32, ~uint64_t{0} - 31), {"18446744073709551584"}},
      {"start + offset wraps", one({4}, kF32, ~uint64_t{0} - 63), {"18446744073709551552"}},
      {"offset at the end", one({4}, kF32, 64), {"offset 64"}},
      {"unaligned", one({4}, kF32, 4), {"offset 4", "multiple of 32"}},
      {"product 2^64", one({k32, k32}, kF32, 0), {"2^64 values"}},
      {"product 2^64 + 4", one({4, (uint64_t{1} << 62) + 1}, kF32, 0), {"2^64 values"}},
      {"bytes past 2^64", one({uint64_t{1} << 62, 2}, kF32, 0), {"over 2^64"}},
      {"bytes wrap to 16", one({(uint64_t{1} << 62) + 4}, kF32, 0), {"over 2^64 bytes at"}},
      {"one value too many", one({17}, kF32, 0), {"needs 68"}},
  });
}

TEST(B059, OverlappingTensorsAreRefused) {
  ExpectEachRefusedWithItsOwnMessage({
      {"the same place",
       Header(2, 0).Tensor("a", {8}, kF32, 0).Tensor("b", {8}, kF32, 0).Data(64),
       {"'a'", "'b'", "within"}},
      {"tail in head",
       Header(2, 0).Tensor("high", {8}, kF32, 32).Tensor("low", {9}, kF32, 0).Data(64),
       {"'high' begins at offset 32", "'low', which ends at 36"}},
      {"one within another",
       Header(2, 0).Tensor("inner", {1}, kF32, 32).Tensor("outer", {24}, kF32, 0).Data(96),
       {"'inner'", "'outer'"}},
  });
}

TEST(B059, CountsAndLengthsPastTheFileAreRefusedBeforeMemoryIsTaken) {
  const uint64_t huge = 1'000'000'000'000'000'000;
  ExpectEachRefusedWithItsOwnMessage({
      {"10^18 keys", Header(0, huge), {"key count is 1000000000000000000", "at most 0"}},
      {"10^18 tensors", Header(huge, 0), {"tensor count is 1000000000000000000"}},
      {"2^64-1 keys", Header(0, ~uint64_t{0}).Data(100), {"18446744073709551615"}},
      {"10^18 numbers",
       Header(0, 1).PutString("a").Put(kTypeArray).Put(kTypeInt32).Put(huge).Data(64),
       {"'a'", "length", "1000000000000000000"}},
      {"10^18 strings",
       Header(0, 1).PutString("s").Put(kTypeArray).Put(kTypeString).Put(huge).Data(64),
       {"'s'", "1000000000000000000"}},
      {"2^64-1 bytes of string",
       Header(0, 1).PutString("s").Put(kTypeString).Put(~uint64_t{0}).Data(64),
       {"'s'", "needs 18446744073709551615"}},
      {"string one byte too long",
       Header(0, 1).PutString("s").Put(kTypeString).Put<uint64_t>(4).PutText("abc"),
       {"needs 4 bytes", "file has 48"}},
      {"key name too long", Header(0, 1).Put(huge).Data(64), {"key 0 has length"}},
  });
}

// A file of 4 GiB, of which nothing but its beginning is ever touched.
TEST(B059, AnArrayWith4GiBOfStringsIsRefusedBeforeMemoryIsTaken) {
  constexpr uint64_t kLength = uint64_t{1} << 32;
  RawFile file = Header(0, 1).PutString("s").Put(kTypeArray).Put(kTypeString).Put<uint64_t>(1);
  file.Put(kLength);
  const size_t bytes = file.bytes().size() + kLength;
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  std::memcpy(at, file.bytes().data(), file.bytes().size());
  const auto parsed = GgufFile::Parse({static_cast<const std::byte*>(at), bytes}, "large");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().message,
            "large: array of key 's' holds 4294967296 bytes of strings, must be at most "
            "4294967295");
  munmap(at, bytes);
}

// ---- B060: tiny files that are wrong in one field

TEST(B060, TinyBadFilesAreEachRefusedWithTheirOwnMessage) {
  const auto alignment = [](uint32_t value) {
    return Header(0, 1).PutString("general.alignment").Put(kTypeUint32).Put(value);
  };
  const auto dims = [](uint32_t count) {
    RawFile file = Header(1, 0).PutString("t").Put(count);
    for (int i = 0; i < 9; ++i) file.Put<uint64_t>(1);
    return file.Put(kF32).Put<uint64_t>(0).Data(32);
  };
  const auto key = [](std::string_view name) {
    return RawFile().PutString(name).Put(kTypeUint32).Put<uint32_t>(1);
  };
  const auto with = [](RawFile file, const RawFile& more) {
    file.PutText({reinterpret_cast<const char*>(more.bytes().data()), more.bytes().size()});
    return file;
  };
  const RawFile no_keys = RawFile().Put<uint64_t>(0).Put<uint64_t>(0);
  ExpectEachRefusedWithItsOwnMessage({
      {"dim 0", Header(1, 0).Tensor("t", {4, 0}, kF32, 0).Data(32), {"dimension 1 of 0"}},
      {"first dim 0", Header(1, 0).Tensor("t", {0, 4}, kF32, 0).Data(32), {"dimension 0 of 0"}},
      {"no dims", Header(1, 0).Tensor("t", {}, kF32, 0).Data(32), {"0 dimensions"}},
      {"5 dims", dims(5), {"5 dimensions, must be 1 to 4"}},
      {"9 dims", dims(9), {"9 dimensions"}},
      {"2^32-1 dims", dims(0xFFFF'FFFF), {"4294967295 dimensions"}},
      {"alignment 0", alignment(0), {"general.alignment", "is 0"}},
      {"alignment 3", alignment(3), {"is 3, must be a power of two"}},
      {"alignment 2^30", alignment(1u << 30), {"1073741824", "65536"}},
      {"alignment text",
       Header(0, 1).PutString("general.alignment").Put(kTypeString).PutString("32"),
       {"general.alignment", "another type"}},
      {"type 99", Header(1, 0).Tensor("t", {4}, 99, 0).Data(32), {"type 99"}},
      {"type 2^32-1", Header(1, 0).Tensor("t", {4}, 0xFFFF'FFFF, 0).Data(32), {"4294967295"}},
      {"row not whole blocks", Header(1, 0).Tensor("t", {33}, 8, 0).Data(64), {"33", "Q8_0"}},
      {"empty key", with(Header(0, 1), key("")), {"key 0 has length 0"}},
      {"empty tensor name", Header(1, 0).Tensor("", {4}, kF32, 0).Data(32), {"tensor 0"}},
      {"long tensor name",
       Header(1, 0).Tensor(std::string(65, 'n'), {4}, kF32, 0).Data(32),
       {"length 65"}},
      {"same key twice",
       with(with(with(Header(0, 3), key("k")), key("j")), key("k")),
       {"key 'k' stands twice (entries 0 and 2)"}},
      {"same tensor twice",
       Header(2, 0).Tensor("t", {4}, kF32, 0).Tensor("t", {4}, kF32, 32).Data(64),
       {"tensor 't' stands twice"}},
      {"version 1", with(RawFile().PutText("GGUF").Put<uint32_t>(1), no_keys), {"version is 1"}},
      {"version 99", with(RawFile().PutText("GGUF").Put<uint32_t>(99), no_keys), {"99, must be"}},
      {"version 0", with(RawFile().PutText("GGUF").Put<uint32_t>(0), no_keys), {"version is 0"}},
      {"byte-swapped version",
       with(RawFile().PutText("GGUF").Put<uint32_t>(3u << 24), no_keys),
       {"big-endian"}},
      {"byte-swapped magic",
       with(RawFile().PutText("FUGG").Put<uint32_t>(3), no_keys),
       {"magic is 'FUGG'"}},
      {"value type 13",
       Header(0, 1).PutString("k").Put<uint32_t>(13).Put<uint64_t>(0),
       {"'k'", "value type 13"}},
      {"bool 2", Header(0, 1).PutString("k").Put<uint32_t>(7).Put<uint8_t>(2), {"bool 2"}},
      {"array of arrays",
       Header(0, 1)
           .PutString("k")
           .Put(kTypeArray)
           .Put(kTypeArray)
           .Put<uint64_t>(1)
           .Put(uint64_t{0}),
       {"array of arrays"}},
      {"array of unknown",
       Header(0, 1).PutString("k").Put(kTypeArray).Put<uint32_t>(77).Put<uint64_t>(0),
       {"array of key 'k'", "77"}},
      {"u64 array past i64",
       Header(0, 1)
           .PutString("k")
           .Put(kTypeArray)
           .Put<uint32_t>(10)
           .Put<uint64_t>(1)
           .Put(~uint64_t{0}),
       {"below 2^63"}},
      {"bool array of 2",
       Header(0, 1)
           .PutString("k")
           .Put(kTypeArray)
           .Put<uint32_t>(7)
           .Put<uint64_t>(2)
           .Put<uint8_t>(1)
           .Put<uint8_t>(2),
       {"array of key 'k' is bool 2, must be 0 or 1"}},
  });
}

}  // namespace
}  // namespace kvrm
