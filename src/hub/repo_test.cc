#include "hub/repo.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace kvrm {
namespace {

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string Chosen(const std::vector<std::string>& files, const std::string& quant) {
  const auto chosen = ChooseFiles(files, quant);
  if (!chosen.ok()) return "error: " + chosen.error().message;
  return (chosen->is_folder ? "folder: " : "") + Joined(chosen->files);
}

TEST(RepoSpec, TwoNamesARevisionAndAQuantAreRead) {
  EXPECT_EQ(ParseRepoSpec("org/a.b-c_1").value().repo, "org/a.b-c_1");
  EXPECT_EQ(ParseRepoSpec("org/repo").value().quant, "");
  EXPECT_EQ(ParseRepoSpec("org/repo:Q8_0").value().quant, "Q8_0");
  EXPECT_EQ(ParseRepoSpec("org/repo:dir/m.gguf").value().quant, "dir/m.gguf");
  EXPECT_EQ(ParseRepoSpec("org/repo").value().Revision(), "main");
  const RepoSpec spec = ParseRepoSpec("org/repo@refs/pr/3:Q8_0").value();
  EXPECT_EQ(spec.repo, "org/repo");
  EXPECT_EQ(spec.Revision(), "refs/pr/3");
  EXPECT_EQ(spec.quant, "Q8_0");
  EXPECT_EQ(spec.Name(), "org/repo@refs/pr/3");
  EXPECT_EQ(spec.Text(), "org/repo@refs/pr/3:Q8_0");
  EXPECT_EQ(ParseRepoSpec("org/repo:m@x.gguf").value().revision, "");
}

TEST(RepoSpec, WhatCouldBeAnotherPathOrRequestIsRefused) {
  for (const std::string text :
       {"",       "repo",        "a/b/c",    "/b",        "a/",         "../b",
        "a/..",   ".",           "a/b:",     "a/b:../m",  "a/b c",      "a/b?x=1",
        "a/b#c",  "a--b/c",      "a/b--c",   "a/b\nX: y", "a/\xc3\xa9", "https://h/a/b",
        "a/b@",   "a/b@../main", "a/b@/x",   "a/b@x/",    "a/b@x y",    "a/b@x@y",
        "a/b@x^", "a/b@x?y",     "a/b@x\ny", "a/b@x\\y",  "a@x/b"}) {
    EXPECT_FALSE(ParseRepoSpec(text).ok()) << text;
  }
  EXPECT_FALSE(ParseRepoSpec("a/" + std::string(97, 'b')).ok());
  EXPECT_TRUE(IsRevision(std::string(200, 'r')));
  EXPECT_FALSE(IsRevision(std::string(201, 'r')));
}

TEST(SafePath, NothingLeadsOutOfTheFolder) {
  for (const std::string path : {"a", "a/b.c", "a b", "...", "\xc3\xa9"}) {
    EXPECT_TRUE(IsSafePath(path)) << path;
  }
  for (const std::string& path :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"),
        std::string("../a"), std::string("a/../b"), std::string("."), std::string("a/."),
        std::string("a\\b"), std::string("C:a"), std::string("a\nb"), std::string("a\0b", 3),
        std::string(1025, 'a')}) {
    EXPECT_FALSE(IsSafePath(path)) << path;
  }
}

// One file a check, named after it.
TEST(RepoListing, EachBrokenAnswerIsRefusedWithItsOwnMessage) {
  const std::filesystem::path folder =
      std::filesystem::path(KVRM_SOURCE_DIR) / "tests/fuzz/hub_listing";
  const std::pair<const char*, const char*> cases[] = {
      {"no_object", "no JSON object"},       {"no_sha", "has sha ''"},
      {"short_sha", "has sha 'abc'"},        {"no_siblings", "has no siblings"},
      {"no_rfilename", "without rfilename"}, {"leads_out", "holds '../m.gguf'"},
      {"absolute_path", "holds '/m.gguf'"},  {"nested_too_deep", "no JSON object"},
  };
  for (const auto& [name, message] : cases) {
    std::ifstream file(folder / (std::string(name) + ".json"));
    ASSERT_TRUE(file.is_open()) << name;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto listing = ParseRepoListing(text);
    ASSERT_FALSE(listing.ok()) << name;
    EXPECT_NE(listing.error().message.find(message), std::string::npos)
        << name << ": " << listing.error().message;
  }
}

TEST(RepoListing, FilesAreSorted) {
  const std::string commit(40, 'a');
  const auto listing = ParseRepoListing(R"({"siblings": [{"rfilename": "b"}, {"rfilename": "a/c"}],
                                            "sha": ")" +
                                        commit + R"(", "other": 1})");
  ASSERT_TRUE(listing.ok()) << listing.error().message;
  EXPECT_EQ(listing->commit, commit);
  EXPECT_EQ(Joined(listing->files), "a/c b");
}

TEST(Choice, TheQuantIsAWordOfThePathInAnyCase) {
  const std::vector<std::string> files = {"README.md",       "m-IQ4_NL.gguf",     "m-Q4_K_M.gguf",
                                          "m-Q4_K_S.gguf",   "m-UD-Q2_K_XL.gguf", "m.q8_0.gguf",
                                          "mmproj-F16.gguf", "m_BF16.gguf"};
  EXPECT_EQ(Chosen(files, "q4_k_s"), "m-Q4_K_S.gguf");
  EXPECT_EQ(Chosen(files, "Q8_0"), "m.q8_0.gguf");
  EXPECT_EQ(Chosen(files, "Q2_K_XL"), "m-UD-Q2_K_XL.gguf");
  EXPECT_EQ(Chosen(files, "BF16"), "m_BF16.gguf");
  EXPECT_EQ(Chosen(files, "m.q8_0.gguf"), "m.q8_0.gguf");
  for (const std::string absent : {"Q4_K", "Q4_NL", "F16", "Q8"}) {
    EXPECT_EQ(Chosen(files, absent),
              "error: no GGUF file of '" + absent +
                  "'; there are IQ4_NL, Q4_K_M, Q4_K_S, Q2_K_XL, Q8_0, BF16");
  }
}

TEST(Choice, WithoutAQuantItIsQ4KMThenTheFirst) {
  EXPECT_EQ(Chosen({"a-Q2_K.gguf", "b-Q4_K_M.gguf"}, ""), "b-Q4_K_M.gguf");
  EXPECT_EQ(Chosen({"a-Q2_K.gguf", "b-Q8_0.gguf", "config.json", "model.safetensors"}, ""),
            "a-Q2_K.gguf");
}

TEST(Choice, ASplitModelIsAllOfItsPartsAndTheFirstIsTheOneToOpen) {
  const std::vector<std::string> files = {
      "Q8_0/m-00001-of-00002.gguf", "Q8_0/m-00002-of-00002.gguf", "m-Q4_0-00001-of-00002.gguf"};
  EXPECT_EQ(Chosen(files, "Q8_0"), "Q8_0/m-00001-of-00002.gguf Q8_0/m-00002-of-00002.gguf");
  EXPECT_EQ(Chosen(files, "Q4_0"), "error: part 'm-Q4_0-00002-of-00002.gguf' is missing");
}

TEST(Choice, WhereThereIsNoGgufTheFolderIsTakenWithoutOtherFiles) {
  EXPECT_EQ(Chosen({"config.json", "generation_config.json", "model.safetensors", "onnx/m.onnx",
                    "pytorch_model.bin", "tokenizer.json"},
                   ""),
            "folder: config.json generation_config.json tokenizer.json model.safetensors");
  EXPECT_EQ(Chosen({"chat_template.jinja", "config.json", "model-00001-of-00002.safetensors",
                    "model.safetensors.index.json"},
                   ""),
            "folder: config.json chat_template.jinja model.safetensors.index.json");
  EXPECT_NE(Chosen({"config.json", "model.safetensors"}, "Q8_0").find("nor any other"),
            std::string::npos);
  EXPECT_NE(Chosen({"pytorch_model.bin", "config.json"}, "").find("neither GGUF files nor"),
            std::string::npos);
}

}  // namespace
}  // namespace kvrm
