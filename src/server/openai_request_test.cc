#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/openai_types.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

using Outcome = std::variant<ParsedRequest, ApiError>;

Outcome Parse(Api api, const std::string& body) { return ParseRequest(api, body, {}); }

// A chat body with `fields` added.
std::string Chat(const std::string& fields = "") {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) +
         "}";
}
std::string Completion(const std::string& fields = "") {
  return R"({"prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}";
}

ParsedRequest Good(const Outcome& outcome) {
  const auto* error = std::get_if<ApiError>(&outcome);
  EXPECT_EQ(error, nullptr) << (error != nullptr ? error->message : "");
  return error == nullptr ? std::get<ParsedRequest>(outcome) : ParsedRequest{};
}
ApiError Bad(const Outcome& outcome) {
  const auto* error = std::get_if<ApiError>(&outcome);
  EXPECT_NE(error, nullptr);
  if (error == nullptr) return {};
  EXPECT_TRUE(IsValidUtf8(error->message));
  EXPECT_TRUE(IsValidUtf8(error->param));
  EXPECT_EQ(error->status, 400);
  boost::json::error_code ec;
  boost::json::parse(ErrorBody(*error), ec);
  EXPECT_FALSE(ec) << ErrorBody(*error);
  return *error;
}

TEST(OpenAiRequest, AbsentAndNullFieldsKeepTheirDefault) {
  const SamplingParams defaults;
  const auto absent = Good(Parse(Api::kChat, Chat()));
  const auto null = Good(
      Parse(Api::kChat, Chat(R"("temperature":null,"top_p":null,"seed":null,"stop":null,"n":null,
        "logprobs":null,"max_tokens":null,"stream":null,"stream_options":null,"tools":null,
        "logit_bias":null,"response_format":null,"user":null,"model":null)")));
  for (const auto* request : {&absent, &null}) {
    EXPECT_EQ(request->sampling.temperature, defaults.temperature);
    EXPECT_EQ(request->sampling.top_p, defaults.top_p);
    EXPECT_FALSE(request->seed);
    EXPECT_FALSE(request->max_tokens);
    EXPECT_FALSE(request->logprobs);
    EXPECT_FALSE(request->stream);
    EXPECT_EQ(request->n, 1u);
    EXPECT_TRUE(request->stop.empty());
    EXPECT_TRUE(request->unknown_fields.empty());
  }
}

TEST(OpenAiRequest, EveryFieldOfTheSamplerIsRead) {
  const auto r = Good(Parse(Api::kChat, Chat(R"("model":"m","temperature":0.25,"top_p":0.5,
    "top_k":7,"min_p":0.125,"typical_p":0.75,"presence_penalty":-2,"frequency_penalty":1.5,
    "logit_bias":{"50":-100,"7":0.5},"repetition_penalty":1.5,"repeat_last_n":9,"seed":42,"min_tokens":3,
    "max_completion_tokens":12,"ignore_eos":true,"stop":["a","b"],"stop_token_ids":[5,6],"n":2,
    "stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},
    "logprobs":true,"top_logprobs":4)")));
  EXPECT_EQ(r.model, "m");
  EXPECT_EQ(r.sampling.temperature, 0.25f);
  EXPECT_EQ(r.sampling.top_p, 0.5f);
  EXPECT_EQ(r.sampling.top_k, 7u);
  EXPECT_EQ(r.sampling.min_p, 0.125f);
  EXPECT_EQ(r.sampling.typical_p, 0.75f);
  EXPECT_EQ(r.sampling.presence_penalty, -2.0f);
  EXPECT_EQ(r.sampling.frequency_penalty, 1.5f);
  ASSERT_EQ(r.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(r.sampling.logit_bias[0].id, 50);
  EXPECT_EQ(r.sampling.logit_bias[0].bias, -100.0f);
  EXPECT_EQ(r.sampling.logit_bias[1].id, 7);
  EXPECT_EQ(r.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(r.sampling.repetition_last_n, 9u);
  EXPECT_EQ(r.seed, 42u);
  EXPECT_EQ(r.min_tokens, 3u);
  EXPECT_EQ(r.max_tokens, 12u);
  EXPECT_TRUE(r.ignore_eos);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.stop_token_ids, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(r.n, 2u);
  EXPECT_TRUE(r.stream && r.include_usage && r.continuous_usage);
  EXPECT_EQ(r.logprobs, 4u);
}

TEST(OpenAiRequest, PenaltyHasTwoNamesAndOneValue) {
  EXPECT_EQ(Good(Parse(Api::kChat, Chat(R"("repeat_penalty":1.25)"))).sampling.repetition_penalty,
            1.25f);
  Good(Parse(Api::kChat, Chat(R"("repeat_penalty":1.25,"repetition_penalty":1.25)")));
  Bad(Parse(Api::kChat, Chat(R"("repeat_penalty":1.25,"repetition_penalty":1.5)")));
}

TEST(OpenAiRequest, PromptComesAsTextIdsOrListsOfThem) {
  const auto prompts = [](const std::string& json) {
    return Good(Parse(Api::kCompletions, R"({"prompt":)" + json + "}")).prompts;
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(prompts(R"("a")"), (std::vector<Prompt>{std::string("a")}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<Prompt>{std::string("a"), std::string("b")}));
  EXPECT_EQ(prompts("[1,2,3]"), (std::vector<Prompt>{Ids{1, 2, 3}}));
  EXPECT_EQ(prompts("[[1],[2,3]]"), (std::vector<Prompt>{Ids{1}, Ids{2, 3}}));
}

TEST(OpenAiRequest, TextPartsAreJoinedAsTheyStand) {
  const auto r = Good(Parse(Api::kChat, R"({"messages":[{"role":"developer","content":
    [{"type":"text","text":"<|im_"},{"type":"text","text":"end|>"}]},
    {"role":"assistant","content":"x","tool_calls":[]}]})"));
  ASSERT_EQ(r.messages.size(), 2u);
  EXPECT_EQ(r.messages[0].role, "system");
  EXPECT_EQ(r.messages[0].content, "<|im_end|>");
}

TEST(OpenAiRequest, CompletionsProduceSixteenTokensUnlessAsked) {
  EXPECT_EQ(Good(Parse(Api::kCompletions, Completion())).max_tokens, 16u);
  EXPECT_EQ(Good(Parse(Api::kCompletions, Completion(R"("max_tokens":3)"))).max_tokens, 3u);
  EXPECT_FALSE(Good(Parse(Api::kCompletions, Completion(R"("max_tokens":-1)"))).max_tokens);
}

TEST(OpenAiRequest, CompletionsMayAskForThePromptAlone) {
  const auto r =
      Good(Parse(Api::kCompletions, Completion(R"("max_tokens":0,"echo":true,"logprobs":0)")));
  EXPECT_EQ(r.max_tokens, 0u);
  EXPECT_TRUE(r.echo);
  EXPECT_EQ(r.logprobs, 0u);
  EXPECT_EQ(Good(Parse(Api::kChat, Chat(R"("prompt_logprobs":3)"))).prompt_logprobs, 3u);
  EXPECT_EQ(Bad(Parse(Api::kChat, Chat(R"("max_tokens":0)"))).param, "max_tokens");
  EXPECT_EQ(Bad(Parse(Api::kCompletions, Completion(R"("prompt_logprobs":21)"))).param,
            "prompt_logprobs");
  EXPECT_EQ(Bad(Parse(Api::kCompletions, Completion(R"("prompt_logprobs":1,"stream":true)"))).param,
            "prompt_logprobs");
  EXPECT_EQ(Bad(Parse(Api::kCompletions, Completion(R"("echo":1)"))).param, "echo");
}

TEST(OpenAiRequest, WrongTypesNameThePath) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("temperature":"1")", "temperature"},
      {R"("stream":1)", "stream"},
      {R"("stop":["a",5])", "stop[1]"},
      {R"("stop_token_ids":[1,"x"])", "stop_token_ids[1]"},
      {R"("stream":true,"stream_options":{"include_usage":"yes"})", "stream_options.include_usage"},
      {R"("model":7)", "model"},
      {R"("logprobs":3)", "logprobs"},
  };
  for (const auto& [field, path] : cases) {
    const ApiError error = Bad(Parse(Api::kChat, Chat(field)));
    EXPECT_EQ(error.param, path) << field;
    EXPECT_EQ(error.code, "invalid_type") << field;
  }
  EXPECT_EQ(Bad(Parse(Api::kChat, R"({"messages":"x"})")).param, "messages");
  EXPECT_EQ(Bad(Parse(Api::kChat, R"({"messages":[1]})")).param, "messages[0]");
  EXPECT_EQ(Bad(Parse(Api::kChat, R"({"messages":[{"role":"user","content":7}]})")).param,
            "messages[0].content");
  EXPECT_EQ(Bad(Parse(Api::kChat, R"({"messages":[{"role":"user","content":[{"type":"text",
    "text":3}]}]})"))
                .param,
            "messages[0].content[0].text");
  EXPECT_EQ(Bad(Parse(Api::kCompletions, R"({"prompt":[[1,"a"]]})")).param, "prompt[0][1]");
  EXPECT_EQ(Bad(Parse(Api::kCompletions, R"({"prompt":["a",[1]],"x":0)")).code, "invalid_json");
}

TEST(OpenAiRequest, UnknownRolesAreRefused) {
  EXPECT_EQ(Bad(Parse(Api::kChat, R"({"messages":[{"role":"wizard","content":"x"}]})")).param,
            "messages[0].role");
}

TEST(OpenAiRequest, LogitBiasesComeAsAnObjectOrAsPairs) {
  const auto biases = [](const std::string& json) {
    return Good(Parse(Api::kNative, Completion("\"logit_bias\":" + json))).sampling.logit_bias;
  };
  for (const char* json : {R"({"7":1.5,"50":-100})", "[[7,1.5],[50,false]]"}) {
    const auto list = biases(json);
    ASSERT_EQ(list.size(), 2u) << json;
    EXPECT_EQ(list[0].id, 7);
    EXPECT_EQ(list[0].bias, 1.5f);
    EXPECT_EQ(list[1].id, 50);
    EXPECT_EQ(list[1].bias, -100.0f);
  }
  for (const auto& [json, path] : {std::pair{"7", "logit_bias"},
                                   {"[7]", "logit_bias[0]"},
                                   {"[[7]]", "logit_bias[0]"},
                                   {"[[7,1],[-1,1]]", "logit_bias[1][0]"},
                                   {"[[7,true]]", "logit_bias[0][1]"},
                                   {R"({"7":101})", "logit_bias.7"}}) {
    EXPECT_EQ(Bad(Parse(Api::kNative, Completion("\"logit_bias\":" + std::string(json)))).param,
              path);
  }
}

TEST(OpenAiRequest, MetadataOfResponsesIsBoundedText) {
  const auto parse = [](const std::string& json) {
    return Parse(Api::kResponses, R"({"input":"a","metadata":)" + json + "}");
  };
  const auto r = Good(parse(R"({"run":"7","who":"me"})"));
  ASSERT_EQ(r.metadata.size(), 2u);
  EXPECT_EQ(r.metadata[0], std::pair(std::string("run"), std::string("7")));
  EXPECT_EQ(Bad(parse(R"({"run":7})")).param, "metadata.run");
  EXPECT_EQ(Bad(parse("[]")).param, "metadata");
  std::string many = R"({"k":"v")";
  for (uint32_t i = 0; i < kMaxMetadata; ++i) many += ",\"" + std::to_string(i) + "\":\"v\"";
  EXPECT_EQ(Bad(parse(many + "}")).param, "metadata");
  Bad(parse("{\"k\":\"" + std::string(kMaxMetadataBytes + 1, 'v') + "\"}"));
}

TEST(OpenAiRequest, UnknownFieldsAreNotedOnceAndBounded) {
  std::string fields = R"("frobnicate":{"a":[1,2]},"user":"u","stream_options":{"odd":1},
    "stream":true)";
  const auto r = Good(Parse(Api::kChat, Chat(fields)));
  EXPECT_EQ(r.unknown_fields, (std::vector<std::string>{"frobnicate", "stream_options.odd"}));
  std::string many = R"("x":0)";
  for (int i = 0; i < 1000; ++i) many += R"(,"f)" + std::to_string(i) + R"(":0)";
  EXPECT_EQ(Good(Parse(Api::kChat, Chat(many))).unknown_fields.size(), kMaxUnknownFields);
}

TEST(OpenAiRequest, BoundsHoldAtTheirEdges) {
  const auto list = [](const char* key, size_t count, const std::string& entry) {
    std::string json = "\"" + std::string(key) + "\":[";
    for (size_t i = 0; i < count; ++i) json += (i > 0 ? "," : "") + entry;
    return json + "]";
  };
  Good(Parse(Api::kChat, Chat(list("stop", kMaxStops, R"("s")"))));
  Bad(Parse(Api::kChat, Chat(list("stop", kMaxStops + 1, R"("s")"))));
  Good(Parse(Api::kChat, Chat("\"stop\":\"" + std::string(kMaxStopBytes, 's') + "\"")));
  Bad(Parse(Api::kChat, Chat("\"stop\":\"" + std::string(kMaxStopBytes + 1, 's') + "\"")));
  Bad(Parse(Api::kChat, Chat(R"("stop":"")")));
  Bad(Parse(Api::kChat, Chat(R"("stop":["a",""])")));
  Good(Parse(Api::kChat, Chat(list("stop_token_ids", kMaxStopTokens, "1"))));
  Bad(Parse(Api::kChat, Chat(list("stop_token_ids", kMaxStopTokens + 1, "1"))));
  Bad(Parse(Api::kChat, Chat(R"("stop_token_ids":[-1])")));
  Good(Parse(Api::kChat, Chat(R"("logprobs":true,"top_logprobs":20)")));
  Bad(Parse(Api::kChat, Chat(R"("logprobs":true,"top_logprobs":21)")));
  Bad(Parse(Api::kChat, Chat(R"("top_logprobs":2)")));
  Good(Parse(Api::kCompletions, "{" + list("prompt", kMaxPrompts, R"("p")") + "}"));
  Bad(Parse(Api::kCompletions, "{" + list("prompt", kMaxPrompts + 1, R"("p")") + "}"));
  Bad(Parse(Api::kCompletions, "{" + list("prompt", kMaxPrompts, R"("p")") + R"(,"n":2})"));
  Bad(Parse(Api::kChat, Chat(R"("min_tokens":5,"max_tokens":4)")));
  Good(Parse(Api::kChat, Chat(R"("min_tokens":4,"max_tokens":4)")));
  Bad(Parse(Api::kChat, Chat(R"("max_tokens":4,"max_completion_tokens":5)")));
  Good(Parse(Api::kChat, Chat(R"("max_tokens":4,"max_completion_tokens":4)")));
}

TEST(OpenAiRequest, FieldsThatARequestLeavesOutTakeTheServersDefaults) {
  RequestDefaults defaults;
  defaults.sampling.temperature = 0.25f;
  defaults.sampling.top_k = 7;
  defaults.seed = 5;
  defaults.max_tokens = 9;
  const auto parse = [&](Api api, const std::string& body) {
    return Good(ParseRequest(api, body, defaults));
  };
  for (const auto& [api, body] : {std::pair{Api::kChat, Chat(R"("top_k":null,"seed":null)")},
                                  {Api::kCompletions, std::string(R"({"prompt":"a"})")},
                                  {Api::kNative, std::string(R"({"prompt":"a"})")},
                                  {Api::kResponses, std::string(R"({"input":"a"})")}}) {
    const auto r = parse(api, body);
    EXPECT_EQ(r.sampling.temperature, 0.25f);
    EXPECT_EQ(r.sampling.top_k, 7u);
    EXPECT_EQ(r.seed, 5u);
    EXPECT_EQ(r.max_tokens, 9u);
  }
  const auto r = parse(Api::kChat, Chat(R"("temperature":1,"top_k":0,"seed":-1,"max_tokens":-1)"));
  EXPECT_EQ(r.sampling.temperature, 1.0f);
  EXPECT_EQ(r.sampling.top_k, 0u);
  EXPECT_FALSE(r.seed) << "drawn, although the server has a seed";
  EXPECT_FALSE(r.max_tokens) << "to the context's end";
}

// ---- field reports
TEST(B039, BadBytesAnywhereAreRefusedInValidUtf8) {
  const std::string bad[] = {"\xFF\xFE", "\xC4\xE3\xBA\xC3", "\xED\xA0\x80", "\xC0\xAF",
                             "\xE2\x82"};
  for (const std::string& bytes : bad) {
    Bad(Parse(Api::kChat, R"({"messages":[{"role":"user","content":")" + bytes + R"("}]})"));
    Bad(Parse(Api::kChat, Chat("\"model\":\"" + bytes + "\"")));
    Bad(Parse(Api::kChat, Chat("\"" + bytes + "\":1")));
    Bad(Parse(Api::kChat, Chat("\"stop\":\"" + bytes + "\"")));
    Bad(Parse(Api::kCompletions, "{\"prompt\":\"" + bytes + "\"}"));
    Bad(Parse(Api::kChat, R"({"messages":[{"role":")" + bytes + R"(","content":"x"}]})"));
  }
  Bad(Parse(Api::kChat, R"({"messages":[{"role":"user","content":"\ud800"}]})"));
  Bad(Parse(Api::kChat, R"({"messages":[{"role":"user","content":"\udc00x"}]})"));
  Bad(Parse(Api::kChat, ""));
  Bad(Parse(Api::kChat, "   "));
  Bad(Parse(Api::kChat, Chat().substr(0, 20)));
  Bad(Parse(Api::kChat, Chat() + "{}"));
  Bad(Parse(Api::kChat, "[]"));
  Bad(Parse(Api::kChat, "null"));
  // A long value is cut between characters when it is repeated.
  std::string wide;
  for (int i = 0; i < 100; ++i) wide += "\xF0\x9F\x98\x80";
  Bad(Parse(Api::kChat, R"({"messages":[{"role":"x)" + wide + R"(","content":"x"}]})"));
}

TEST(B040, NumbersThatAreNoneAreRefusedByName) {
  const char* const fields[] = {"temperature", "top_p", "min_p", "typical_p", "repetition_penalty"};
  const char* const values[] = {"NaN",     "Infinity", "-Infinity", "1e999", "-1e999",
                                "\"nan\"", "-1",       "-1e-9",     "true",  "1e6"};
  for (const char* field : fields) {
    for (const char* value : values) {
      const std::string body = Chat("\"" + std::string(field) + "\":" + value);
      const ApiError error = Bad(Parse(Api::kChat, body));
      if (error.code != "invalid_json") {
        EXPECT_EQ(error.param, field) << body;
      }
    }
    Good(Parse(Api::kChat, Chat("\"" + std::string(field) + "\":1e-6")));
    Good(Parse(Api::kChat, Chat("\"" + std::string(field) + "\":null")));
  }
}

TEST(B040, PenaltiesOfTheOutputOutOfRangeAreRefusedByName) {
  for (const std::string field : {"presence_penalty", "frequency_penalty"}) {
    for (const char* value : {"NaN", "1e999", "-1e999", "\"1\"", "-2.01", "2.01", "true", "1e6"}) {
      const ApiError error = Bad(Parse(Api::kChat, Chat("\"" + field + "\":" + value)));
      if (error.code != "invalid_json") {
        EXPECT_EQ(error.param, field) << value;
      }
    }
    for (const char* value : {"-2", "2", "0", "1e-6", "null"}) {
      Good(Parse(Api::kChat, Chat("\"" + field + "\":" + value)));
    }
  }
}

TEST(B041, TopKIsOffAtZeroAndMinusOneAndClampedAbove) {
  const auto top_k = [](const char* value) {
    return Good(Parse(Api::kChat, Chat("\"top_k\":" + std::string(value)))).sampling.top_k;
  };
  EXPECT_EQ(top_k("0"), 0u);
  EXPECT_EQ(top_k("-1"), 0u);
  EXPECT_EQ(top_k("1"), 1u);
  EXPECT_EQ(top_k("2147483648"), 2147483648u);
  EXPECT_EQ(top_k("99999999999999999999"), 4294967295u);
  Bad(Parse(Api::kChat, Chat(R"("top_k":-7)")));
  Bad(Parse(Api::kChat, Chat(R"("top_k":1.5)")));
}

TEST(B044, EmptyPromptsAreRefused) {
  Bad(Parse(Api::kCompletions, R"({"prompt":[]})"));
  Bad(Parse(Api::kCompletions, R"({})"));
  Bad(Parse(Api::kCompletions, R"({"prompt":null})"));
  Bad(Parse(Api::kChat, R"({"messages":[]})"));
  Bad(Parse(Api::kChat, R"({"messages":[{"role":"user","content":null}]})"));
  Bad(Parse(Api::kChat, R"({"messages":[{"role":"user"}]})"));
  Bad(Parse(Api::kChat, R"({"messages":[{"content":"x"}]})"));
}

TEST(B046, HugeCountsAreClampedOrRefused) {
  const auto max_tokens = [](const char* value) {
    return Good(Parse(Api::kChat, Chat("\"max_tokens\":" + std::string(value)))).max_tokens;
  };
  EXPECT_EQ(max_tokens("2147483646"), 2147483646u);
  EXPECT_EQ(max_tokens("2147483647"), 2147483647u);
  EXPECT_FALSE(max_tokens("4294967296"));  // to the context's end
  EXPECT_FALSE(max_tokens("1e18"));
  for (const char* bad : {"-5", "3.7", "\"10\"", "0", "-1e999"}) {
    Bad(Parse(Api::kChat, Chat("\"max_tokens\":" + std::string(bad))));
  }
  for (const char* bad : {"0", "-1", "1000000", "17", "1.5"}) {
    EXPECT_EQ(Bad(Parse(Api::kChat, Chat("\"n\":" + std::string(bad)))).param, "n");
  }
  std::string prompts = "{\"prompt\":[\"p\"";
  for (int i = 0; i < 9'999; ++i) prompts += ",\"p\"";
  EXPECT_EQ(Bad(Parse(Api::kCompletions, prompts + "]}")).param, "prompt");
}

TEST(B050, NestingIsBoundedWhereverItStands) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  for (const size_t depth : {10'000u, 100'000u}) {
    for (const char* field : {"x", "tools", "response_format", "messages", "stop", "prompt"}) {
      const std::string pair = "\"" + std::string(field) + "\":" + nested(depth);
      const ApiError error = Bad(Parse(Api::kChat, "{" + pair + "}"));
      EXPECT_EQ(error.code, "invalid_json");
      EXPECT_NE(error.message.find("nested deeper than the limit of 32"), std::string::npos)
          << error.message;
    }
    Bad(Parse(Api::kChat, "{\"x\":" + std::string(depth, '[')));
    Bad(Parse(Api::kChat, std::string(depth, '[')));
  }
  Good(Parse(Api::kChat, Chat("\"x\":" + nested(kMaxJsonDepth - 1))));
  Bad(Parse(Api::kChat, Chat("\"x\":" + nested(kMaxJsonDepth))));
}

}  // namespace
}  // namespace kvrm
