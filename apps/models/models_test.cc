#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "model/random_model.h"
#include "models/installed_models.h"
#include "models/package_models.h"

namespace kvrm::cli {
namespace {

namespace fs = std::filesystem;

TEST(PackageModels, TheDefaultModelIsOneOfThem) {
  ASSERT_FALSE(PackageModels().empty());
  EXPECT_EQ(PackageModels().front().file, kDefaultModel);
  for (const PackageModel& model : PackageModels()) {
    EXPECT_FALSE(model.about.empty() || model.license.empty() || model.bytes == 0) << model.name;
    EXPECT_EQ(model.sha256.size(), 64u) << model.name;
    ASSERT_FALSE(model.packages.empty()) << model.name;
    for (const std::string& package : model.packages) {
      EXPECT_NE(package.find("=="), std::string::npos) << package;
    }
  }
}

class Installed : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "kvrm_installed_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_ + "/models");
  }
  void TearDown() override { fs::remove_all(dir_); }
  void Write(const std::string& path) {
    fs::create_directories(fs::path(dir_ + path).parent_path());
    const auto bytes = WriteRandomModel({});
    std::ofstream(dir_ + path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  std::vector<InstalledModel> Found() {
    return FindInstalledModels({dir_ + "/models", dir_ + "/hub"});
  }
  std::string dir_;
};

TEST_F(Installed, EachNameIsOneThatFindModelFinds) {
  const std::string snapshot = "/hub/models--o--r/snapshots/" + std::string(40, 'c');
  Write("/models/one.gguf");
  Write(snapshot + "/m-Q8_0.gguf");
  Write(snapshot + "/other-Q8_0.gguf");
  fs::create_directories(dir_ + "/hub/models--o--r/refs");
  std::ofstream(dir_ + "/hub/models--o--r/refs/main") << std::string(40, 'c');
  const auto models = Found();
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0].name, "one");
  EXPECT_EQ(models[1].name, "o/r:Q8_0");
  EXPECT_EQ(models[2].name, "o/r:other-Q8_0.gguf");
  for (const InstalledModel& model : models) {
    EXPECT_EQ(FindModel(model.name, {dir_ + "/models", dir_ + "/hub"}).value(), model.path);
    EXPECT_EQ(model.family, "llama");
    EXPECT_EQ(model.bytes, fs::file_size(model.path));
    EXPECT_EQ(model.missing, "");
    EXPECT_FALSE(model.types.empty());
  }
}

TEST_F(Installed, EachSnapshotIsListedOnceUnderARevisionThatLeadsToIt) {
  const std::string repo = "/hub/models--o--r", one(40, '1'), two(40, '2'), three(40, '3');
  for (const std::string& commit : {one, two, three}) {
    Write(repo + "/snapshots/" + commit + "/m-Q8_0.gguf");
  }
  fs::create_directories(dir_ + repo + "/refs");
  std::ofstream(dir_ + repo + "/refs/main") << one;
  std::ofstream(dir_ + repo + "/refs/v1") << one;
  std::ofstream(dir_ + repo + "/refs/v2") << two;
  std::vector<std::string> names;
  for (const InstalledModel& model : Found()) {
    names.push_back(model.name);
    EXPECT_EQ(FindModel(model.name, {dir_ + "/models", dir_ + "/hub"}).value(), model.path);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"o/r:Q8_0", "o/r@v2:Q8_0", "o/r@" + three + ":Q8_0"}));
}

TEST_F(Installed, WhatCannotBeRunIsListedWithTheReason) {
  std::ofstream(dir_ + "/models/broken.gguf") << "no model";
  std::ofstream(dir_ + "/models/notes.txt") << "no model";
  const auto models = Found();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].name, "broken");
  EXPECT_NE(models[0].missing, "");
}

}  // namespace
}  // namespace kvrm::cli
