#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <limits>
#include <string>
#include <vector>

#include "server/json_writer.h"
#include "server/openai_types.h"

namespace kvrm {
namespace {

namespace json = boost::json;

json::value Parsed(const std::string& text) {
  json::error_code ec;
  json::value value = json::parse(text, ec);
  EXPECT_FALSE(ec) << text;
  return value;
}

// The JSON of a single event.
json::value EventOf(const std::string& text) {
  EXPECT_TRUE(text.starts_with("data: ") && text.ends_with("\n\n")) << text;
  return Parsed(text.substr(6, text.size() - 8));
}

ResponseHead Head(Api api) { return {api, "id-1", 1'700'000'000, "tiny", ""}; }

TEST(JsonWriter, EveryCharacterComesBack) {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all += static_cast<char>(c);
  all += "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80";
  std::string out;
  JsonWriter(out).BeginArray().String(all).EndArray();
  EXPECT_EQ(out.find('\n'), std::string::npos);
  EXPECT_EQ(Parsed(out).as_array()[0].as_string(), all);
}

TEST(JsonWriter, CommasStandBetweenValuesOnly) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("a").BeginArray().Uint(1).Int(-2).Null().Bool(true).EndArray();
  json.Key("b").BeginObject().EndObject().Key("c").String("x").EndObject();
  EXPECT_EQ(out, R"({"a":[1,-2,null,true],"b":{},"c":"x"})");
}

TEST(JsonWriter, NumbersAreShortestAndNeverNonFinite) {
  std::string out;
  JsonWriter json(out);
  json.BeginArray().Float(0.1f).Double(0.1).Float(-1.0f);
  json.Float(std::numeric_limits<float>::infinity())
      .Double(std::numeric_limits<double>::quiet_NaN());
  json.EndArray();
  EXPECT_EQ(out, "[0.1,0.1,-1,null,null]");
}

TEST(OpenAiResponse, ErrorBodyIsValidWhateverItRepeats) {
  const json::value body = Parsed(ErrorBody({400, "bad \xFF\xFE here", "t", "p\xC0", ""}));
  const auto& error = body.at("error").as_object();
  EXPECT_EQ(error.at("message").as_string(), "bad \xEF\xBF\xBD\xEF\xBF\xBD here");
  EXPECT_EQ(error.at("type").as_string(), "t");
  EXPECT_TRUE(error.at("code").is_null());
  EXPECT_TRUE(error.at("param").is_string());
}

TEST(OpenAiResponse, WholeChatAnswerHasEveryFieldThatClientsRead) {
  const ChoiceResult choices[] = {{0, "hello", "stop", nullptr}, {1, "you", "length", nullptr}};
  const Timings timings{2, 8, 4.0, 10, 5.0};
  const json::value body = Parsed(ResponseBody(Head(Api::kChat), choices, {10, 7, 2}, timings));
  EXPECT_EQ(body.at("object").as_string(), "chat.completion");
  EXPECT_EQ(body.at("id").as_string(), "id-1");
  EXPECT_EQ(body.at("model").as_string(), "tiny");
  EXPECT_EQ(body.at("created").as_int64(), 1'700'000'000);
  ASSERT_EQ(body.at("choices").as_array().size(), 2u);
  const json::value& second = body.at("choices").as_array()[1];
  EXPECT_EQ(second.at("index").as_int64(), 1);
  EXPECT_EQ(second.at("message").at("role").as_string(), "assistant");
  EXPECT_EQ(second.at("message").at("content").as_string(), "you");
  EXPECT_EQ(second.at("finish_reason").as_string(), "length");
  EXPECT_TRUE(second.at("logprobs").is_null());
  EXPECT_EQ(body.at("usage").at("total_tokens").as_int64(), 17);
  EXPECT_EQ(body.at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64(), 2);
  EXPECT_EQ(body.at("timings").at("prompt_n").as_int64(), 8);
  EXPECT_EQ(body.at("timings").at("prompt_per_second").to_number<double>(), 2000.0);
  EXPECT_EQ(body.at("timings").at("predicted_per_second").to_number<double>(), 2000.0);
}

TEST(OpenAiResponse, ChunksOfBothApisParse) {
  for (const Api api : {Api::kChat, Api::kCompletions}) {
    const ChunkWriter chunks(Head(api), /*usage_null=*/true);
    std::string out;
    chunks.Text(out, 3, "a\"b", nullptr, nullptr);
    const json::value text = EventOf(out);
    const json::value& choice = text.at("choices").as_array()[0];
    EXPECT_EQ(choice.at("index").as_int64(), 3);
    EXPECT_TRUE(choice.at("finish_reason").is_null());
    EXPECT_TRUE(text.at("usage").is_null());
    if (api == Api::kChat) {
      EXPECT_EQ(text.at("object").as_string(), "chat.completion.chunk");
      EXPECT_EQ(choice.at("delta").at("content").as_string(), "a\"b");
    } else {
      EXPECT_EQ(text.at("object").as_string(), "text_completion");
      EXPECT_EQ(choice.at("text").as_string(), "a\"b");
    }
    out.clear();
    const Usage usage{1, 2, 0};
    const Timings timings;
    chunks.Finish(out, 3, "stop", nullptr, &usage, &timings);
    const json::value finish = EventOf(out);
    EXPECT_EQ(finish.at("choices").as_array()[0].at("finish_reason").as_string(), "stop");
    EXPECT_EQ(finish.at("usage").at("total_tokens").as_int64(), 3);
    EXPECT_TRUE(finish.as_object().contains("timings"));
    out.clear();
    chunks.UsageOnly(out, usage, timings);
    EXPECT_TRUE(EventOf(out).at("choices").as_array().empty());
  }
}

// Tokens in the middle of a character: the bytes are exact, the text is valid (B038).
TEST(B038, JoinedBytesOfTokensAreTheAnswer) {
  const std::string smile = "\xF0\x9F\x98\x80";
  std::vector<TokenInfo> tokens;
  for (const char byte : smile) tokens.push_back({std::string(1, byte), -0.5f, {}, 0});
  const ChoiceResult choice{0, smile, "stop", &tokens};
  const json::value body = Parsed(ResponseBody(Head(Api::kChat), {&choice, 1}, {}, {}));
  std::string joined;
  for (const auto& token :
       body.at("choices").as_array()[0].at("logprobs").at("content").as_array()) {
    for (const auto& byte : token.at("bytes").as_array()) {
      joined += static_cast<char>(byte.as_int64());
    }
    EXPECT_EQ(token.at("token").as_string(), "\xEF\xBF\xBD");
  }
  EXPECT_EQ(joined, smile);
}

// Harnesses call a token greedy when its number equals the largest of the map: same digits.
TEST(OpenAiResponse, TokenLogprobStandsInItsMapWithTheSameDigits) {
  std::vector<TokenInfo> tokens(2);
  tokens[0] = {" a", -1.2345678f, {{" b", -0.25f}}, 0};
  tokens[1] = {" c", -0.1f, {{" c", -0.1f}, {" c", -7.0f}}, 2};
  const ChoiceResult choice{0, " a c", "stop", &tokens};
  const std::string text = ResponseBody(Head(Api::kCompletions), {&choice, 1}, {}, {});
  const json::value body = Parsed(text);
  const json::value& logprobs = body.at("choices").as_array()[0].at("logprobs");
  EXPECT_EQ(logprobs.at("tokens").as_array().size(), 2u);
  const auto& first = logprobs.at("top_logprobs").as_array()[0].as_object();
  EXPECT_EQ(first.at(" a").to_number<double>(),
            logprobs.at("token_logprobs").as_array()[0].to_number<double>());
  EXPECT_EQ(first.size(), 2u);
  const auto& second = logprobs.at("top_logprobs").as_array()[1].as_object();
  EXPECT_EQ(second.size(), 1u);  // equal texts: the likelier
  EXPECT_EQ(second.at(" c").to_number<double>(),
            logprobs.at("token_logprobs").as_array()[1].to_number<double>());
  EXPECT_EQ(logprobs.at("text_offset").as_array()[1].as_int64(), 2);
}

TEST(OpenAiResponse, ModelListHoldsTheModel) {
  const json::value list = Parsed(ModelListBody("tiny", 5, 2048));
  EXPECT_EQ(list.at("object").as_string(), "list");
  EXPECT_EQ(list.at("data").as_array()[0], Parsed(ModelBody("tiny", 5, 2048)));
  EXPECT_EQ(list.at("data").as_array()[0].at("id").as_string(), "tiny");
}

}  // namespace
}  // namespace kvrm
