// How one API words an answer: events of a stream, or the whole body. A generation knows tokens,
// texts and ends; its format knows field names. One object per answer, on the I/O thread; it may
// keep what later events repeat.
//
// A new API adds an `Api`, its fields to the reader of request bodies, and a format here
// (docs/server.md, "Adding a route").
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai_types.h"

namespace kvrm {

// What is known of an answer as a whole once it ends.
struct AnswerTotals {
  Usage usage;
  Timings timings;
};

// What an answer of the engine came to.
struct AnswerRecord {
  AnswerTotals totals;
  std::string_view finish_reason;  // of the first choice; "" = none
  uint32_t choices = 0;
  int64_t queued_us = 0;       // longest of its choices
  int64_t longest_gap_us = 0;  // the same
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // ---- a stream: each appends its events to `out`. `usage` is null unless the request wants
  // counts in every chunk; `logprobs` is null unless asked for. Before the first text of a choice,
  // or its end.
  virtual void Begin(std::string& out, uint32_t index, const Usage* usage) = 0;
  // While the prompt is computed, if asked for; before Begin. Nothing where the API has no word for
  // it.
  virtual void Progress(std::string& /*out*/, uint32_t /*index*/,
                        const PromptProgress& /*progress*/) {}
  virtual void Text(std::string& out, uint32_t index, std::string_view text,
                    const std::vector<TokenInfo>* logprobs, const Usage* usage) = 0;
  // The end of a choice (its text was sent); `totals` is null unless it is the last one.
  virtual void Finish(std::string& out, const ChoiceResult& result, const Usage* usage,
                      const AnswerTotals* totals) = 0;
  // After the last choice.
  virtual void End(std::string& out, const AnswerTotals& totals) = 0;
  // In place of the rest, after something was sent.
  virtual void Fail(std::string& out, const ApiError& error) = 0;

  // ---- an answer in one piece
  virtual std::string Whole(std::span<const ChoiceResult> results, const AnswerTotals& totals) = 0;
};

std::unique_ptr<AnswerFormat> MakeAnswerFormat(const ResponseHead& head,
                                               const ParsedRequest& request);

}  // namespace kvrm
