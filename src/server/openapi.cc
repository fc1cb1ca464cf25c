#include "server/openapi.h"

#include "server/json_writer.h"
#include "server/openai_fields.h"
#include "server/openapi_schemas.h"
#include "server/routes.h"

namespace kvrm {
namespace {

void WriteBody(JsonWriter& json, const RouteInfo& info) {
  json.Key("requestBody").BeginObject().Key("required").Bool(true).Key("content").BeginObject();
  json.Key("application/json").BeginObject().Key("schema").BeginObject();
  json.Key("type").String("object");
  if (const auto required = RequiredField(info.route); !required.empty()) {
    json.Key("required").BeginArray().String(required).EndArray();
  }
  json.Key("properties").BeginObject();
  if (info.kind == RouteKind::kGenerate) {
    const Api api = ApiOf(info.route);
    for (const auto name : ReadFieldNames(api)) json.Key(name).Raw(FieldSchema(api, name));
  } else {
    for (const auto& field : ConvertFields()) {
      if (field.route == info.route) json.Key(field.name).Raw(field.schema);
    }
  }
  json.EndObject().EndObject().EndObject().EndObject().EndObject();
}

std::string_view AnswerType(Route route) {
  if (route == Route::kMetrics) return "text/plain";
  return route == Route::kIcon ? "image/svg+xml" : "application/json";
}

void WriteResponses(JsonWriter& json, const RouteInfo& info) {
  const auto content = [&json](std::string_view type, std::string_view schema) {
    json.Key(type).BeginObject().Key("schema").Raw(schema).EndObject();
  };
  json.Key("responses").BeginObject();
  json.Key("200").BeginObject().Key("description").String("the answer");
  json.Key("content").BeginObject();
  content(AnswerType(info.route), AnswerSchema(info.route));
  if (info.kind == RouteKind::kGenerate) {
    // Each event, as tools take a stream apart.
    content("text/event-stream",
            R"({"type":"object","required":["data"],"properties":{"data":{"type":"string"},)"
            R"("event":{"type":"string"}}})");
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
           R"("code":{"type":["string","null"]}}}}},"Completion":{"type":"object",)"
           R"("required":["index","content","tokens","stop","model","tokens_predicted",)"
           R"("tokens_evaluated","generation_settings","stop_type","timings"],"properties":{)"
           R"("content":{"type":"string"},"stop":{"const":true},)"
           R"("stop_type":{"enum":["eos","limit","word","none"]}}}}})");
  json.Key("security").Raw(R"([{},{"key":[]}])");
  json.EndObject();
  return out;
}

}  // namespace kvrm
