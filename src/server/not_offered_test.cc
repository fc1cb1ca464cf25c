// What other servers have and this one has not, on every API: each is a 400 that names the field,
// and the values of it that ask for nothing pass.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "server/openai_fields.h"
#include "server/openai_types.h"

namespace kvrm {
namespace {

constexpr Api kApis[] = {Api::kChat, Api::kCompletions, Api::kNative, Api::kResponses,
                         Api::kMessages};

std::string Message(const std::string& role, const std::string& content) {
  return R"({"role":")" + role + R"(","content":)" + content + "}";
}

// A body that is answered, with `fields` added.
std::string Body(Api api, const std::string& fields) {
  const std::string said = api == Api::kResponses ? R"("input":"hi")"
                           : HoldsMessages(api)
                               ? R"("messages":[)" + Message("user", R"("hi")") + "]"
                               : R"("prompt":"hi")";
  return "{" + said + (fields.empty() ? "" : "," + fields) + "}";
}

// The error that `body` is answered with; "" as its code: none.
ApiError ErrorOf(Api api, const std::string& body) {
  const auto outcome = ParseRequest(api, body, {});
  const auto* error = std::get_if<ApiError>(&outcome);
  return error == nullptr ? ApiError{} : *error;
}

void ExpectRefused(Api api, const std::string& body, const std::string& param) {
  const ApiError error = ErrorOf(api, body);
  EXPECT_EQ(error.code, "unsupported_parameter") << static_cast<int>(api) << " " << body;
  EXPECT_EQ(error.status, 400) << body;
  EXPECT_EQ(error.param, param) << body;
  EXPECT_NE(error.message.find("not offered"), std::string::npos) << error.message;
}

void ExpectTaken(Api api, const std::string& body) {
  const auto outcome = ParseRequest(api, body, {});
  const auto* error = std::get_if<ApiError>(&outcome);
  EXPECT_EQ(error, nullptr) << static_cast<int>(api) << " " << body << ": " << error->message;
}

struct Feature {
  const char* field;
  std::vector<const char*> nothing;  // beside null
  std::vector<const char*> something;
  uint8_t apis = kAll;
};

const Feature kFeatures[] = {
    // ---- tools
    {"tools", {"[]"}, {R"([{"type":"function","function":{"name":"f"}}])"}},
    {"tool_choice",
     {R"("none")", R"("auto")", R"({"type":"auto"})"},
     {R"("required")", R"({"type":"any"})", R"({"type":"function","function":{"name":"f"}})"}},
    {"functions", {"[]"}, {R"([{"name":"f"}])"}},
    {"function_call", {R"("none")"}, {R"({"name":"f"})"}},
    // ---- structured output, other code in the sampler
    {"response_format",
     {R"({"type":"text"})"},
     {R"({"type":"json_object"})", R"({"type":"json_schema","json_schema":{"name":"n"}})", "{}"}},
    {"grammar", {R"("")"}, {R"("root ::= x")"}},
    {"json_schema", {}, {"{}", R"({"type":"object"})"}},
    {"structured_outputs", {}, {R"({"regex":"a"})"}},
    {"guided_json", {}, {R"({"type":"object"})"}},
    {"guided_regex", {}, {R"("a+")"}},
    {"guided_choice", {}, {R"(["a","b"])"}},
    {"guided_grammar", {}, {R"("root ::= x")"}},
    {"logits_processors", {"[]"}, {R"(["module.processor"])"}},
    // ---- images, audio
    {"modalities", {R"(["text"])"}, {R"(["text","audio"])", "[]"}},
    {"audio", {}, {R"({"voice":"x","format":"wav"})"}},
    {"images", {"[]"}, {R"(["aGk="])"}},
    {"image_data", {"[]"}, {R"([{"data":"x","id":1}])"}},
    {"prompt_embeds", {R"("")"}, {R"("aGk=")"}},
    // ---- LoRA, draft models
    {"lora", {"[]"}, {R"([{"id":0,"scale":1}])"}},
    {"speculative.n_max", {"0"}, {"16"}},
    {"num_assistant_tokens", {"0"}, {"5"}},
    {"prediction", {}, {R"({"type":"content","content":"x"})"}},
    // ---- choices, scores
    {"n", {"1"}, {"2"}, kAll & ~kBoth},
    {"n_cmpl", {"1"}, {"2"}},
    {"best_of", {"1"}, {"2"}},
    {"use_beam_search", {"false"}, {"true"}},
    {"logprobs", {"false"}, {"true", "3"}, kResponsesOnly | kMessagesOnly | kNativeOnly},
    {"top_logprobs", {"0"}, {"3"}, kMessagesOnly | kNativeOnly},
    {"prompt_logprobs", {}, {"0", "3"}, kAll & ~kBoth},
    {"return_token_ids", {"false"}, {"true"}},
    // ---- samplers
    {"samplers", {"[]"}, {R"(["top_k"])"}},
    {"mirostat", {"0"}, {"2"}},
    {"top_n_sigma", {"-1", "0"}, {"1.5"}},
    {"dry_multiplier", {"0", "0.0"}, {"0.8"}},
    {"xtc_probability", {"0"}, {"0.5"}},
    {"dynatemp_range", {"0"}, {"0.5"}},
    {"bad_words", {"[]"}, {R"(["x"])"}},
    {"allowed_token_ids", {}, {"[1]", "[]"}},
    // ---- prompts
    {"suffix", {R"("")"}, {R"("x")"}},
    {"echo", {"false"}, {"true"}, kAll & ~kCompletionsOnly},
    {"truncate_prompt_tokens", {}, {"10", "-1"}},
    {"cache_salt", {}, {R"("x")"}},
    {"n_keep", {"0"}, {"-1", "-32", "2000000000"}},
    {"n_discard", {"0"}, {"-1"}},
    {"chat_template", {}, {R"("x")"}, kChatOnly},
    {"chat_template_kwargs", {"{}"}, {R"({"enable_thinking":false})"}, kChatOnly},
    {"continue_final_message", {"false"}, {"true"}, kChatOnly},
    {"add_generation_prompt", {"true"}, {"false"}, kChatOnly},
    {"documents", {"[]"}, {R"([{"text":"x"}])"}, kChatOnly},
    {"add_special_tokens", {"true"}, {"false"}, kCompletionsOnly},
    // ---- how it reads
    {"skip_special_tokens", {"true"}, {"false"}},
    {"include_stop_str_in_output", {"false"}, {"true"}},
    {"verbosity", {R"("medium")"}, {R"("low")"}},
    {"reasoning_effort", {R"("none")"}, {R"("high")"}},
    {"web_search_options", {}, {"{}"}},
    // ---- of one API
    {"previous_response_id", {}, {R"("resp_1")"}, kResponsesOnly},
    {"conversation", {}, {R"("conv_1")"}, kResponsesOnly},
    {"background", {"false"}, {"true"}, kResponsesOnly},
    {"prompt", {}, {R"({"id":"p"})"}, kResponsesOnly},
    {"reasoning",
     {"{}", R"({"effort":null,"summary":null})", R"({"effort":"none"})"},
     {R"({"effort":"high"})", R"({"summary":"auto"})"},
     kResponsesOnly},
    {"text",
     {"{}", R"({"format":{"type":"text"}})", R"({"format":null,"verbosity":"medium"})"},
     {R"({"format":{"type":"json_schema"}})", R"({"verbosity":"low"})"},
     kResponsesOnly},
    {"truncation", {R"("disabled")"}, {R"("auto")"}, kResponsesOnly},
    {"thinking", {R"({"type":"disabled"})"}, {R"({"type":"enabled"})"}, kMessagesOnly},
    {"mcp_servers", {"[]"}, {R"([{"type":"url"}])"}, kMessagesOnly},
    {"container", {}, {R"("c")"}, kMessagesOnly},
    {"output_format", {}, {R"({"type":"json_schema"})"}, kMessagesOnly},
    {"output_config", {"{}"}, {R"({"effort":"low"})"}, kMessagesOnly},
    {"context_management", {"{}"}, {R"({"edits":[]})"}, kMessagesOnly | kResponsesOnly},
};

TEST(NotOffered, AFieldIsRefusedByNameUnlessItAsksForNothing) {
  for (const Feature& feature : kFeatures) {
    const auto body = [&feature](Api api, const char* value) {
      return Body(api, "\"" + std::string(feature.field) + "\":" + value);
    };
    for (const Api api : kApis) {
      if ((feature.apis & ApiBit(api)) == 0) continue;
      ExpectTaken(api, body(api, "null"));
      for (const char* value : feature.nothing) ExpectTaken(api, body(api, value));
      for (const char* value : feature.something) {
        ExpectRefused(api, body(api, value), feature.field);
      }
    }
  }
}

// The messages of a conversation, as each API that has one calls them.
TEST(NotOffered, MessagesOfToolsAreNamedWhateverElseTheyLack) {
  for (const Api api : {Api::kChat, Api::kMessages, Api::kResponses}) {
    const std::string field = api == Api::kResponses ? "input" : "messages";
    const auto refused = [&](const std::string& message, const std::string& path) {
      ExpectRefused(api, "{\"" + field + "\":[" + Message("user", R"("hi")") + "," + message + "]}",
                    field + "[1]" + path);
    };
    refused(R"({"role":"tool","content":"4","tool_call_id":"c"})", ".role");
    refused(R"({"content":[1],"role":"tool"})", ".role");
    refused(R"({"role":"function","name":"f","content":"4"})", ".role");
    refused(R"({"role":"assistant","content":null,"tool_calls":[{"id":"c"}]})", ".tool_calls");
    refused(R"({"role":"assistant","tool_calls":[{"id":"c"}]})", ".tool_calls");
    refused(R"({"content":null,"role":"assistant","function_call":{"name":"f"}})",
            ".function_call");
    refused(R"({"role":"assistant","audio":{"id":"a"}})", ".audio");
    for (const char* type : {"function_call", "function_call_output", "reasoning", "item_reference",
                             "web_search_call"}) {
      refused(R"({"type":")" + std::string(type) + R"(","id":"x"})", ".type");
    }
  }
}

TEST(NotOffered, PartsOtherThanTextAreNamed) {
  for (const Api api : {Api::kChat, Api::kMessages, Api::kResponses}) {
    const std::string field = api == Api::kResponses ? "input" : "messages";
    for (const char* type :
         {"image_url", "input_image", "image", "input_audio", "file", "input_file", "document",
          "video_url", "tool_use", "tool_result", "thinking", "refusal"}) {
      ExpectRefused(api,
                    "{\"" + field + "\":[" +
                        Message("user", R"([{"type":"text","text":"a"},{"type":")" +
                                            std::string(type) + R"("}])") +
                        "]}",
                    field + "[0].content[1]");
    }
  }
}

TEST(NotOffered, ResponsesIncludeNothingOfTools) {
  ExpectTaken(Api::kResponses, Body(Api::kResponses, R"("include":[])"));
  ExpectTaken(Api::kResponses,
              Body(Api::kResponses, R"("include":["message.output_text.logprobs"])"));
  ExpectRefused(Api::kResponses,
                Body(Api::kResponses,
                     R"("include":["message.output_text.logprobs","file_search_call.results"])"),
                "include[1]");
}

// Anthropic's clients write the beginning of the answer as the last message.
TEST(NotOffered, AMessageThatIsToBeContinuedIsRefused) {
  ExpectRefused(Api::kMessages,
                R"({"system":"s","messages":[)" + Message("user", R"("hi")") + "," +
                    Message("assistant", R"("The")") + "]}",
                "messages[1]");
}

TEST(NotOffered, TextsInPlaceOfTokenIdsAreRefused) {
  for (const Api api : kApis) {
    ExpectRefused(api, Body(api, R"("logit_bias":[[5,1],["Hello",-1]])"), "logit_bias[1][0]");
  }
}

// Counts above the limits are said with value and limit, not cut.
TEST(NotOffered, MoreChoicesThanTheLimitAreRefused) {
  for (const Api api : {Api::kChat, Api::kCompletions}) {
    ExpectTaken(api, Body(api, R"("n":16)"));
    const ApiError error = ErrorOf(api, Body(api, R"("n":17)"));
    EXPECT_EQ(error.param, "n");
    EXPECT_NE(error.message.find("17 is not between 1 and 16"), std::string::npos) << error.message;
  }
}

// Every field that some API reads: null is its default, and a value of no use is a 400 that says
// where it stands.
TEST(NotOffered, NullIsTheDefaultAndWrongTypesNameTheirPathOnEveryApi) {
  for (const Api api : kApis) {
    for (const std::string_view name : ReadFieldNames(api)) {
      const std::string field(name);
      const bool said = field == "messages" || field == "prompt" || field == "input";
      if (!said) ExpectTaken(api, Body(api, "\"" + field + "\":null"));
      std::string body = Body(api, said ? "" : "\"" + field + "\":[[{}]]");
      if (said) body = "{\"" + field + "\":[[{}]]}";
      const ApiError error = ErrorOf(api, body);
      EXPECT_TRUE(error.param.starts_with(field)) << body << ": " << error.message;
      EXPECT_EQ(error.status, 400);
    }
  }
}

}  // namespace
}  // namespace kvrm
