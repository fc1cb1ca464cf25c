// The formats beside OpenAI's completions, and what they share with them. Private to the formats.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answer_format.h"
#include "server/json_writer.h"

namespace kvrm {

std::unique_ptr<AnswerFormat> MakeNativeFormat(const ResponseHead& head,
                                               const ParsedRequest& request);
std::unique_ptr<AnswerFormat> MakeResponsesFormat(const ResponseHead& head,
                                                  const ParsedRequest& request);
std::unique_ptr<AnswerFormat> MakeMessagesFormat(const ResponseHead& head);

// An error as /v1/messages words it.
std::string MessagesErrorBody(const ApiError& error);

// Key "view", where it is lossy; else nothing.
void WriteView(JsonWriter& json, const ResponseHead& head);

// Key "prompt_progress" and llama-server's object.
void WriteProgress(JsonWriter& json, const PromptProgress& progress);

// "token", "logprob" and "bytes" of one token, within an object.
void WriteToken(JsonWriter& json, const std::string& bytes, float logprob);

// An array of tokens, each with its likeliest alternatives, as OpenAI has it.
void WriteTokenLogprobs(JsonWriter& json, const std::vector<TokenInfo>& tokens);

// Key "timings" and llama-server's object.
void WriteTimings(JsonWriter& json, const Timings& timings);

}  // namespace kvrm
