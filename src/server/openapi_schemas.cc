#include "server/openapi_schemas.h"

#include <algorithm>
#include <iterator>

#include "server/openai_fields.h"

namespace kvrm {
namespace {

struct FieldRow {
  std::string_view name;
  uint8_t apis;  // where it means this
  std::string_view schema;
};

constexpr uint8_t kConversations = kChatOnly | kResponsesOnly | kMessagesOnly;

constexpr std::string_view kBool = R"({"type":["boolean","null"]})";
constexpr std::string_view kText = R"({"type":["string","null"]})";
constexpr std::string_view kTokens = R"({"type":["integer","null"],"minimum":-1})";
constexpr std::string_view kAnswerTokens =
    R"({"type":["integer","null"],"minimum":-1,"not":{"const":0}})";
constexpr std::string_view kConversation =
    R"({"type":"array","minItems":1,"maxItems":4096,"items":{"type":"object",)"
    R"("required":["role","content"],"properties":{)"
    R"("role":{"enum":["system","developer","user","assistant"]},)"
    R"("content":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object",)"
    R"("required":["type","text"],"properties":{"type":{"enum":["text"]},)"
    R"("text":{"type":"string"}}}}]}}}})";
constexpr std::string_view kInput =
    R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"maxItems":4096,"items":)"
    R"({"type":"object","required":["role","content"],"properties":{)"
    R"("type":{"enum":["message"]},"role":{"enum":["system","developer","user","assistant"]},)"
    R"("content":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object",)"
    R"("required":["type","text"],"properties":{)"
    R"("type":{"enum":["text","input_text","output_text"]},"text":{"type":"string"}}}}]}}}}]})";
constexpr std::string_view kPrompts =
    R"({"anyOf":[{"type":"string","minLength":1},)"
    R"({"type":"array","minItems":1,"items":{"type":"integer","minimum":0,"maximum":2147483647}},)"
    R"({"type":"array","minItems":1,"maxItems":128,"items":{"anyOf":[)"
    R"({"type":"string","minLength":1},{"type":"array","minItems":1,"items":)"
    R"({"type":"integer","minimum":0,"maximum":2147483647}}]}}]})";
constexpr std::string_view kPenalty = R"({"type":["number","null"],"minimum":-2,"maximum":2})";
constexpr std::string_view kRepetition =
    R"({"type":["number","null"],"exclusiveMinimum":0,"maximum":100})";
constexpr std::string_view kShare =
    R"({"type":["number","null"],"exclusiveMinimum":0,"maximum":1})";
constexpr std::string_view kScores = R"({"type":["integer","null"],"minimum":0,"maximum":20})";
constexpr std::string_view kStops =
    R"({"anyOf":[{"type":"null"},{"type":"string","minLength":1,"maxLength":1024},)"
    R"({"type":"array","maxItems":32,"items":{"type":"string","minLength":1,"maxLength":1024}}]})";
constexpr std::string_view kTextOrParts =
    R"({"anyOf":[{"type":"null"},{"type":"string"},{"type":"array","items":{"type":"object",)"
    R"("required":["type","text"],"properties":{"type":{"enum":["text"]},)"
    R"("text":{"type":"string"}}}}]})";
constexpr std::string_view kIds =
    R"({"type":"array","items":{"type":"integer","minimum":0,"maximum":2147483647}})";

// Every field that some reader reads.
constexpr FieldRow kFields[] = {
    {"model", kAll, kText},
    {"messages", kAll, kConversation},
    {"system", kAll, kTextOrParts},
    {"instructions", kAll, kTextOrParts},
    {"input", kAll, kInput},
    {"prompt", kAll, kPrompts},
    {"stream", kAll, kBool},
    {"stream_options", kAll,
     R"({"type":["object","null"],"properties":{"include_usage":{"type":["boolean","null"]},)"
     R"("continuous_usage_stats":{"type":["boolean","null"]}}})"},
    {"n", kAll, R"({"type":["integer","null"],"minimum":1,"maximum":16})"},
    {"max_tokens", kConversations, kAnswerTokens},
    {"max_tokens", kRaw, kTokens},
    {"max_completion_tokens", kChatOnly, kAnswerTokens},
    {"max_completion_tokens", kRaw, kTokens},
    {"max_output_tokens", kAll, kAnswerTokens},
    {"n_predict", kChatOnly, kAnswerTokens},
    {"n_predict", kRaw, kTokens},
    {"min_tokens", kAll, R"({"type":["integer","null"],"minimum":0,"maximum":4294967295})"},
    {"ignore_eos", kAll, kBool},
    {"echo", kAll, kBool},
    {"stop", kAll, kStops},
    {"stop_sequences", kAll, kStops},
    {"stop_token_ids", kAll,
     R"({"type":["array","null"],"maxItems":64,"items":{"type":"integer","minimum":0,)"
     R"("maximum":2147483647}})"},
    {"temperature", kAll, R"({"type":["number","null"],"minimum":0,"maximum":100})"},
    {"top_p", kAll, kShare},
    {"top_k", kAll, R"({"type":["integer","null"],"minimum":-1})"},
    {"min_p", kAll, R"({"type":["number","null"],"minimum":0,"maximum":1})"},
    {"typical_p", kAll, kShare},
    {"repetition_penalty", kAll, kRepetition},
    {"repeat_penalty", kAll, kRepetition},
    {"repeat_last_n", kAll, R"({"type":["integer","null"],"minimum":-1,"maximum":4294967295})"},
    {"presence_penalty", kAll, kPenalty},
    {"frequency_penalty", kAll, kPenalty},
    {"logit_bias", kAll,
     R"({"anyOf":[{"type":"null"},{"type":"object","maxProperties":300,)"
     R"("propertyNames":{"pattern":"^(0|[1-9][0-9]{0,8})$"},"additionalProperties":)"
     R"({"anyOf":[{"const":false},{"type":"number","minimum":-100,"maximum":100}]}},)"
     R"({"type":"array","maxItems":300,"items":{"type":"array","minItems":2,"maxItems":2,)"
     R"("prefixItems":[{"type":"integer","minimum":0,"maximum":2147483647},)"
     R"({"anyOf":[{"const":false},{"type":"number","minimum":-100,"maximum":100}]}]}}]})"},
    {"seed", kAll, R"({"type":["integer","null"]})"},
    {"logprobs", kChatOnly, kBool},
    {"logprobs", kCompletionsOnly, kScores},
    {"include", kAll,
     R"({"type":["array","null"],"items":{"enum":["message.output_text.logprobs"]}})"},
    {"metadata", kAll,
     R"({"type":["object","null"],"maxProperties":16,"propertyNames":{"maxLength":64},)"
     R"("additionalProperties":{"type":"string","maxLength":512}})"},
    {"top_logprobs", kAll, kScores},
    {"prompt_logprobs", kAll, kScores},
    {"n_probs", kAll, kScores},
    {"timeout", kAll, R"({"type":["number","null"],"exclusiveMinimum":0,"maximum":86400})"},
    {"priority", kAll, R"({"type":["integer","null"],"minimum":-1000000,"maximum":1000000})"},
    {"return_progress", kAll, kBool},
    {"return_tokens", kAll, kBool},
};

constexpr ConvertField kConvertFields[] = {
    {Route::kTokenize, "content", kText},
    {Route::kTokenize, "prompt", kText},
    {Route::kTokenize, "messages", kConversation},
    {Route::kTokenize, "add_special", kBool},
    {Route::kTokenize, "add_special_tokens", kBool},
    {Route::kTokenize, "parse_special", kBool},
    {Route::kTokenize, "with_pieces", kBool},
    {Route::kTokenize, "return_token_strs", kBool},
    {Route::kDetokenize, "tokens", kIds},
    {Route::kApplyTemplate, "messages", kConversation},
    {Route::kCountTokens, "messages", kConversation},
    {Route::kCountTokens, "system", kTextOrParts},
};

constexpr std::string_view kObject = R"({"type":"object"})";
constexpr std::string_view kModel =
    R"({"type":"object","required":["id","object","created","owned_by"],"properties":{)"
    R"("id":{"type":"string"},"object":{"const":"model"},"created":{"type":"integer"}}})";

struct AnswerRow {
  Route route;
  std::string_view schema;
};
constexpr AnswerRow kAnswers[] = {
    {Route::kChat,
     R"({"type":"object","required":["id","object","created","model","choices","usage"],)"
     R"("properties":{"object":{"const":"chat.completion"},"choices":{"type":"array",)"
     R"("minItems":1,"items":{"type":"object","required":["index","message","finish_reason"],)"
     R"("properties":{"index":{"type":"integer"},"message":{"type":"object",)"
     R"("required":["role","content"],"properties":{"role":{"const":"assistant"},)"
     R"("content":{"type":"string"}}},"finish_reason":{"enum":["stop","length"]}}}},)"
     R"("usage":{"type":"object",)"
     R"("required":["prompt_tokens","completion_tokens","total_tokens"]}}})"},
    {Route::kCompletions,
     R"({"type":"object","required":["id","object","created","model","choices","usage"],)"
     R"("properties":{"object":{"const":"text_completion"},"choices":{"type":"array",)"
     R"("minItems":1,"items":{"type":"object",)"
     R"("required":["index","text","logprobs","finish_reason"],"properties":{)"
     R"("text":{"type":"string"},"finish_reason":{"enum":["stop","length"]}}}},)"
     R"("usage":{"type":"object",)"
     R"("required":["prompt_tokens","completion_tokens","total_tokens"]}}})"},
    {Route::kCompletion,
     R"({"anyOf":[{"$ref":"#/components/schemas/Completion"},)"
     R"({"type":"array","minItems":2,"items":{"$ref":"#/components/schemas/Completion"}}]})"},
    {Route::kResponses,
     R"({"type":"object","required":["id","object","created_at","status","model","output",)"
     R"("usage"],"properties":{"object":{"const":"response"},)"
     R"("status":{"enum":["completed","incomplete"]},"output":{"type":"array","minItems":1}}})"},
    {Route::kMessages,
     R"({"type":"object","required":["id","type","role","model","content","stop_reason",)"
     R"("stop_sequence","usage"],"properties":{"type":{"const":"message"},)"
     R"("role":{"const":"assistant"},"content":{"type":"array"},)"
     R"("stop_reason":{"enum":["end_turn","max_tokens","stop_sequence"]}}})"},
    {Route::kTokenize,
     R"({"type":"object","required":["count","max_model_len","tokens"],"properties":{)"
     R"("count":{"type":"integer","minimum":0},"tokens":{"type":"array"}}})"},
    {Route::kDetokenize, R"({"type":"object","required":["content","prompt"],"properties":{)"
                         R"("content":{"type":"string"},"prompt":{"type":"string"}}})"},
    {Route::kApplyTemplate,
     R"({"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"}}})"},
    {Route::kCountTokens, R"({"type":"object","required":["input_tokens"],)"
                          R"("properties":{"input_tokens":{"type":"integer","minimum":1}}})"},
    {Route::kModels, R"({"type":"object","required":["object","data"],"properties":{)"
                     R"("object":{"const":"list"},"data":{"type":"array","minItems":1}}})"},
    {Route::kModel, kModel},
    {Route::kSlots,
     R"({"type":"array","items":{"type":"object","required":["id","n_ctx","is_processing"]}})"},
    {Route::kTokenizerInfo, R"({"type":"object","required":["eos_token","chat_template"]})"},
    {Route::kVersion, R"({"type":"object","required":["version"]})"},
    {Route::kMetrics, R"({"type":"string"})"},
    {Route::kIcon, R"({"type":"string"})"},
};

}  // namespace

std::string_view FieldSchema(Api api, std::string_view name) {
  const auto* found = std::find_if(std::begin(kFields), std::end(kFields), [=](const auto& row) {
    return row.name == name && (row.apis & ApiBit(api)) != 0;
  });
  return found == std::end(kFields) ? std::string_view() : found->schema;
}

std::span<const ConvertField> ConvertFields() { return kConvertFields; }

std::string_view RequiredField(Route route) {
  switch (route) {
    case Route::kChat:
    case Route::kMessages:
    case Route::kApplyTemplate:
    case Route::kCountTokens:
      return "messages";
    case Route::kCompletions:
    case Route::kCompletion:
      return "prompt";
    case Route::kResponses:
      return "input";
    case Route::kDetokenize:
      return "tokens";
    default:
      return "";
  }
}

std::string_view AnswerSchema(Route route) {
  const auto* found = std::find_if(std::begin(kAnswers), std::end(kAnswers),
                                   [route](const AnswerRow& row) { return row.route == route; });
  return found == std::end(kAnswers) ? kObject : found->schema;
}

}  // namespace kvrm
