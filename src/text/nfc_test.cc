#include "text/nfc.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "text/utf8.h"

namespace kvrm {
namespace {

std::string NfcOf(const std::string& text) {
  std::string out;
  return NormalizeNfc(text, out) ? out : text;
}

// Marks of five classes; none composes with U+4E2D.
struct Mark {
  char32_t point;
  int combining_class;
};
constexpr Mark kMarks[] = {{0x301, 230}, {0x300, 230}, {0x323, 220}, {0x327, 202},
                           {0x338, 1},   {0x345, 240}, {0x308, 230}};

struct MarkRun {
  std::string as_written, ordered;
};

MarkRun RandomMarks(std::mt19937& random, size_t count) {
  std::vector<Mark> marks(count);
  for (Mark& mark : marks) mark = kMarks[random() % std::size(kMarks)];
  MarkRun run;
  for (const Mark& mark : marks) AppendUtf8(mark.point, run.as_written);
  std::map<int, std::string> by_class;  // each in the order of writing
  for (const Mark& mark : marks) AppendUtf8(mark.point, by_class[mark.combining_class]);
  for (const auto& [combining_class, text] : by_class) run.ordered += text;
  return run;
}

TEST(Nfc, MarksComeInCanonicalOrderHoweverManyThereAre) {
  std::mt19937 random(17);
  for (const size_t count : {1u, 2u, 30u, 63u, 64u, 65u, 66u, 1'024u, 1'025u, 50'000u}) {
    const MarkRun run = RandomMarks(random, count);
    EXPECT_EQ(NfcOf("\u4e2d" + run.as_written + "b"), "\u4e2d" + run.ordered + "b") << count;
    EXPECT_EQ(NfcOf(run.as_written), run.ordered) << count << ", at the very beginning";
  }
}

// U+0F73 is of class 0, but decomposes into marks of 129 and 130; U+0F75 and U+0F81 are like it.
TEST(Nfc, WhatDecomposesIntoMarksCountsAsMarks) {
  const auto repeated = [](std::string_view text, size_t count) {
    std::string result;
    for (size_t i = 0; i < count; ++i) result += text;
    return result;
  };
  struct Unit {
    const char* text;
    size_t of_129, of_130;
  };
  constexpr size_t kCount = 200'000;
  for (const Unit& unit :
       {Unit{"\u0f73", 1, 1}, Unit{"\u0f72\u0f73", 1, 2}, Unit{"\u0f73\u0f72\u0f71", 2, 2}}) {
    const std::string written = repeated(unit.text, kCount);
    const std::string ordered =
        repeated("\u0f71", unit.of_129 * kCount) + repeated("\u0f72", unit.of_130 * kCount);
    EXPECT_TRUE(NfcOf("\u0f40" + written) == "\u0f40" + ordered) << unit.text;
    EXPECT_TRUE(NfcOf(written) == ordered) << unit.text << ", at the very beginning";
  }
}

TEST(Nfc, AStarterTakesTheMarksThatItComposesWithOutOfALongRun) {
  const auto dots = [](size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += "\u0323";
    return text;
  };
  for (const size_t count : {2u, 60u, 70u, 5'000u}) {
    // a and one dot below are U+1EA1; no dot stands in the way of the circumflex: U+1EAD.
    EXPECT_EQ(NfcOf("a" + dots(count) + "\u0302"), "\u1ead" + dots(count - 1)) << count;
    EXPECT_EQ(NfcOf("\u00e2" + dots(count)), "\u1ead" + dots(count - 1)) << count;
  }
}

// Hangul, singletons, exclusions, invalid bytes: a long run elsewhere changes nothing of them.
TEST(Nfc, BothWaysGiveTheSame) {
  const std::vector<std::string> parts = {"e\u0301",
                                          "\u1100\u1161\u11a8",
                                          "\uac00\u11a8",
                                          "\u212a",
                                          "\u0958",
                                          "\u0344",
                                          "A\u030a",
                                          "\xff",
                                          "\xe2\x82",
                                          "\u0301",
                                          "\u0323",
                                          "\u0301\u0323",
                                          "x",
                                          " ",
                                          "\u2126",
                                          "\u1e0b\u0323",
                                          "\u0374\u1fef",
                                          "\ufb1d",
                                          "\U0001d15e",
                                          "\u0f71\u0f72\u0f80",
                                          "\u0f81\u0f73\u0f75"};
  std::mt19937 random(19);
  const std::string long_run = "\u4e2d" + RandomMarks(random, 100).as_written;
  for (int i = 0; i < 5'000; ++i) {
    std::string text;
    const uint32_t count = random() % 12;
    for (uint32_t k = 0; k < count; ++k) text += parts[random() % parts.size()];
    const std::string once = NfcOf(text);
    EXPECT_EQ(NfcOf(text + long_run), once + NfcOf(long_run));
    EXPECT_EQ(NfcOf(once), once) << "what is in NFC stays as it is";
  }
}

}  // namespace
}  // namespace kvrm
