#include "hub/blob_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace kvrm {
namespace {

namespace fs = std::filesystem;

// Of "hello\n", by sha256sum and `git hash-object`.
constexpr char kText[] = "hello\n";
constexpr char kSha256[] = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
constexpr char kGitBlob[] = "ce013625030ba8dba906f756967f9e9ca394464a";
constexpr uint64_t kBytes = 6;

class Blob : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "kvrm_blob_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
    path_ = dir_ + "/blob";
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::unique_ptr<BlobWriter> Open(const std::string& name) {
    return std::move(BlobWriter::Open(path_, name, kBytes).value());
  }
  std::string Text(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string dir_, path_;
};

TEST_F(Blob, BothKindsOfChecksumAreHeldAndANameThatIsNoneIsNot) {
  for (const char* name : {kSha256, kGitBlob, "any-name"}) {
    const auto writer = Open(name);
    ASSERT_TRUE(writer->Write({kText, kBytes}).ok());
    const Status finished = writer->Finish();
    EXPECT_TRUE(finished.ok()) << name;
    EXPECT_EQ(Text(path_), kText);
    EXPECT_FALSE(fs::exists(path_ + ".incomplete"));
    fs::remove(path_);
  }
}

TEST_F(Blob, AnotherWriterGoesOnWhereTheFirstWasStopped) {
  ASSERT_TRUE(Open(kSha256)->Write({kText, 2}).ok());
  const auto writer = Open(kSha256);
  EXPECT_EQ(writer->written(), 2u);
  EXPECT_FALSE(writer->whole());
  ASSERT_TRUE(writer->Write({kText + 2, kBytes - 2}).ok());
  EXPECT_TRUE(writer->Finish().ok());
  EXPECT_EQ(Text(path_), kText);
}

TEST_F(Blob, WrongBytesAreRemovedAndBothChecksumsAreNamed) {
  const auto writer = Open(kSha256);
  ASSERT_TRUE(writer->Write({"jello\n", kBytes}).ok());
  const Status finished = writer->Finish();
  ASSERT_FALSE(finished.ok());
  EXPECT_NE(finished.error().message.find(kSha256), std::string::npos);
  EXPECT_NE(finished.error().message.find("removed"), std::string::npos);
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_FALSE(fs::exists(path_ + ".incomplete"));
}

TEST_F(Blob, MoreThanWasAnnouncedIsRefusedAndAnOverlongRestIsBegunAnew) {
  EXPECT_FALSE(Open(kSha256)->Write({"hello\n\n", kBytes + 1}).ok());
  std::ofstream(path_ + ".incomplete") << "longer than that";
  const auto writer = Open(kSha256);
  EXPECT_EQ(writer->written(), 0u);
  ASSERT_TRUE(writer->Write({kText, kBytes}).ok());
  EXPECT_TRUE(writer->Finish().ok());
}

TEST_F(Blob, AFileThatTheDiskCannotHoldIsRefusedWithBothNumbers) {
  const auto writer = BlobWriter::Open(path_, kSha256, uint64_t{1} << 60);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().kind, ErrorKind::kNoRoom);
  EXPECT_NE(writer.error().message.find("1152921504606846976 bytes are to come"),
            std::string::npos);
}

TEST_F(Blob, ALockIsHeldUntilItGoes) {
  int waits = 0;
  const auto count = [&waits] { ++waits; };
  {
    const auto lock = FileLock::Take(dir_ + "/lock", count).value();
  }
  {
    const auto lock = FileLock::Take(dir_ + "/lock", count).value();
  }
  EXPECT_EQ(waits, 0);
  EXPECT_FALSE(FileLock::Take(dir_ + "/no/lock", count).ok());
}

}  // namespace
}  // namespace kvrm
