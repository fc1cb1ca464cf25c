// The reader of one request body: a method for each field. openai_request.cc has the table and what
// is said (messages, prompts), openai_sampling_fields.cc how it is answered (lengths, stops,
// sampling, log-probabilities). Private to these two.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/json_reader.h"
#include "server/openai_types.h"

namespace kvrm {

class RequestReader {
 public:
  RequestReader(Api api, const RequestDefaults& defaults)
      : default_max_tokens_(defaults.max_tokens) {
    out_.api = api;
    out_.sampling = defaults.sampling;
    out_.seed = defaults.seed;
  }

  std::variant<ParsedRequest, ApiError> Read(const boost::json::object& body);

  static std::vector<std::string_view> FieldNames(Api api);

 private:
  using Value = boost::json::value;
  using Method = void (RequestReader::*)(std::string_view, const Value&);
  struct ReadField {
    std::string_view name;
    uint8_t apis;
    Method read;
  };
  static const ReadField kFields[];

  void Field(std::string_view name, const Value& v);
  void CheckWhole();
  void CheckMessages();
  void CheckPrompts();
  void NoteUnknown(std::string name);

  void Model(std::string_view name, const Value& v);
  void Messages(std::string_view name, const Value& v);
  void Message(const std::string& path, const Value& v);
  void CheckOffered(const std::string& path, const boost::json::object& message);
  void MessageField(const std::string& path, std::string_view key, const Value& v,
                    ChatMessage& message);
  void Content(const std::string& path, const Value& v, std::string& text);
  void ContentPart(const std::string& path, const Value& v, std::string& text);
  void PromptField(std::string_view name, const Value& v);
  void System(std::string_view name, const Value& v);
  void Input(std::string_view name, const Value& v);
  void Include(std::string_view name, const Value& v);
  void Metadata(std::string_view name, const Value& v);
  void Timeout(std::string_view name, const Value& v);
  void Priority(std::string_view name, const Value& v);
  void ReturnProgress(std::string_view name, const Value& v);
  void ReturnTokens(std::string_view name, const Value& v);
  void Stream(std::string_view name, const Value& v);
  void StreamOptions(std::string_view name, const Value& v);
  void N(std::string_view name, const Value& v);
  void MaxTokens(std::string_view name, const Value& v);
  void Echo(std::string_view name, const Value& v);
  void PromptLogprobs(std::string_view name, const Value& v);
  void MinTokens(std::string_view name, const Value& v);
  void IgnoreEos(std::string_view name, const Value& v);
  void Stop(std::string_view name, const Value& v);
  void AddStop(const std::string& path, const Value& v);
  void StopTokenIds(std::string_view name, const Value& v);
  void Temperature(std::string_view name, const Value& v);
  void TopP(std::string_view name, const Value& v);
  void TopK(std::string_view name, const Value& v);
  void MinP(std::string_view name, const Value& v);
  void TypicalP(std::string_view name, const Value& v);
  void RepetitionPenalty(std::string_view name, const Value& v);
  void RepeatLastN(std::string_view name, const Value& v);
  void PresencePenalty(std::string_view name, const Value& v);
  void FrequencyPenalty(std::string_view name, const Value& v);
  void LogitBiases(std::string_view name, const Value& v);
  void LogitBiasPair(const std::string& path, const Value& v);
  bool AddLogitBias(const std::string& path, TokenId id, const Value& v);
  void Seed(std::string_view name, const Value& v);
  void ChatLogprobs(std::string_view name, const Value& v);
  void TopLogprobs(std::string_view name, const Value& v);
  void CompletionLogprobs(std::string_view name, const Value& v);

  const std::optional<uint32_t> default_max_tokens_;
  JsonReader reader_;
  ParsedRequest out_;
  std::optional<bool> chat_logprobs_;  // asked for, as the chat or the responses say it
  std::optional<uint32_t> top_logprobs_;
  std::optional<float> repetition_penalty_;  // by either name
  std::optional<std::string> system_;        // kResponses, kMessages: apart from the messages
  bool has_stream_options_ = false;
};

}  // namespace kvrm
