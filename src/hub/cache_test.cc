#include "hub/cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace kvrm {
namespace {

namespace fs = std::filesystem;

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "kvrm_cache_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string dir_;
  const std::string commit_ = std::string(40, 'c');
};

TEST_F(Cache, LinksLeadFromSnapshotsToBlobsAtAnyDepth) {
  const RepoCache cache(dir_, "org/repo");
  EXPECT_EQ(cache.folder(), dir_ + "/models--org--repo");
  EXPECT_EQ(cache.Lock("e"), dir_ + "/.locks/models--org--repo/e.lock");
  for (const std::string path : {"m.gguf", "a/b/m.gguf"}) {
    ASSERT_TRUE(cache.MakeFolders(commit_, path).ok());
    std::ofstream(cache.Blob("e")) << "bytes";
    ASSERT_TRUE(cache.Link(commit_, path, "e").ok());
    const fs::path link = fs::path(cache.Snapshot(commit_)) / path;
    EXPECT_TRUE(fs::is_regular_file(link)) << path;
    EXPECT_EQ(fs::read_symlink(link).string(),
              path == "m.gguf" ? "../../blobs/e" : "../../../../blobs/e");
  }
  EXPECT_EQ(cache.Files(commit_), (std::vector<std::string>{"a/b/m.gguf", "m.gguf"}));
  EXPECT_EQ(CachedRepos(dir_), std::vector<std::string>{"org/repo"});
}

TEST_F(Cache, ALinkWhoseBlobIsGoneIsNoFileAndIsMadeAnew) {
  const RepoCache cache(dir_, "org/repo");
  ASSERT_TRUE(cache.MakeFolders(commit_, "m.gguf").ok());
  ASSERT_TRUE(cache.Link(commit_, "m.gguf", "gone").ok());
  EXPECT_TRUE(cache.Files(commit_).empty());
  std::ofstream(cache.Blob("there")) << "bytes";
  ASSERT_TRUE(cache.Link(commit_, "m.gguf", "there").ok());
  EXPECT_EQ(cache.Files(commit_), std::vector<std::string>{"m.gguf"});
}

TEST_F(Cache, TheCommitIsWhatWasSetAndNothingElseIsTakenForOne) {
  const RepoCache cache(dir_, "org/repo");
  EXPECT_EQ(cache.Commit("main"), "");
  ASSERT_TRUE(cache.SetCommit("main", commit_).ok());
  EXPECT_EQ(cache.Commit("main"), commit_);
  EXPECT_EQ(fs::file_size(dir_ + "/models--org--repo/refs/main"), commit_.size());
  std::ofstream(dir_ + "/models--org--repo/refs/main") << "../../elsewhere";
  EXPECT_EQ(cache.Commit("main"), "");
}

TEST_F(Cache, EachRevisionIsAFileOfRefsAndACommitStandsForItself) {
  const RepoCache cache(dir_, "org/repo");
  const std::string other(40, 'd'), third(40, 'e');
  ASSERT_TRUE(cache.SetCommit("refs/pr/3", commit_).ok());
  EXPECT_TRUE(fs::is_regular_file(dir_ + "/models--org--repo/refs/refs/pr/3"));
  EXPECT_EQ(cache.Commit("refs/pr/3"), commit_);
  EXPECT_EQ(cache.Commit("main"), "");
  EXPECT_EQ(cache.Commit(other), "") << "no such snapshot";
  for (const std::string& commit : {commit_, other, third}) {
    ASSERT_TRUE(cache.MakeFolders(commit, "m.gguf").ok());
  }
  ASSERT_TRUE(cache.SetCommit(other, other).ok());
  EXPECT_FALSE(fs::exists(dir_ + "/models--org--repo/refs/" + other));
  EXPECT_EQ(cache.Commit(other), other);
  ASSERT_TRUE(cache.SetCommit("main", third).ok());
  ASSERT_TRUE(cache.SetCommit("v1", third).ok());
  EXPECT_EQ(cache.Revisions(), (std::vector<std::string>{"main", "refs/pr/3", other}));
}

TEST_F(Cache, TheEnvironmentSaysWhereItIs) {
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
  setenv("HOME", "/home/u", 1);
  EXPECT_EQ(HubCacheDir(), "/home/u/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(HubCacheDir(), "/x/huggingface/hub");
  setenv("HF_HOME", "/h", 1);
  EXPECT_EQ(HubCacheDir(), "/h/hub");
  EXPECT_EQ(HubHome(), "/h");
  setenv("HF_HUB_CACHE", "/c", 1);
  EXPECT_EQ(HubCacheDir(), "/c");
}

}  // namespace
}  // namespace kvrm
