// Anthropic's /v1/messages: one message of one text block. Its input tokens are those that were
// computed; what came from the cache is counted apart.
#include "server/answer_formats.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

std::string_view ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

class MessagesFormat final : public AnswerFormat {
 public:
  explicit MessagesFormat(const ResponseHead& head) : head_(head) {}

  void Begin(std::string& out, uint32_t, const Usage* usage) override {
    auto json = Event(out, "message_start");
    json.Key("message");
    WriteMessage(json, nullptr, usage == nullptr ? Usage() : *usage);
    EndEvent(out);
    auto block = Event(out, "content_block_start");
    block.Key("index").Uint(0).Key("content_block").BeginObject();
    block.Key("type").String("text").Key("text").String("").EndObject();
    EndEvent(out);
  }
  void Progress(std::string& out, uint32_t, const PromptProgress&) override {
    Event(out, "ping");
    EndEvent(out);
  }
  void Text(std::string& out, uint32_t, std::string_view text, const std::vector<TokenInfo>*,
            const Usage*) override {
    auto json = Event(out, "content_block_delta");
    json.Key("index").Uint(0).Key("delta").BeginObject();
    json.Key("type").String("text_delta").Key("text").String(text).EndObject();
    EndEvent(out);
  }
  void Finish(std::string& out, const ChoiceResult& result, const Usage*,
              const AnswerTotals* totals) override {
    Event(out, "content_block_stop").Key("index").Uint(0);
    EndEvent(out);
    auto json = Event(out, "message_delta");
    json.Key("delta").BeginObject();
    WriteStop(json, &result);
    json.EndObject();
    WriteUsage(json, totals == nullptr ? Usage() : totals->usage);
    EndEvent(out);
  }
  void End(std::string& out, const AnswerTotals&) override {
    Event(out, "message_stop");
    EndEvent(out);
  }
  void Fail(std::string& out, const ApiError& error) override {
    out += "event: error\ndata: " + MessagesErrorBody(error) + "\n\n";
  }
  std::string Whole(std::span<const ChoiceResult> results, const AnswerTotals& totals) override {
    std::string out;
    JsonWriter json(out);
    WriteMessage(json, &results[0], totals.usage);
    return out;
  }

 private:
  // Begins an event; EndEvent closes its object.
  static JsonWriter Event(std::string& out, std::string_view type) {
    out.append("event: ").append(type).append("\ndata: ");
    JsonWriter json(out);
    json.BeginObject().Key("type").String(type);
    return json;
  }
  static void EndEvent(std::string& out) { out += "}\n\n"; }

  static void WriteStop(JsonWriter& json, const ChoiceResult* result) {
    json.Key("stop_reason");
    if (result == nullptr) {
      json.Null().Key("stop_sequence").Null();
      return;
    }
    const bool sequence = result->end == ChoiceEnd::kStopText;
    json.String(sequence                              ? "stop_sequence"
                : result->end == ChoiceEnd::kEndToken ? "end_turn"
                                                      : "max_tokens");
    json.Key("stop_sequence");
    if (sequence) {
      json.String(result->stop_text);
    } else {
      json.Null();
    }
  }

  static void WriteUsage(JsonWriter& json, const Usage& usage) {
    json.Key("usage").BeginObject();
    json.Key("input_tokens").Uint(usage.prompt_tokens - usage.cached_tokens);
    json.Key("cache_creation_input_tokens").Uint(0);
    json.Key("cache_read_input_tokens").Uint(usage.cached_tokens);
    json.Key("output_tokens").Uint(usage.completion_tokens).EndObject();
  }

  // `result` null: it has only begun.
  void WriteMessage(JsonWriter& json, const ChoiceResult* result, const Usage& usage) const {
    json.BeginObject().Key("id").String(head_.id).Key("type").String("message");
    json.Key("role").String("assistant").Key("model").String(head_.model);
    WriteView(json, head_);
    json.Key("content").BeginArray();
    if (result != nullptr) {
      json.BeginObject().Key("type").String("text").Key("text").String(result->text).EndObject();
    }
    json.EndArray();
    WriteStop(json, result);
    WriteUsage(json, usage);
    json.EndObject();
  }

  const ResponseHead head_;
};

}  // namespace

std::string MessagesErrorBody(const ApiError& error) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("type").String("error").Key("error").BeginObject();
  json.Key("type").String(ErrorType(error.status));
  json.Key("message").String(SanitizeUtf8(error.message)).EndObject().EndObject();
  return out;
}

std::unique_ptr<AnswerFormat> MakeMessagesFormat(const ResponseHead& head) {
  return std::make_unique<MessagesFormat>(head);
}

}  // namespace kvrm
