#include "server/request_log.h"

#include <cstdio>
#include <ctime>

#include "server/json_writer.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

constexpr double kUsPerMs = 1000.0;

double Ms(int64_t us) { return static_cast<double>(us) / kUsPerMs; }

std::string MsText(int64_t us) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1fms", Ms(us));
  return text;
}

// RFC 3339, UTC, with milliseconds.
std::string TimeText(int64_t unix_us) {
  const auto seconds = static_cast<std::time_t>(unix_us / 1'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[40];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  const int millis = static_cast<int>(unix_us / 1000 % 1000);
  std::snprintf(text + length, sizeof(text) - length, ".%03dZ", millis);
  return text;
}

void BeginLine(JsonWriter& json, int64_t unix_us, std::string_view event) {
  json.BeginObject().Key("time").String(TimeText(unix_us)).Key("event").String(event);
}

void WriteAnswer(JsonWriter& json, const AnswerRecord& answer) {
  json.Key("prompt_tokens").Uint(answer.totals.usage.prompt_tokens);
  json.Key("cached_tokens").Uint(answer.totals.usage.cached_tokens);
  json.Key("output_tokens").Uint(answer.totals.usage.completion_tokens);
  json.Key("choices").Uint(answer.choices);
  if (!answer.finish_reason.empty()) json.Key("finish_reason").String(answer.finish_reason);
  json.Key("queued_ms").Double(Ms(answer.queued_us));
  json.Key("longest_gap_ms").Double(Ms(answer.longest_gap_us));
}

std::string JsonLine(const RequestRecord& record, int64_t unix_us) {
  std::string out;
  JsonWriter json(out);
  BeginLine(json, unix_us, "request");
  json.Key("request_id").String(record.id).Key("route").String(record.route);
  json.Key("status").Int(record.status).Key("client_gone").Bool(record.client_gone);
  if (!record.trace.empty()) json.Key("traceparent").String(record.trace);
  if (!record.key.empty()) json.Key("key").String(record.key);
  if (!record.error_code.empty()) json.Key("error").String(SanitizeUtf8(record.error_code));
  if (record.answer) WriteAnswer(json, *record.answer);
  if (record.first_output_us) json.Key("first_output_ms").Double(Ms(*record.first_output_us));
  json.Key("total_ms").Double(Ms(record.total_us)).EndObject();
  return out;
}

void Append(std::string& out, std::string_view name, std::string_view value) {
  if (value.empty()) return;
  out.append(" ").append(name).append("=").append(value);
}

std::string TextLine(const RequestRecord& record) {
  std::string out(record.route);
  out += " " + std::to_string(record.status);
  Append(out, "id", record.id);
  Append(out, "trace", record.trace);
  Append(out, "key", record.key);
  Append(out, "error", record.error_code);
  if (record.client_gone) out += " client-gone";
  if (record.answer) {
    const AnswerRecord& answer = *record.answer;
    Append(out, "prompt", std::to_string(answer.totals.usage.prompt_tokens));
    Append(out, "cached", std::to_string(answer.totals.usage.cached_tokens));
    Append(out, "output", std::to_string(answer.totals.usage.completion_tokens));
    Append(out, "finish", answer.finish_reason);
    Append(out, "queued", MsText(answer.queued_us));
    Append(out, "gap", MsText(answer.longest_gap_us));
  }
  if (record.first_output_us) Append(out, "first", MsText(*record.first_output_us));
  Append(out, "total", MsText(record.total_us));
  return out;
}

}  // namespace

std::string LogLine(LogFormat format, const RequestRecord& record, int64_t unix_us) {
  return format == LogFormat::kJson ? JsonLine(record, unix_us) : TextLine(record);
}

std::string LogLine(LogFormat format, std::string_view message, int64_t unix_us) {
  if (format == LogFormat::kText) return std::string(message);
  std::string out;
  JsonWriter json(out);
  BeginLine(json, unix_us, "message");
  json.Key("message").String(SanitizeUtf8(message)).EndObject();
  return out;
}

}  // namespace kvrm
