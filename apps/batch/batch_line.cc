#include "batch/batch_line.h"

#include <boost/json.hpp>
#include <optional>

#include "server/json_body.h"
#include "server/json_writer.h"
#include "text/text_stream.h"
#include "text/utf8.h"

namespace kvrm::cli {
namespace {

namespace json = boost::json;

constexpr size_t kRepeatedBytes = 64;  // of a line, in a message

struct Endpoint {
  std::string_view url;
  Api api;
};
constexpr Endpoint kEndpoints[] = {{"/v1/chat/completions", Api::kChat},
                                   {"/v1/completions", Api::kCompletions},
                                   {"/v1/responses", Api::kResponses}};

// Null when it is absent or no text.
const json::string* TextField(const json::object& line, std::string_view name) {
  const json::value* value = line.if_contains(name);
  return value == nullptr ? nullptr : value->if_string();
}

BatchFault Fault(const std::string& custom_id, std::string code, const std::string& message) {
  return {custom_id, std::move(code), SanitizeUtf8(message)};
}

void WriteNullable(JsonWriter& writer, std::string_view key, std::string_view text) {
  writer.Key(key);
  if (text.empty()) {
    writer.Null();
  } else {
    writer.String(text);
  }
}

}  // namespace

std::variant<BatchRequest, BatchFault> ReadBatchLine(std::string_view line) {
  JsonBody parsed;
  if (const auto error = parsed.Parse(line)) return Fault("", "invalid_json", error->message);
  const json::object& object = parsed.object();
  const json::string* id = TextField(object, "custom_id");
  if (id == nullptr || id->empty() || id->size() > kMaxCustomIdBytes ||
      id->find('\0') != json::string::npos) {
    return Fault("", "invalid_request",
                 "custom_id: must be text of 1 to " + std::to_string(kMaxCustomIdBytes) +
                     " bytes, none of them U+0000");
  }
  BatchRequest request;
  request.custom_id.assign(id->data(), id->size());
  const json::string* method = TextField(object, "method");
  if (method == nullptr || *method != "POST") {
    return Fault(request.custom_id, "invalid_method", "method: must be \"POST\"");
  }
  const json::string* url = TextField(object, "url");
  const Endpoint* endpoint = nullptr;
  for (const Endpoint& known : kEndpoints) {
    if (url != nullptr && std::string_view(url->data(), url->size()) == known.url) {
      endpoint = &known;
    }
  }
  if (endpoint == nullptr) {
    std::string known;
    for (const Endpoint& each : kEndpoints) known += ", " + std::string(each.url);
    return Fault(request.custom_id, "invalid_url", "url: must be one of " + known.substr(2));
  }
  request.api = endpoint->api;
  const json::value* body = object.if_contains("body");
  if (body == nullptr || !body->is_object()) {
    return Fault(request.custom_id, "invalid_request", "body: must be an object");
  }
  request.body = json::serialize(*body);
  return request;
}

std::string AnswerId(uint64_t number) { return "line-" + std::to_string(number); }

std::string AnswerLine(uint64_t number, std::string_view custom_id, int status,
                       std::string_view body) {
  std::string line;
  JsonWriter writer(line);
  writer.BeginObject().Key("id").String(AnswerId(number));
  writer.Key("custom_id").String(custom_id);
  writer.Key("response").BeginObject().Key("status_code").Int(status);
  writer.Key("request_id").String(AnswerId(number)).Key("body").Raw(body).EndObject();
  writer.Key("error").Null().EndObject();
  return line + "\n";
}

std::string FaultLine(uint64_t number, const BatchFault& fault) {
  std::string line;
  JsonWriter writer(line);
  writer.BeginObject().Key("id").String(AnswerId(number));
  WriteNullable(writer, "custom_id", fault.custom_id);
  writer.Key("response").Null().Key("error").BeginObject();
  writer.Key("code").String(fault.code);
  writer.Key("message").String("line " + std::to_string(number) + ": " + fault.message);
  writer.EndObject().EndObject();
  return line + "\n";
}

Result<AnsweredLine> ReadAnswerLine(std::string_view line) {
  json::error_code error;
  const json::value value = json::parse(line, error);
  const json::object* object = error ? nullptr : value.if_object();
  const json::string* id = object == nullptr ? nullptr : TextField(*object, "id");
  if (id == nullptr || !object->contains("custom_id") || !object->contains("response")) {
    return InvalidInput("'" + ForMessage(line, kRepeatedBytes) + "' is no answer of a batch");
  }
  AnsweredLine answered;
  answered.id.assign(id->data(), id->size());
  if (const json::string* custom_id = TextField(*object, "custom_id")) {
    answered.custom_id.assign(custom_id->data(), custom_id->size());
  }
  return answered;
}

}  // namespace kvrm::cli
