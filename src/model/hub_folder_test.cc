#include "model/hub_folder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace kvrm {
namespace {

namespace fs = std::filesystem;

// A folder of a configuration and one file with one number in it; what lies beside them is wrong.
class HubFolderFiles : public ::testing::Test {
 protected:
  HubFolderFiles() {
    folder_ = fs::path(::testing::TempDir()) /
              ("kvrm_hub_folder_" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    Write("config.json", R"({"model_type": "llama", "tie_word_embeddings": false})");
    const std::string header = R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
    std::string bytes(sizeof(uint64_t), '\0');
    const uint64_t length = header.size();
    std::memcpy(bytes.data(), &length, sizeof length);
    Write("model.safetensors", bytes + header + std::string(4, '\0'));
  }
  ~HubFolderFiles() override { fs::remove_all(folder_); }

  void Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::string Refused() const {
    const auto file = OpenHubFolder(folder_.string());
    EXPECT_FALSE(file.ok());
    return file.ok() ? "" : file.error().message;
  }

  fs::path folder_;
};

TEST_F(HubFolderFiles, AHeadOfItsOwnMustBeThere) {
  EXPECT_EQ(Refused(), folder_.string() +
                           ": tensor 'lm_head.weight' is missing, though config.json says that "
                           "the head is not the embedding");
}

TEST_F(HubFolderFiles, ATensorOfTheIndexMustBeInOneOfItsFiles) {
  Write("model.safetensors.index.json",
        R"({"weight_map": {"a": "model.safetensors", "b\n": "model.safetensors"}})");
  EXPECT_EQ(Refused(),
            Path("model.safetensors.index.json") + R"(: tensor 'b\x0a' is in none of 1 files)");
}

TEST_F(HubFolderFiles, WhatIsMissingIsNamedByItsPath) {
  Write("model.safetensors.index.json", R"({"weight_map": {"a": "absent.safetensors"}})");
  EXPECT_NE(Refused().find(Path("absent.safetensors")), std::string::npos) << Refused();
  fs::remove(folder_ / "model.safetensors.index.json");
  fs::remove(folder_ / "model.safetensors");
  EXPECT_NE(Refused().find(Path("model.safetensors")), std::string::npos) << Refused();
  fs::remove(folder_ / "config.json");
  EXPECT_NE(Refused().find(Path("config.json")), std::string::npos) << Refused();
}

// From the one that is read last to the one that is read first.
TEST_F(HubFolderFiles, EachReadersRefusalNamesItsFile) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json",
                           "generation_config.json", "config.json"}) {
    Write(name, "nonsense");
    const std::string refused = Refused();
    EXPECT_TRUE(refused.starts_with(Path(name) + ": ")) << refused;
  }
}

}  // namespace
}  // namespace kvrm
