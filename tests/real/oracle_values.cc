#include "tests/real/oracle_values.h"

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

// A little-endian .npy of 4-byte values: magic, version, header length, header, data.
template <class T>
std::vector<T> ReadNpy(const std::string& path) {
  const std::string bytes = ReadFile(path);
  EXPECT_EQ(bytes.substr(1, 5), "NUMPY") << path;
  uint16_t header = 0;
  std::memcpy(&header, bytes.data() + 8, 2);
  const size_t begin = size_t{10} + header;
  std::vector<T> values((bytes.size() - begin) / sizeof(T));
  std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(T));
  return values;
}

template <class T>
std::vector<T> Numbers(const boost::json::value& array) {
  std::vector<T> values;
  for (const boost::json::value& v : array.as_array()) {
    values.push_back(v.to_number<T>());
  }
  return values;
}

}  // namespace

OracleCase ReadOracleCase(const std::string& folder, const std::string& name) {
  OracleCase result;
  const boost::json::value all = boost::json::parse(ReadFile(folder + "/cases.json"));
  for (const boost::json::value& c : all.at("cases").as_array()) {
    if (c.at("name").as_string() != name) continue;
    result.name = name;
    result.ids = Numbers<TokenId>(c.at("ids"));
    result.greedy = Numbers<TokenId>(c.at("greedy"));
    result.greedy_gap = Numbers<double>(c.at("greedy_gap"));
    result.max_abs_logit = c.at("max_abs_logit").to_number<double>();
  }
  EXPECT_EQ(result.name, name) << "no such case in " << folder;
  result.positions = ReadNpy<int32_t>(folder + "/" + name + ".positions.npy");
  result.columns = ReadNpy<int32_t>(folder + "/" + name + ".columns.npy");
  result.logits = ReadNpy<float>(folder + "/" + name + ".logits.npy");
  EXPECT_EQ(result.logits.size(), result.positions.size() * result.columns.size());
  return result;
}

}  // namespace kvrm::testing
