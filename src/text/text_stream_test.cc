#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "text/test_vocabulary.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

const Tokenizer& SmallTokenizer() {
  static const std::unique_ptr<const Tokenizer> tokenizer =
      Tokenizer::Create(testing::MakeSmallVocabulary("gpt-2")).value();
  return *tokenizer;
}

struct Streamed {
  std::string text;
  std::string matched_stop;
  bool operator==(const Streamed&) const = default;
};

// Streams `bytes` in the given parts.
Streamed Stream(const std::vector<std::string>& parts, const std::vector<std::string>& stops) {
  TextStream stream(SmallTokenizer(), stops);
  Streamed result;
  for (const std::string& part : parts) {
    const std::string sent = stream.PushBytes(part);
    EXPECT_TRUE(IsValidUtf8(sent));
    result.text += sent;
  }
  result.text += stream.Finish();
  EXPECT_EQ(stream.stopped(), !stream.matched_stop().empty());
  result.matched_stop = stream.matched_stop();
  return result;
}

std::vector<std::string> CutAtRandom(const std::string& bytes, std::mt19937& random) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = std::min<size_t>(1 + random() % 5, bytes.size() - at);
    parts.push_back(bytes.substr(at, length));
    at += length;
  }
  return parts;
}

// Pushes each part with stops armed or not.
TEST(TextStream, AStopThatIsCompleteWhileUnarmedIsText) {
  const auto stream = [](const std::vector<std::pair<std::string, bool>>& parts) {
    TextStream text(SmallTokenizer(), {"aba"});
    std::string sent;
    for (const auto& [part, armed] : parts) {
      text.ArmStops(armed);
      sent += text.PushBytes(part);
    }
    return sent + text.Finish() + (text.stopped() ? "!" : "");
  };
  EXPECT_EQ(stream({{"xabay", false}, {"z", true}}), "xabayz");
  EXPECT_EQ(stream({{"xab", false}, {"a", true}}), "x!") << "begun unarmed, complete armed";
  EXPECT_EQ(stream({{"xaba", false}, {"ba", true}}), "xab!") << "the end of one begins another";
  EXPECT_EQ(stream({{"xaba", true}, {"ba", false}}), "x!");
}

// B034: stop strings.
TEST(B034, AStopOverSeveralTokensIsFoundAndNothingOfItLeaks) {
  EXPECT_EQ(Stream({"7", " ", "8", " ", "9", " ", "10", " ", "11", " 12"}, {"9 10 11"}),
            (Streamed{"7 8 ", "9 10 11"}));
}

TEST(B034, AStopMayBeginAndEndInTheMiddleOfAToken) {
  EXPECT_EQ(Stream({"one tw", "o thr", "ee four"}, {"two three"}), (Streamed{"one ", "two three"}));
  EXPECT_EQ(Stream({"xxENDyy"}, {"END"}), (Streamed{"xx", "END"}));
}

TEST(B034, OfTwoStopsThatIsTakenWhichIsCompleteFirst) {
  EXPECT_EQ(Stream({"a b", "cd"}, {"bcd", "bc"}), (Streamed{"a ", "bc"}));
  EXPECT_EQ(Stream({"abcd"}, {"abcd", "bc"}), (Streamed{"a", "bc"}));
  EXPECT_EQ(Stream({"abc"}, {"bc", "abc"}), (Streamed{"", "abc"}));
}

TEST(B034, HeldTextIsSentWhenTheStopDoesNotCome) {
  TextStream stream(SmallTokenizer(), {"9 10 11"});
  EXPECT_EQ(stream.PushBytes("8 9 1"), "8 ");
  EXPECT_EQ(stream.PushBytes("2"), "9 12");
  EXPECT_EQ(stream.PushBytes(" 9 10"), " ");
  EXPECT_EQ(stream.Finish(), "9 10");
  EXPECT_FALSE(stream.stopped());
}

TEST(B034, NothingComesAfterAStop) {
  TextStream stream(SmallTokenizer(), {"!"});
  EXPECT_EQ(stream.PushBytes("a!b"), "a");
  EXPECT_EQ(stream.PushBytes("c"), "");
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(stream.matched_stop(), "!");
}

// B036: characters that span tokens.
const char* const kCharacters[] = {
    "\U0001F642",                                  // an emoji
    "\U0001F469\u200D\U0001F469\u200D\U0001F467",  // a family
    "\U0001F1EB\U0001F1F7",                        // a flag
    "x\u0300\u0301y",                              // combining marks
    "\u4f60\u597d\uff0c\u4e16\u754c",              // Chinese
};

TEST(B036, NoReplacementMarkWhenACharacterSpansTokens) {
  for (const std::string text : kCharacters) {
    for (const std::vector<std::string>& stops :
         {std::vector<std::string>{}, std::vector<std::string>{"STOP"}}) {
      TextStream stream(SmallTokenizer(), stops);
      std::string sent;
      for (const TokenId id : SmallTokenizer().Encode(text, SpecialTokens::kAsText)) {
        const std::string piece = stream.Push(id);
        EXPECT_EQ(piece.find(kReplacementCharacter), std::string::npos);
        sent += piece;
      }
      EXPECT_EQ(sent + stream.Finish(), text);
    }
  }
}

TEST(B036, AnInvalidByteIsReplacedOnceTheNextByteShowsIt) {
  TextStream stream(SmallTokenizer(), {});
  EXPECT_EQ(stream.PushBytes("a\xe2\x82"), "a");
  EXPECT_EQ(stream.PushBytes("b"), "\uFFFDb");
  EXPECT_EQ(stream.PushBytes("\xff"), "\uFFFD");
  EXPECT_EQ(stream.PushBytes("\xf0\x9f"), "");
  EXPECT_EQ(stream.Finish(), "\uFFFD");
}

// Expected values: Python's bytes.decode("utf-8", errors="replace").
TEST(B036, ReplacesMaximalSubpartsAsPythonDoes) {
  const std::pair<std::string, std::string> cases[] = {
      {"\xc0\x80", "\uFFFD\uFFFD"},
      {"\xe0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xf0\x9f\x99", "\uFFFD"},
      {"\xf0\x9f\x99x", "\uFFFDx"},
      {"\xe2\x82\xe2\x82\xac", "\uFFFD\u20AC"},
      {"\xf8\x88\x80\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xc3", "\uFFFD"},
      {"a\x80z", "a\uFFFDz"},
      {"\xef\xbf\xbd", "\uFFFD"},
  };
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(SanitizeUtf8(bytes), text);
    EXPECT_EQ(Stream({bytes}, {}).text, text);
  }
}

TEST(Utf8, ValidMeansNoSurrogateNoOverlongFormNothingAboveTheLast) {
  for (const char* valid : {"", "a", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                            "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "abcdefgh\xc3\xa9"}) {
    EXPECT_TRUE(IsValidUtf8(valid)) << valid;
  }
  for (const char* invalid :
       {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xc3", "abcdefgh\xc3"}) {
    EXPECT_FALSE(IsValidUtf8(invalid)) << invalid;
  }
}

TEST(Utf8, EveryScalarValueSurvivesAppendAndNext) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point < 0xE000) continue;
    std::string text;
    AppendUtf8(code_point, text);
    const Utf8Step step = NextUtf8(text, 0);
    ASSERT_EQ(step.status, Utf8Status::kValid);
    ASSERT_EQ(step.length, text.size());
    ASSERT_EQ(step.code_point, code_point);
  }
}

TEST(TextStream, AnyCutOfTheBytesGivesTheSameText) {
  std::mt19937 random(17);
  const std::vector<std::string> parts = {
      "a", "b", "ab", " ", "\xff", "\xe2\x82", "\u20AC", "\xf0", "\x9f\x99\x82", "c", "\xed\xa0"};
  for (int round = 0; round < 4000; ++round) {
    std::string bytes;
    const uint32_t count = random() % 16;
    for (uint32_t i = 0; i < count; ++i) bytes += parts[random() % parts.size()];
    std::vector<std::string> stops;
    for (uint32_t i = random() % 3; i > 0; --i) {
      std::string stop = parts[random() % 3];
      stop += parts[random() % 2 == 0 ? 0 : 6];
      stops.push_back(stop);
    }
    const Streamed whole = Stream({bytes}, stops);
    for (int cut = 0; cut < 4; ++cut) {
      EXPECT_EQ(Stream(CutAtRandom(bytes, random), stops), whole);
    }
    if (!whole.matched_stop.empty()) {
      EXPECT_EQ(SanitizeUtf8(bytes).find(whole.text + whole.matched_stop), 0u);
      for (const std::string& stop : stops) {
        EXPECT_EQ(whole.text.find(stop), std::string::npos);
      }
    } else {
      EXPECT_EQ(whole.text, SanitizeUtf8(bytes));
    }
  }
}

TEST(TextStream, ControlTokensAreSilent) {
  const Tokenizer& tokenizer = SmallTokenizer();
  TextStream stream(tokenizer, {});
  EXPECT_EQ(stream.Push(tokenizer.spec().eos), "");
  EXPECT_EQ(stream.Finish(), "");
}

}  // namespace
}  // namespace kvrm
