// OpenAI's /v1/responses: one output item, a message of one text part. Its stream is a sequence of
// numbered events, each of which says what it belongs to; the last holds the whole response. There
// is no [DONE].
#include <utility>

#include "server/answer_formats.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

class ResponsesFormat final : public AnswerFormat {
 public:
  ResponsesFormat(const ResponseHead& head, const ParsedRequest& request)
      : head_(head),
        item_id_("msg_" + head.id),
        temperature_(request.sampling.temperature),
        top_p_(request.sampling.top_p),
        max_tokens_(request.max_tokens),
        top_logprobs_(request.logprobs.value_or(0)),
        instructions_(request.instructions),
        metadata_(request.metadata) {}

  void Begin(std::string& out, uint32_t, const Usage*) override {
    for (const char* type : {"response.created", "response.in_progress"}) {
      auto json = Event(out, type);
      json.Key("response");
      WriteResponse(json, "in_progress", nullptr, nullptr);
      EndEvent(out);
    }
    auto item = Event(out, "response.output_item.added");
    item.Key("output_index").Uint(0).Key("item");
    WriteItem(item, "in_progress", nullptr);
    EndEvent(out);
    auto part = PartEvent(out, "response.content_part.added");
    part.Key("part");
    WritePart(part, "", nullptr);
    EndEvent(out);
  }
  void Text(std::string& out, uint32_t, std::string_view text,
            const std::vector<TokenInfo>* logprobs, const Usage*) override {
    text_ += text;
    Keep(logprobs);
    auto json = PartEvent(out, "response.output_text.delta");
    json.Key("delta").String(text);
    WriteLogprobs(json, logprobs);
    EndEvent(out);
  }
  void Finish(std::string& out, const ChoiceResult& result, const Usage*,
              const AnswerTotals*) override {
    // The last tokens may have brought no text: an end token, what completed a stop string.
    Keep(result.logprobs);
    finished_ = result;
    finished_.text = std::move(text_);
    finished_.logprobs = &tokens_;
    auto text = PartEvent(out, "response.output_text.done");
    text.Key("text").String(finished_.text);
    WriteLogprobs(text, finished_.logprobs);
    EndEvent(out);
    auto part = PartEvent(out, "response.content_part.done");
    part.Key("part");
    WritePart(part, finished_.text, finished_.logprobs);
    EndEvent(out);
    auto item = Event(out, "response.output_item.done");
    item.Key("output_index").Uint(0).Key("item");
    WriteItem(item, Status(finished_), &finished_);
    EndEvent(out);
  }
  void End(std::string& out, const AnswerTotals& totals) override {
    const std::string_view status = Status(finished_);
    auto json = Event(out, "response." + std::string(status));
    json.Key("response");
    WriteResponse(json, status, &finished_, &totals.usage);
    EndEvent(out);
  }
  void Fail(std::string& out, const ApiError& error) override {
    auto json = Event(out, "error");
    json.Key("code").String(SanitizeUtf8(error.code.empty() ? error.type : error.code));
    json.Key("message").String(SanitizeUtf8(error.message)).Key("param").Null();
    EndEvent(out);
  }
  std::string Whole(std::span<const ChoiceResult> results, const AnswerTotals& totals) override {
    std::string out;
    JsonWriter json(out);
    WriteResponse(json, Status(results[0]), &results[0], &totals.usage);
    return out;
  }

 private:
  static std::string_view Status(const ChoiceResult& result) {
    return result.finish_reason == "length" ? "incomplete" : "completed";
  }

  // Begins an event; EndEvent closes its object.
  JsonWriter Event(std::string& out, std::string_view type) {
    out.append("event: ").append(type).append("\ndata: ");
    JsonWriter json(out);
    json.BeginObject().Key("type").String(type).Key("sequence_number").Uint(next_event_++);
    return json;
  }
  JsonWriter PartEvent(std::string& out, std::string_view type) {
    JsonWriter json = Event(out, type);
    json.Key("item_id").String(item_id_).Key("output_index").Uint(0).Key("content_index").Uint(0);
    return json;
  }
  static void EndEvent(std::string& out) { out += "}\n\n"; }

  void Keep(const std::vector<TokenInfo>* tokens) {
    if (tokens != nullptr) tokens_.insert(tokens_.end(), tokens->begin(), tokens->end());
  }

  static void WriteLogprobs(JsonWriter& json, const std::vector<TokenInfo>* tokens) {
    json.Key("logprobs");
    if (tokens != nullptr) {
      WriteTokenLogprobs(json, *tokens);
    } else {
      json.BeginArray().EndArray();
    }
  }

  static void WritePart(JsonWriter& json, std::string_view text,
                        const std::vector<TokenInfo>* logprobs) {
    json.BeginObject().Key("type").String("output_text").Key("text").String(text);
    json.Key("annotations").BeginArray().EndArray();
    WriteLogprobs(json, logprobs);
    json.EndObject();
  }

  // `result` null: nothing of it was made yet.
  void WriteItem(JsonWriter& json, std::string_view status, const ChoiceResult* result) const {
    json.BeginObject().Key("id").String(item_id_).Key("type").String("message");
    json.Key("status").String(status).Key("role").String("assistant");
    json.Key("content").BeginArray();
    if (result != nullptr) WritePart(json, result->text, result->logprobs);
    json.EndArray().EndObject();
  }

  // `result` and `usage` null: it has only begun.
  void WriteResponse(JsonWriter& json, std::string_view status, const ChoiceResult* result,
                     const Usage* usage) const {
    json.BeginObject().Key("id").String(head_.id).Key("object").String("response");
    json.Key("created_at").Int(head_.created_s).Key("status").String(status);
    json.Key("error").Null().Key("incomplete_details");
    if (status == "incomplete") {
      json.BeginObject().Key("reason").String("max_output_tokens").EndObject();
    } else {
      json.Null();
    }
    json.Key("model").String(head_.model);
    WriteView(json, head_);
    json.Key("output").BeginArray();
    if (result != nullptr) WriteItem(json, status, result);
    json.EndArray();
    WriteRequest(json);
    WriteUsage(json, usage);
    json.EndObject();
  }

  // What was asked for, as it was understood.
  void WriteRequest(JsonWriter& json) const {
    json.Key("background").Bool(false).Key("instructions");
    if (instructions_) {
      json.String(*instructions_);
    } else {
      json.Null();
    }
    json.Key("max_output_tokens");
    if (max_tokens_) {
      json.Uint(*max_tokens_);
    } else {
      json.Null();
    }
    json.Key("metadata").BeginObject();
    for (const auto& [key, text] : metadata_) json.Key(key).String(text);
    json.EndObject().Key("parallel_tool_calls").Bool(true).Key("previous_response_id").Null();
    json.Key("reasoning").BeginObject().Key("effort").Null().Key("summary").Null().EndObject();
    json.Key("store").Bool(false).Key("temperature").Float(temperature_);
    json.Key("text").BeginObject().Key("format").BeginObject().Key("type").String("text");
    json.EndObject().EndObject().Key("tool_choice").String("auto");
    json.Key("tools").BeginArray().EndArray().Key("top_logprobs").Uint(top_logprobs_);
    json.Key("top_p").Float(top_p_).Key("truncation").String("disabled");
  }

  static void WriteUsage(JsonWriter& json, const Usage* usage) {
    json.Key("usage");
    if (usage == nullptr) {
      json.Null();
      return;
    }
    json.BeginObject().Key("input_tokens").Uint(usage->prompt_tokens);
    json.Key("input_tokens_details").BeginObject().Key("cached_tokens").Uint(usage->cached_tokens);
    json.EndObject().Key("output_tokens").Uint(usage->completion_tokens);
    json.Key("output_tokens_details").BeginObject().Key("reasoning_tokens").Uint(0).EndObject();
    json.Key("total_tokens").Uint(usage->prompt_tokens + usage->completion_tokens).EndObject();
  }

  const ResponseHead head_;
  const std::string item_id_;
  const float temperature_, top_p_;
  const std::optional<uint32_t> max_tokens_;
  const uint32_t top_logprobs_;
  const std::optional<std::string> instructions_;
  const std::vector<std::pair<std::string, std::string>> metadata_;
  uint64_t next_event_ = 0;
  std::string text_;               // of a stream, so far
  std::vector<TokenInfo> tokens_;  // the same, with log-probabilities
  ChoiceResult finished_;
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeResponsesFormat(const ResponseHead& head,
                                                  const ParsedRequest& request) {
  return std::make_unique<ResponsesFormat>(head, request);
}

}  // namespace kvrm
