// The OpenAI API as data: request bodies in, response bodies and stream events out. Pure: no
// socket, no engine, no clock; unit-tested and fuzzed alone. Which field is offered, ignored or
// refused: docs/server.md.
//
// Errors: a bad body is an ApiError whose message names the field's path, the value or its kind,
// and the limit. Whatever bytes come in, every message that goes out is valid UTF-8 (B039).
// Thread-safe: nothing here has state.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "text/chat_template.h"

namespace kvrm {

enum class Api : uint8_t {
  kChat,         // OpenAI: /v1/chat/completions
  kCompletions,  // OpenAI: /v1/completions
  kNative,       // llama-server: /completion
  kResponses,    // OpenAI: /v1/responses
  kMessages,     // Anthropic: /v1/messages
};
inline constexpr uint32_t kNumApis = 5;
// Whether its requests hold a conversation; the others hold prompts.
inline bool HoldsMessages(Api api) { return api != Api::kCompletions && api != Api::kNative; }

// ---- limits on what one request may ask for
inline constexpr uint32_t kMaxJsonDepth = 32;
inline constexpr uint32_t kMaxPrompts = 128;  // entries of `prompt`
inline constexpr uint32_t kMaxN = 16;         // choices of one prompt
inline constexpr uint32_t kMaxChoices = 128;  // prompts * n
inline constexpr uint32_t kMaxMessages = 4096;
inline constexpr uint32_t kMaxStops = 32;
inline constexpr uint32_t kMaxStopBytes = 1024;
inline constexpr uint32_t kMaxStopTokens = 64;
inline constexpr uint32_t kMaxLogprobs = 20;
inline constexpr uint32_t kDefaultCompletionTokens = 16;  // of /v1/completions, as OpenAI's
inline constexpr int64_t kMaxTimeoutSeconds = 86'400;
inline constexpr int32_t kMaxPriority = 1'000'000;     // and its negative
inline constexpr uint32_t kMaxMetadata = 16;           // entries; then 64 and 512 characters
inline constexpr uint32_t kMaxMetadataKeyBytes = 256;  // at most four bytes each
inline constexpr uint32_t kMaxMetadataBytes = 2048;
inline constexpr uint32_t kMaxUnknownFields = 16;  // names remembered for the log

// An error as clients see it: {"error":{"message","type","param","code"}}.
struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;  // path of the field; empty = null
  std::string code;   // empty = null
};
inline ApiError OutOfMemoryError() {
  return {503, "there is no memory for this request now", "unavailable_error", "", "out_of_memory"};
}

// ---- requests
using Prompt = std::variant<std::string, std::vector<TokenId>>;

struct ParsedRequest {
  Api api = Api::kChat;
  std::string model;                  // as asked; empty = not named
  std::vector<ChatMessage> messages;  // at least one where HoldsMessages(api)
  std::vector<Prompt> prompts;        // at least one elsewhere
  uint32_t n = 1;                     // choices per prompt
  bool stream = false;
  bool include_usage = false;               // stream_options.include_usage
  bool continuous_usage = false;            // stream_options.continuous_usage_stats
  SamplingParams sampling;                  // but for seed, choice and num_logprobs
  std::optional<uint64_t> seed;             // none: the server draws one
  std::optional<uint32_t> max_tokens;       // none: to the context's end; 0: the prompt alone
  bool echo = false;                        // completions: the answer begins with the prompt
  std::optional<uint32_t> prompt_logprobs;  // as logprobs, of the prompt's tokens
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  std::optional<uint32_t> logprobs;  // alternatives to report beside each token, 0..kMaxLogprobs
  int64_t timeout_us = 0;            // from its arrival; 0 = none
  int32_t priority = 0;              // higher is served earlier
  bool return_progress = false;      // events while the prompt is read
  bool return_tokens = false;        // kNative: ids of the produced tokens
  // kResponses: repeated in the answer.
  std::optional<std::string> instructions;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> unknown_fields;  // ignored; for the log, at most kMaxUnknownFields
};

// What a request gets for a field that it leaves out: the one place that knows. The server's flags
// fill it, /props shows it.
struct RequestDefaults {
  SamplingParams sampling;             // but for seed, choice and num_logprobs
  std::optional<uint64_t> seed;        // none: drawn for each choice
  std::optional<uint32_t> max_tokens;  // none: to the context's end; of kCompletions: 16
};

// Reads a body. Fields that are absent or null keep their default.
std::variant<ParsedRequest, ApiError> ParseRequest(Api api, std::string_view body,
                                                   const RequestDefaults& defaults);

// ---- responses
// What all chunks of one answer share.
struct ResponseHead {
  Api api = Api::kChat;
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  int64_t created_s = 0;
  std::string model;
  std::string lossy_view;  // EngineConfig::lossy_view
};

struct Usage {
  uint64_t prompt_tokens = 0;      // each prompt once, whatever n
  uint64_t completion_tokens = 0;  // of all choices
  uint64_t cached_tokens = 0;
};

// llama-server's timings: prompt_n counts the tokens really computed.
struct Timings {
  uint64_t cache_n = 0;
  uint64_t prompt_n = 0;
  double prompt_ms = 0;
  uint64_t predicted_n = 0;
  double predicted_ms = 0;
};

// A token that might have stood at a place. Texts are raw bytes: a token may hold half a character;
// `bytes` fields are exact, `token` fields are made valid (B038).
struct LikelyToken {
  std::string bytes;
  float logprob = 0;
  TokenId id = -1;
};

// One produced token with its log-probabilities.
struct TokenInfo {
  std::string bytes;
  float logprob = 0;
  std::vector<LikelyToken> top;  // best first
  uint64_t text_offset = 0;      // characters before it
  TokenId id = -1;
  bool scored = true;  // false: the first token of a prompt, which nothing predicts
};

// What the model said of one place of a prompt: the token that stands there, then the likeliest.
struct PromptLogprob {
  TokenId id = -1;
  float logprob = 0;
  uint32_t rank = 0;  // 1 = the likeliest
  std::string bytes;
};
using PromptLogprobs = std::vector<std::vector<PromptLogprob>>;  // from the second token on

// What ended a choice, more exactly than its finish_reason.
enum class ChoiceEnd : uint8_t { kNone, kEndToken, kLength, kStopText, kTimeout };

struct ChoiceResult {
  uint32_t index = 0;
  std::string text;
  std::string_view finish_reason;
  const std::vector<TokenInfo>* logprobs = nullptr;  // null: not asked for
  const PromptLogprobs* prompt_logprobs = nullptr;   // null: not asked for
  ChoiceEnd end = ChoiceEnd::kNone;
  std::string_view stop_text;  // of kStopText: the stop string that matched
  Usage usage;                 // of this choice alone
  Timings timings;
};

std::string ErrorBody(const ApiError& error);
std::string ResponseBody(const ResponseHead& head, std::span<const ChoiceResult> choices,
                         const Usage& usage, const Timings& timings);
std::string ModelBody(std::string_view model, int64_t created_s, uint32_t ctx);
std::string ModelListBody(std::string_view model, int64_t created_s, uint32_t ctx);

// Server-sent events of one answer. Appends to `out`; keeps only the head.
class ChunkWriter {
 public:
  // `usage_null`: usage is wanted in the last chunk, so the others carry "usage":null.
  ChunkWriter(const ResponseHead& head, bool usage_null);

  // In all of these `usage` may be null; `logprobs` null = not asked for.
  void Role(std::string& out, uint32_t index, const Usage* usage) const;
  // An event without text, as llama-server has it.
  void Progress(std::string& out, uint32_t index, const PromptProgress& progress) const;
  void Text(std::string& out, uint32_t index, std::string_view text,
            const std::vector<TokenInfo>* logprobs, const Usage* usage) const;
  void Finish(std::string& out, uint32_t index, std::string_view finish_reason,
              const std::vector<TokenInfo>* logprobs, const Usage* usage,
              const Timings* timings) const;
  // choices is empty: the last chunk of a stream that asked for usage.
  void UsageOnly(std::string& out, const Usage& usage, const Timings& timings) const;

 private:
  Api api_;
  bool usage_null_;
  std::string prefix_;  // "data: {...,\"choices\":["
};

void AppendErrorEvent(std::string& out, const ApiError& error);
void AppendDoneEvent(std::string& out);

}  // namespace kvrm
