#include "server/api_keys.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace kvrm {
namespace {

class KeyFile {
 public:
  explicit KeyFile(const std::string& text)
      : path_(::testing::TempDir() + "api-keys-" + std::to_string(getpid())) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~KeyFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(ApiKeys, EqualMeansEqualAndNothingLess) {
  EXPECT_TRUE(EqualInConstantTime("abc", "abc"));
  for (const char* other : {"", "a", "ab", "abd", "xbc", "abcd", "abcabc", "ABC"}) {
    EXPECT_FALSE(EqualInConstantTime("abc", other)) << other;
  }
  EXPECT_FALSE(EqualInConstantTime("", ""));
}

TEST(ApiKeys, EachKeyIsFoundUnderItsOwnIndex) {
  const auto keys = ApiKeys::Load({"one", "two", "three"}, "");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys->Find("one"), 0u);
  EXPECT_EQ(keys->Find("two"), 1u);
  EXPECT_EQ(keys->Find("three"), 2u);
  for (const char* wrong : {"", "on", "oneone", "tw", "four"}) EXPECT_FALSE(keys->Find(wrong));
  EXPECT_EQ((*keys)[1].name, "key-2");
}

TEST(ApiKeys, FilesGiveNamesAndLimits) {
  const KeyFile file(
      "# team A\nsk-a name=alice max-requests=4 max-priority=5\r\n\n  "
      "\nsk-b\tmax-requests=1\nsk-c");
  const auto keys = ApiKeys::Load({"cli"}, file.path());
  ASSERT_TRUE(keys.ok()) << keys.error().message;
  ASSERT_EQ(keys->size(), 4u);
  const ApiKey& alice = (*keys)[*keys->Find("sk-a")];
  EXPECT_EQ(alice.name, "alice");
  EXPECT_EQ(alice.max_requests, 4u);
  EXPECT_EQ(alice.max_priority, 5);
  const ApiKey& last = (*keys)[*keys->Find("sk-c")];
  EXPECT_EQ(last.name, "key-4");
  EXPECT_EQ(last.max_requests, 0u);
  EXPECT_EQ(last.max_priority, 0);
}

TEST(ApiKeys, WrongLinesAreNamedWithoutTheirSecret) {
  for (const char* line :
       {"sk-secret colour=red", "sk-secret max-requests=0", "sk-secret max-requests=x",
        "sk-secret max-priority=9999999", "sk-secret name=", "sk-secret\x01", "sk-secret lonely"}) {
    std::vector<ApiKey> keys;
    const Status status = ApiKeys::ParseFile("ok\n" + std::string(line), "keys.txt", keys);
    ASSERT_FALSE(status.ok()) << line;
    EXPECT_TRUE(status.error().message.starts_with("keys.txt:2: ")) << status.error().message;
    EXPECT_EQ(status.error().message.find("sk-secret"), std::string::npos);
  }
}

// A file that lost its lines must not turn a closed server into an open one.
TEST(ApiKeys, NoKeyWhereKeysWereMeantIsAnError) {
  const KeyFile empty("# nothing\n");
  EXPECT_FALSE(ApiKeys::Load({}, empty.path()).ok());
  EXPECT_FALSE(ApiKeys::Load({"a"}, empty.path()).ok());
  EXPECT_FALSE(ApiKeys::Load({}, empty.path() + "-absent").ok());
  EXPECT_FALSE(ApiKeys::Load({""}, "").ok());
  EXPECT_FALSE(ApiKeys::Load({"a b"}, "").ok());
  EXPECT_FALSE(ApiKeys::Load({"a", "b", "a"}, "").ok());
  EXPECT_TRUE(ApiKeys::Load({}, "")->empty());
}

}  // namespace
}  // namespace kvrm
