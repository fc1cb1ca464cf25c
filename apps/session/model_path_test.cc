#include "session/model_path.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace kvrm::cli {
namespace {

namespace fs = std::filesystem;

class ModelPath : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "kvrm_models_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string Install(const std::string& name) {
    std::ofstream(dir_ + "/" + name) << "x";
    return dir_ + "/" + name;
  }
  std::string Found(const std::string& name) {
    const auto path = FindModel(name, {dir_, dir_ + "/hub"});
    return path.ok() ? *path : "error: " + path.error().message;
  }
  std::string dir_;
};

TEST_F(ModelPath, APathWinsOverInstalledNames) {
  const std::string path = Install("a.bin");
  EXPECT_EQ(Found(path), path);
}

TEST_F(ModelPath, AnInstalledModelIsFoundByNameWithoutEndingInAnyCaseOrByUniquePrefix) {
  const std::string path = Install("SmolLM2-135M.Q4_1.gguf");
  for (const char* name :
       {"SmolLM2-135M.Q4_1.gguf", "SmolLM2-135M.Q4_1", "smollm2-135m.q4_1", "smol", "SMOL"}) {
    EXPECT_EQ(Found(name), path) << name;
  }
}

TEST_F(ModelPath, AnAmbiguousPrefixNamesItsMatchesButAWholeNameIsNotAmbiguous) {
  const std::string one = Install("m.gguf");
  Install("m2.gguf");
  EXPECT_EQ(Found("m"), one);
  Install("n1.gguf");
  Install("n2.gguf");
  EXPECT_NE(Found("n").find("n1.gguf, n2.gguf"), std::string::npos) << Found("n");
}

TEST_F(ModelPath, AbsentModelsSayWhichCommandGetsTheDefault) {
  EXPECT_NE(Found("").find("`tools/get-model`"), std::string::npos) << Found("");
  EXPECT_NE(Found("nope").find("`tools/get-model`"), std::string::npos) << Found("nope");
  const auto missing = FindModel(dir_ + "/nope.gguf", {dir_, dir_ + "/hub"});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().kind, ErrorKind::kNotFound);
}

TEST_F(ModelPath, TheDefaultIsTakenWhereItIsInstalled) {
  const std::string path = Install(kDefaultModel);
  EXPECT_EQ(Found(""), path);
}

TEST_F(ModelPath, AnInstalledFolderIsFoundByNameLikeAFile) {
  fs::create_directories(dir_ + "/SmolLM2-360M");
  EXPECT_NE(Found("smollm2").find("error"), std::string::npos) << "no config.json yet";
  Install("SmolLM2-360M/config.json");
  for (const char* name : {"SmolLM2-360M", "smollm2"}) {
    EXPECT_EQ(Found(name), dir_ + "/SmolLM2-360M") << name;
  }
  EXPECT_EQ(ModelNameOf(dir_ + "/SmolLM2-360M"), "SmolLM2-360M");
}

TEST_F(ModelPath, ARepositoryOfTheHubCacheIsFoundByItsNameAndCalledByIt) {
  const std::string repo = "hub/models--org--repo", commit(40, 'a');
  EXPECT_NE(Found("org/repo").find("-hf gets it"), std::string::npos) << Found("org/repo");
  fs::create_directories(dir_ + "/" + repo + "/refs");
  fs::create_directories(dir_ + "/" + repo + "/snapshots/" + commit);
  std::ofstream(dir_ + "/" + repo + "/refs/main") << commit;
  const std::string gguf = Install(repo + "/snapshots/" + commit + "/m-Q8_0.gguf");
  EXPECT_EQ(Found("org/repo"), gguf);
  EXPECT_EQ(Found("org/repo:q8_0"), gguf);
  EXPECT_NE(Found("org/repo:Q4_0").find("there are Q8_0"), std::string::npos);
  EXPECT_EQ(ModelNameOf(gguf), "m-Q8_0");
  Install(repo + "/snapshots/" + commit + "/config.json");
  EXPECT_EQ(ModelNameOf(dir_ + "/" + repo + "/snapshots/" + commit), "org/repo");
}

TEST_F(ModelPath, ARevisionOfTheHubCacheIsABranchATagOrACommit) {
  const std::string repo = "hub/models--org--repo", commit(40, 'b');
  fs::create_directories(dir_ + "/" + repo + "/refs/refs/pr");
  fs::create_directories(dir_ + "/" + repo + "/snapshots/" + commit);
  std::ofstream(dir_ + "/" + repo + "/refs/refs/pr/3") << commit;
  const std::string gguf = Install(repo + "/snapshots/" + commit + "/m-Q8_0.gguf");
  EXPECT_EQ(Found("org/repo@refs/pr/3"), gguf);
  EXPECT_EQ(Found("org/repo@" + commit + ":Q8_0"), gguf);
  EXPECT_NE(Found("org/repo").find("org/repo: not in the cache"), std::string::npos);
  EXPECT_NE(Found("org/repo@v2").find("org/repo@v2: not in the cache"), std::string::npos);
}

TEST_F(ModelPath, ADirectoryIsNoModel) {
  EXPECT_NE(Found(dir_).find("a directory"), std::string::npos) << Found(dir_);
}

}  // namespace
}  // namespace kvrm::cli
