#include "tests/golden/golden_case.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstring>
#include <fstream>
#include <iterator>

namespace kvrm::testing {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

std::string GoldenPath(const std::string& family, const std::string& file) {
  return std::string(KVRM_SOURCE_DIR) + "/tests/data/golden/" + family + "/" + file;
}

GoldenCase ReadGoldenCase(const std::string& family) {
  GoldenCase golden;
  const auto json = boost::json::parse(ReadFile(GoldenPath(family, "golden.json")));
  for (const auto& id : json.at("ids").as_array()) golden.ids.push_back(id.to_number<TokenId>());
  golden.prompt = json.at("prompt").to_number<uint32_t>();
  golden.max_abs_logit = json.at("max_abs_logit").to_number<float>();
  const std::string bytes = ReadFile(GoldenPath(family, "logits.bin"));
  golden.logits.resize(bytes.size() / sizeof(float));
  std::memcpy(golden.logits.data(), bytes.data(), golden.logits.size() * sizeof(float));
  EXPECT_EQ(golden.logits.size() % (golden.ids.size() - 1), 0u) << family;
  return golden;
}

}  // namespace kvrm::testing
