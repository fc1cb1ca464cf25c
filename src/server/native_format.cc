// llama-server's /completion. Texts of a stream come as `content`; everything else with the last
// event of each prompt, which has `stop` true. There is no [DONE]. The answer to several prompts is
// an array, each entry with the counts of its own.
#include <utility>
#include <vector>

#include "server/answer_formats.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

std::string_view StopType(ChoiceEnd end) {
  switch (end) {
    case ChoiceEnd::kEndToken:
      return "eos";
    case ChoiceEnd::kStopText:
      return "word";
    case ChoiceEnd::kLength:
    case ChoiceEnd::kTimeout:
      return "limit";
    case ChoiceEnd::kNone:
      break;
  }
  return "none";
}

class NativeFormat final : public AnswerFormat {
 public:
  NativeFormat(const ResponseHead& head, const ParsedRequest& request)
      : head_(head),
        sampling_(request.sampling),
        max_tokens_(request.max_tokens),
        stop_(request.stop),
        stream_(request.stream),
        return_tokens_(request.return_tokens),
        probabilities_(request.logprobs && *request.logprobs > 0) {}

  void Begin(std::string&, uint32_t, const Usage*) override {}
  void Progress(std::string& out, uint32_t index, const PromptProgress& progress) override {
    out += "data: ";
    JsonWriter json(out);
    json.BeginObject().Key("index").Uint(index).Key("content").String("");
    WriteTokens(json, nullptr);
    json.Key("stop").Bool(false);
    WriteProgress(json, progress);
    json.EndObject();
    out += "\n\n";
  }
  void Text(std::string& out, uint32_t index, std::string_view text,
            const std::vector<TokenInfo>* logprobs, const Usage*) override {
    NoteNewLine(index, text);
    out += "data: ";
    JsonWriter json(out);
    json.BeginObject().Key("index").Uint(index).Key("content").String(text);
    WriteTokens(json, logprobs);
    json.Key("stop").Bool(false);
    WriteProbabilities(json, logprobs);
    json.EndObject();
    out += "\n\n";
  }
  void Finish(std::string& out, const ChoiceResult& result, const Usage*,
              const AnswerTotals*) override {
    out += "data: ";
    JsonWriter json(out);
    WriteResult(json, result);
    out += "\n\n";
  }
  void End(std::string&, const AnswerTotals&) override {}
  void Fail(std::string& out, const ApiError& error) override { AppendErrorEvent(out, error); }
  std::string Whole(std::span<const ChoiceResult> results, const AnswerTotals&) override {
    std::string out;
    JsonWriter json(out);
    if (results.size() > 1) json.BeginArray();
    for (const ChoiceResult& result : results) {
      NoteNewLine(result.index, result.text);
      WriteResult(json, result);
    }
    if (results.size() > 1) json.EndArray();
    return out;
  }

 private:
  void NoteNewLine(uint32_t index, std::string_view text) {
    if (index >= has_new_line_.size()) has_new_line_.resize(index + 1);
    if (text.find('\n') != std::string_view::npos) has_new_line_[index] = true;
  }

  void WriteTokens(JsonWriter& json, const std::vector<TokenInfo>* tokens) const {
    json.Key("tokens").BeginArray();
    if (return_tokens_ && tokens != nullptr) {
      for (const TokenInfo& token : *tokens) json.Int(token.id);
    }
    json.EndArray();
  }

  static void WriteLikely(JsonWriter& json, TokenId id, const std::string& bytes, float logprob) {
    json.BeginObject().Key("id").Int(id);
    WriteToken(json, bytes, logprob);
  }

  void WriteProbabilities(JsonWriter& json, const std::vector<TokenInfo>* tokens) const {
    if (!probabilities_ || tokens == nullptr) return;
    json.Key("completion_probabilities").BeginArray();
    for (const TokenInfo& token : *tokens) {
      WriteLikely(json, token.id, token.bytes, token.logprob);
      json.Key("top_logprobs").BeginArray();
      for (const LikelyToken& other : token.top) {
        WriteLikely(json, other.id, other.bytes, other.logprob);
        json.EndObject();
      }
      json.EndArray().EndObject();
    }
    json.EndArray();
  }

  void WriteSettings(JsonWriter& json) const {
    json.Key("generation_settings").BeginObject();
    json.Key("temperature").Float(sampling_.temperature).Key("top_k").Uint(sampling_.top_k);
    json.Key("top_p").Float(sampling_.top_p).Key("min_p").Float(sampling_.min_p);
    json.Key("repeat_penalty").Float(sampling_.repetition_penalty);
    json.Key("n_predict").Int(max_tokens_ ? int64_t{*max_tokens_} : -1);
    json.Key("stop").BeginArray();
    for (const std::string& text : stop_) json.String(text);
    json.EndArray().Key("stream").Bool(stream_).EndObject();
  }

  void WriteResult(JsonWriter& json, const ChoiceResult& result) const {
    const Usage& usage = result.usage;
    const bool has_new_line = result.index < has_new_line_.size() && has_new_line_[result.index];
    json.BeginObject().Key("index").Uint(result.index).Key("content").String(result.text);
    WriteTokens(json, result.logprobs);
    json.Key("stop").Bool(true).Key("model").String(head_.model);
    WriteView(json, head_);
    json.Key("tokens_predicted").Uint(usage.completion_tokens);
    json.Key("tokens_evaluated").Uint(usage.prompt_tokens);
    json.Key("tokens_cached").Uint(usage.prompt_tokens + usage.completion_tokens);
    WriteSettings(json);
    json.Key("has_new_line").Bool(has_new_line).Key("truncated").Bool(false);
    json.Key("stop_type").String(StopType(result.end));
    json.Key("stopping_word").String(result.stop_text);
    WriteProbabilities(json, result.logprobs);
    WriteTimings(json, result.timings);
    json.EndObject();
  }

  const ResponseHead head_;
  const SamplingParams sampling_;
  const std::optional<uint32_t> max_tokens_;
  const std::vector<std::string> stop_;
  const bool stream_, return_tokens_, probabilities_;
  std::vector<bool> has_new_line_;  // [choices], as far as something came
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeNativeFormat(const ResponseHead& head,
                                               const ParsedRequest& request) {
  return std::make_unique<NativeFormat>(head, request);
}

}  // namespace kvrm
