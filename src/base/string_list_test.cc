#include "base/string_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace kvrm {
namespace {

std::vector<std::string> TextsOf(const StringList& list) {
  std::vector<std::string> texts;
  for (const std::string_view text : list) texts.emplace_back(text);
  return texts;
}

TEST(StringList, HoldsWhatAVectorOfStringsWouldHold) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> texts;
    StringList list;
    for (int step = 0; step < 200; ++step) {
      if (random() % 10 == 0) {
        const size_t count = random() % (texts.size() + 4);
        texts.resize(count);
        list.resize(count);
      } else {
        texts.emplace_back(random() % 20, static_cast<char>(random() % 256));
        list.push_back(texts.back());
      }
      ASSERT_EQ(list.size(), texts.size());
    }
    EXPECT_EQ(TextsOf(list), texts);
    EXPECT_EQ(list, StringList(texts));
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(list[i], texts[i]);
  }
}

TEST(StringList, BytesWithZeroAmongThemAreKept) {
  const std::string text("a\0b", 3);
  const StringList list{"", text, ""};
  EXPECT_EQ(TextsOf(list), (std::vector<std::string>{"", text, ""}));
  EXPECT_EQ(list.bytes(), 3u);
}

TEST(StringList, AStringOfItsOwnCanBeAppended) {
  StringList list{"a string of some length"};
  for (int i = 0; i < 100; ++i) list.push_back(list[0]);
  EXPECT_EQ(list[100], "a string of some length");
}

TEST(StringList, AStringIsFoundByItsText) {
  const StringList list{"a", "bc", "", "bc"};
  EXPECT_EQ(std::ranges::find(list, std::string_view("bc")) - list.begin(), 1);
  EXPECT_EQ(std::ranges::find(list, std::string_view("x")), list.end());
}

TEST(StringList, AnEmptiedListIsAsNew) {
  StringList list{"a", "b"};
  list.clear();
  EXPECT_EQ(list, StringList());
  EXPECT_TRUE(list.empty());
  list.push_back("c");
  EXPECT_EQ(list, StringList{"c"});
}

}  // namespace
}  // namespace kvrm
