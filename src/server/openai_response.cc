// Response bodies and stream events, written straight as text.
#include <algorithm>

#include "server/answer_formats.h"
#include "server/json_writer.h"
#include "server/openai_types.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

constexpr std::string_view kFingerprint = "kvrm";

double PerSecond(uint64_t n, double ms) {
  return ms > 0 ? static_cast<double>(n) * 1000.0 / ms : 0;
}
double PerToken(uint64_t n, double ms) { return n > 0 ? ms / static_cast<double>(n) : 0; }

void WriteUsage(JsonWriter& json, const Usage& usage) {
  json.Key("usage").BeginObject();
  json.Key("prompt_tokens").Uint(usage.prompt_tokens);
  json.Key("completion_tokens").Uint(usage.completion_tokens);
  json.Key("total_tokens").Uint(usage.prompt_tokens + usage.completion_tokens);
  json.Key("prompt_tokens_details").BeginObject();
  json.Key("cached_tokens").Uint(usage.cached_tokens).EndObject();
  json.EndObject();
}

// Two tokens may have the same text: the map keeps the likelier. The produced token always stands
// in it, with the very number of token_logprobs: evaluation harnesses compare the two for equality.
void WriteTopMap(JsonWriter& json, const TokenInfo& token) {
  std::vector<std::pair<std::string, float>> entries;
  const auto add = [&entries](const std::string& bytes, float logprob) {
    std::string text = SanitizeUtf8(bytes);
    const auto same = std::find_if(entries.begin(), entries.end(),
                                   [&text](const auto& entry) { return entry.first == text; });
    if (same == entries.end()) {
      entries.emplace_back(std::move(text), logprob);
    } else {
      same->second = std::max(same->second, logprob);
    }
  };
  for (const LikelyToken& other : token.top) add(other.bytes, other.logprob);
  add(token.bytes, token.logprob);
  json.BeginObject();
  for (const auto& [text, logprob] : entries) json.Key(text).Float(logprob);
  json.EndObject();
}

void WriteLogprob(JsonWriter& json, const TokenInfo& token) {
  if (token.scored) {
    json.Float(token.logprob);
  } else {
    json.Null();
  }
}

void WriteCompletionLogprobs(JsonWriter& json, const std::vector<TokenInfo>& tokens) {
  json.BeginObject();
  json.Key("tokens").BeginArray();
  for (const auto& token : tokens) json.String(SanitizeUtf8(token.bytes));
  json.EndArray().Key("token_logprobs").BeginArray();
  for (const auto& token : tokens) WriteLogprob(json, token);
  json.EndArray().Key("top_logprobs").BeginArray();
  for (const auto& token : tokens) {
    if (token.scored) {
      WriteTopMap(json, token);
    } else {
      json.Null();
    }
  }
  json.EndArray().Key("text_offset").BeginArray();
  for (const auto& token : tokens) json.Uint(token.text_offset);
  json.EndArray().EndObject();
}

void WriteLogprobs(JsonWriter& json, Api api, const std::vector<TokenInfo>* tokens) {
  json.Key("logprobs");
  if (tokens == nullptr) {
    json.Null();
  } else if (api == Api::kChat) {
    json.BeginObject().Key("content");
    WriteTokenLogprobs(json, *tokens);
    json.EndObject();
  } else {
    WriteCompletionLogprobs(json, *tokens);
  }
}

// vLLM's: null for the first token, then {"<id>": {"logprob", "rank", "decoded_token"}} for each.
void WritePromptLogprobs(JsonWriter& json, const PromptLogprobs& places) {
  json.Key("prompt_logprobs").BeginArray().Null();
  for (const auto& place : places) {
    json.BeginObject();
    for (const PromptLogprob& entry : place) {
      json.Key(std::to_string(entry.id)).BeginObject();
      json.Key("logprob").Float(entry.logprob).Key("rank").Uint(entry.rank);
      json.Key("decoded_token").String(SanitizeUtf8(entry.bytes)).EndObject();
    }
    json.EndObject();
  }
  json.EndArray();
}

void WriteHead(JsonWriter& json, const ResponseHead& head, std::string_view object) {
  json.Key("id").String(head.id).Key("object").String(object);
  json.Key("created").Int(head.created_s).Key("model").String(head.model);
  // Answers of equal fingerprints are comparable; those of a lossy view are not with others.
  std::string fingerprint(kFingerprint);
  if (!head.lossy_view.empty()) fingerprint += "-" + head.lossy_view;
  json.Key("system_fingerprint").String(fingerprint);
}

void WriteModel(JsonWriter& json, std::string_view model, int64_t created_s, uint32_t ctx) {
  json.BeginObject().Key("id").String(model).Key("object").String("model");
  json.Key("created").Int(created_s).Key("owned_by").String("kvrm");
  json.Key("max_model_len").Uint(ctx).EndObject();
}

void WriteNullable(JsonWriter& json, std::string_view key, const std::string& text) {
  json.Key(key);
  if (text.empty()) {
    json.Null();
  } else {
    json.String(SanitizeUtf8(text));
  }
}

// Ends "choices", the chunk and the event.
void EndChunk(JsonWriter& json, std::string& out, bool usage_null, const Usage* usage,
              const Timings* timings) {
  json.EndArray();
  if (usage != nullptr) {
    WriteUsage(json, *usage);
  } else if (usage_null) {
    json.Key("usage").Null();
  }
  if (timings != nullptr) WriteTimings(json, *timings);
  json.EndObject();
  out += "\n\n";
}

}  // namespace

void WriteToken(JsonWriter& json, const std::string& bytes, float logprob) {
  json.Key("token").String(SanitizeUtf8(bytes)).Key("logprob").Float(logprob);
  json.Key("bytes").BeginArray();
  for (const char c : bytes) json.Uint(static_cast<unsigned char>(c));
  json.EndArray();
}

void WriteTokenLogprobs(JsonWriter& json, const std::vector<TokenInfo>& tokens) {
  json.BeginArray();
  for (const TokenInfo& token : tokens) {
    json.BeginObject();
    WriteToken(json, token.bytes, token.logprob);
    json.Key("top_logprobs").BeginArray();
    for (const LikelyToken& other : token.top) {
      json.BeginObject();
      WriteToken(json, other.bytes, other.logprob);
      json.EndObject();
    }
    json.EndArray().EndObject();
  }
  json.EndArray();
}

void WriteTimings(JsonWriter& json, const Timings& t) {
  json.Key("timings").BeginObject();
  json.Key("cache_n").Uint(t.cache_n);
  json.Key("prompt_n").Uint(t.prompt_n);
  json.Key("prompt_ms").Double(t.prompt_ms);
  json.Key("prompt_per_token_ms").Double(PerToken(t.prompt_n, t.prompt_ms));
  json.Key("prompt_per_second").Double(PerSecond(t.prompt_n, t.prompt_ms));
  json.Key("predicted_n").Uint(t.predicted_n);
  json.Key("predicted_ms").Double(t.predicted_ms);
  json.Key("predicted_per_token_ms").Double(PerToken(t.predicted_n, t.predicted_ms));
  json.Key("predicted_per_second").Double(PerSecond(t.predicted_n, t.predicted_ms));
  json.EndObject();
}

void WriteView(JsonWriter& json, const ResponseHead& head) {
  if (!head.lossy_view.empty()) json.Key("view").String(head.lossy_view);
}

void WriteProgress(JsonWriter& json, const PromptProgress& progress) {
  json.Key("prompt_progress").BeginObject().Key("total").Uint(progress.total);
  json.Key("cache").Uint(progress.cached).Key("processed").Uint(progress.processed);
  json.Key("time_ms").Int(progress.time_us / 1000).EndObject();
}

std::string ErrorBody(const ApiError& error) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("error").BeginObject();
  json.Key("message").String(SanitizeUtf8(error.message));
  json.Key("type").String(SanitizeUtf8(error.type));
  WriteNullable(json, "param", error.param);
  WriteNullable(json, "code", error.code);
  json.EndObject().EndObject();
  return out;
}

std::string ModelBody(std::string_view model, int64_t created_s, uint32_t ctx) {
  std::string out;
  JsonWriter json(out);
  WriteModel(json, model, created_s, ctx);
  return out;
}

std::string ModelListBody(std::string_view model, int64_t created_s, uint32_t ctx) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("object").String("list").Key("data").BeginArray();
  WriteModel(json, model, created_s, ctx);
  json.EndArray().EndObject();
  return out;
}

std::string ResponseBody(const ResponseHead& head, std::span<const ChoiceResult> choices,
                         const Usage& usage, const Timings& timings) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  WriteHead(json, head, head.api == Api::kChat ? "chat.completion" : "text_completion");
  json.Key("choices").BeginArray();
  for (const auto& choice : choices) {
    json.BeginObject().Key("index").Uint(choice.index);
    if (head.api == Api::kChat) {
      json.Key("message").BeginObject().Key("role").String("assistant");
      json.Key("content").String(choice.text).EndObject();
    } else {
      json.Key("text").String(choice.text);
    }
    WriteLogprobs(json, head.api, choice.logprobs);
    if (choice.prompt_logprobs != nullptr && head.api == Api::kCompletions) {
      WritePromptLogprobs(json, *choice.prompt_logprobs);
    }
    json.Key("finish_reason").String(choice.finish_reason).EndObject();
  }
  json.EndArray();
  if (head.api == Api::kChat && !choices.empty() && choices[0].prompt_logprobs != nullptr) {
    WritePromptLogprobs(json, *choices[0].prompt_logprobs);
  }
  WriteUsage(json, usage);
  WriteTimings(json, timings);
  json.EndObject();
  return out;
}

// ---- chunks
ChunkWriter::ChunkWriter(const ResponseHead& head, bool usage_null)
    : api_(head.api), usage_null_(usage_null), prefix_("data: ") {
  JsonWriter json(prefix_);
  json.BeginObject();
  WriteHead(json, head, api_ == Api::kChat ? "chat.completion.chunk" : "text_completion");
  json.Key("choices").BeginArray();
}

void ChunkWriter::Role(std::string& out, uint32_t index, const Usage* usage) const {
  JsonWriter json(out);
  json.Raw(prefix_, /*complete=*/false).BeginObject().Key("index").Uint(index);
  json.Key("delta").BeginObject().Key("role").String("assistant");
  json.Key("content").String("").EndObject();
  json.Key("logprobs").Null().Key("finish_reason").Null().EndObject();
  EndChunk(json, out, usage_null_, usage, nullptr);
}

void ChunkWriter::Progress(std::string& out, uint32_t index, const PromptProgress& progress) const {
  JsonWriter json(out);
  json.Raw(prefix_, /*complete=*/false).BeginObject().Key("index").Uint(index);
  if (api_ == Api::kChat) {
    json.Key("delta").BeginObject().EndObject();
  } else {
    json.Key("text").String("");
  }
  json.Key("logprobs").Null().Key("finish_reason").Null().EndObject().EndArray();
  if (usage_null_) json.Key("usage").Null();
  WriteProgress(json, progress);
  json.EndObject();
  out += "\n\n";
}

void ChunkWriter::Text(std::string& out, uint32_t index, std::string_view text,
                       const std::vector<TokenInfo>* logprobs, const Usage* usage) const {
  JsonWriter json(out);
  json.Raw(prefix_, /*complete=*/false).BeginObject().Key("index").Uint(index);
  if (api_ == Api::kChat) {
    json.Key("delta").BeginObject().Key("content").String(text).EndObject();
  } else {
    json.Key("text").String(text);
  }
  WriteLogprobs(json, api_, logprobs);
  json.Key("finish_reason").Null().EndObject();
  EndChunk(json, out, usage_null_, usage, nullptr);
}

void ChunkWriter::Finish(std::string& out, uint32_t index, std::string_view finish_reason,
                         const std::vector<TokenInfo>* logprobs, const Usage* usage,
                         const Timings* timings) const {
  JsonWriter json(out);
  json.Raw(prefix_, /*complete=*/false).BeginObject().Key("index").Uint(index);
  if (api_ == Api::kChat) {
    json.Key("delta").BeginObject().EndObject();
  } else {
    json.Key("text").String("");
  }
  WriteLogprobs(json, api_, logprobs);
  json.Key("finish_reason").String(finish_reason).EndObject();
  EndChunk(json, out, usage_null_, usage, timings);
}

void ChunkWriter::UsageOnly(std::string& out, const Usage& usage, const Timings& timings) const {
  JsonWriter json(out);
  json.Raw(prefix_, /*complete=*/false);
  EndChunk(json, out, usage_null_, &usage, &timings);
}

void AppendErrorEvent(std::string& out, const ApiError& error) {
  out += "data: ";
  out += ErrorBody(error);
  out += "\n\n";
}

void AppendDoneEvent(std::string& out) { out += "data: [DONE]\n\n"; }

}  // namespace kvrm
