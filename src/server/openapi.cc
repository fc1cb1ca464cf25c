#include "server/openapi.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "server/json_writer.h"
#include "server/openai_fields.h"
#include "server/routes.h"

namespace kvrm {
namespace {

struct SchemaRow {
  std::string_view name;
  std::string_view schema;
};

constexpr std::string_view kBool = R"({"type":["boolean","null"]})";
constexpr std::string_view kText = R"({"type":["string","null"]})";
constexpr std::string_view kTokens = R"({"type":["integer","null"],"minimum":-1})";
constexpr std::string_view kConversation =
    R"({"type":"array","minItems":1,"maxItems":4096,"items":{"type":"object",)"
    R"("required":["role","content"],"properties":{)"
    R"("role":{"enum":["system","developer","user","assistant"]},)"
    R"("content":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object",)"
    R"("required":["type","text"],"properties":{"type":{"enum":["text"]},)"
    R"("text":{"type":"string"}}}}]}}}})";
constexpr std::string_view kPenalty = R"({"type":["number","null"],"minimum":-2,"maximum":2})";
constexpr std::string_view kRepetition =
    R"({"type":["number","null"],"exclusiveMinimum":0,"maximum":100})";
constexpr std::string_view kStops =
    R"({"anyOf":[{"type":"null"},{"type":"string","minLength":1},)"
    R"({"type":"array","maxItems":32,"items":{"type":"string","minLength":1}}]})";
constexpr std::string_view kTextOrParts =
    R"({"anyOf":[{"type":"null"},{"type":"string"},{"type":"array","items":{"type":"object"}}]})";
constexpr std::string_view kIds = R"({"type":"array","items":{"type":"integer","minimum":0}})";

// Every field that some reader reads; one meaning a name, whichever the API.
constexpr SchemaRow kSchemas[] = {
    {"model", kText},
    {"messages", kConversation},
    {"system", kTextOrParts},
    {"instructions", kTextOrParts},
    {"input", R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]})"},
    {"prompt", R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1}]})"},
    {"stream", kBool},
    {"stream_options", R"({"type":["object","null"],"properties":{)"
                       R"("include_usage":{"type":["boolean","null"]},)"
                       R"("continuous_usage_stats":{"type":["boolean","null"]}}})"},
    {"n", R"({"type":["integer","null"],"minimum":1,"maximum":16})"},
    {"max_tokens", kTokens},
    {"max_completion_tokens", kTokens},
    {"max_output_tokens", kTokens},
    {"n_predict", kTokens},
    {"min_tokens", R"({"type":["integer","null"],"minimum":0})"},
    {"ignore_eos", kBool},
    {"echo", kBool},
    {"stop", kStops},
    {"stop_sequences", kStops},
    {"stop_token_ids", kIds},
    {"temperature", R"({"type":["number","null"],"minimum":0,"maximum":100})"},
    {"top_p", R"({"type":["number","null"],"exclusiveMinimum":0,"maximum":1})"},
    {"top_k", R"({"type":["integer","null"],"minimum":-1})"},
    {"min_p", R"({"type":["number","null"],"minimum":0,"maximum":1})"},
    {"typical_p", R"({"type":["number","null"],"exclusiveMinimum":0,"maximum":1})"},
    {"repetition_penalty", kRepetition},
    {"repeat_penalty", kRepetition},
    {"repeat_last_n", R"({"type":["integer","null"],"minimum":-1})"},
    {"presence_penalty", kPenalty},
    {"frequency_penalty", kPenalty},
    {"logit_bias", R"({"type":["object","null"],"additionalProperties":)"
                   R"({"type":"number","minimum":-100,"maximum":100}})"},
    {"seed", R"({"type":["integer","null"]})"},
    {"logprobs", R"({"anyOf":[{"type":"null"},{"type":"boolean"},{"type":"integer"}]})"},
    {"top_logprobs", R"({"type":["integer","null"],"minimum":0,"maximum":20})"},
    {"prompt_logprobs", R"({"type":["integer","null"],"minimum":0,"maximum":20})"},
    {"n_probs", R"({"type":["integer","null"],"minimum":0,"maximum":20})"},
    {"timeout", R"({"type":["number","null"],"exclusiveMinimum":0,"maximum":86400})"},
    {"priority", R"({"type":["integer","null"],"minimum":-1000000,"maximum":1000000})"},
    {"return_progress", kBool},
    {"return_tokens", kBool},
};

struct ConvertField {
  Route route;
  std::string_view name;
  std::string_view schema;
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

// What a body must have; "" = one of several.
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

void WriteBody(JsonWriter& json, const RouteInfo& info) {
  json.Key("requestBody").BeginObject().Key("required").Bool(true).Key("content").BeginObject();
  json.Key("application/json").BeginObject().Key("schema").BeginObject();
  json.Key("type").String("object");
  if (const auto required = RequiredField(info.route); !required.empty()) {
    json.Key("required").BeginArray().String(required).EndArray();
  }
  json.Key("properties").BeginObject();
  if (info.kind == RouteKind::kGenerate) {
    for (const auto name : ReadFieldNames(ApiOf(info.route))) json.Key(name).Raw(FieldSchema(name));
  } else {
    for (const auto& field : kConvertFields) {
      if (field.route == info.route) json.Key(field.name).Raw(field.schema);
    }
  }
  json.EndObject().EndObject().EndObject().EndObject().EndObject();
}

void WriteResponses(JsonWriter& json, const RouteInfo& info) {
  const auto content = [&json](std::string_view type, std::string_view schema) {
    json.Key(type).BeginObject().Key("schema").Raw(schema).EndObject();
  };
  json.Key("responses").BeginObject();
  json.Key("200").BeginObject().Key("description").String("the answer");
  json.Key("content").BeginObject();
  if (info.route == Route::kMetrics) {
    content("text/plain", R"({"type":"string"})");
  } else {
    content("application/json",
            info.route == Route::kSlots ? R"({"type":"array"})" : R"({"type":"object"})");
    if (info.kind == RouteKind::kGenerate) content("text/event-stream", R"({"type":"string"})");
  }
  json.EndObject().EndObject();
  json.Key("default").BeginObject().Key("description").String("an error");
  json.Key("content").BeginObject();
  content("application/json", R"({"$ref":"#/components/schemas/Error"})");
  json.EndObject().EndObject().EndObject();
}

void WriteOperation(JsonWriter& json, const RouteInfo& info) {
  json.Key(IsPost(info.route) ? "post" : "get").BeginObject();
  json.Key("summary").String(InfoOf(info.route).summary);
  if (info.route == Route::kModel) {
    json.Key("parameters")
        .Raw(R"([{"name":"id","in":"path","required":true,"schema":{"type":"string"}}])");
  }
  if (IsPost(info.route)) WriteBody(json, info);
  WriteResponses(json, info);
  if (info.open) json.Key("security").BeginArray().EndArray();
  json.EndObject();
}

}  // namespace

std::string_view FieldSchema(std::string_view name) {
  const auto* found = std::find_if(std::begin(kSchemas), std::end(kSchemas),
                                   [name](const SchemaRow& row) { return row.name == name; });
  return found == std::end(kSchemas) ? std::string_view() : found->schema;
}

std::string OpenApiBody(std::string_view version) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("openapi").String("3.1.0").Key("info").BeginObject();
  json.Key("title").String("kvrm").Key("version").String(version).EndObject();
  json.Key("paths").BeginObject();
  for (const RouteInfo& info : AllRoutes()) {
    if (info.kind == RouteKind::kNone) continue;
    json.Key(info.path).BeginObject();
    WriteOperation(json, info);
    json.EndObject();
  }
  json.EndObject();
  json.Key("components")
      .Raw(R"({"securitySchemes":{"key":{"type":"http","scheme":"bearer"}},"schemas":{"Error":)"
           R"({"type":"object","required":["error"],"properties":{"error":{"type":"object",)"
           R"("required":["message","type"],"properties":{"message":{"type":"string"},)"
           R"("type":{"type":"string"},"param":{"type":["string","null"]},)"
           R"("code":{"type":["string","null"]}}}}}}})");
  json.Key("security").Raw(R"([{},{"key":[]}])");
  json.EndObject();
  return out;
}

}  // namespace kvrm
