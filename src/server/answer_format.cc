#include "server/answer_format.h"

#include "server/answer_formats.h"

namespace kvrm {
namespace {

// OpenAI's chat and text completions.
class CompletionFormat final : public AnswerFormat {
 public:
  CompletionFormat(const ResponseHead& head, bool include_usage)
      : head_(head), include_usage_(include_usage), chunks_(head, include_usage) {}

  void Begin(std::string& out, uint32_t index, const Usage* usage) override {
    if (head_.api == Api::kChat) chunks_.Role(out, index, usage);
  }
  void Progress(std::string& out, uint32_t index, const PromptProgress& progress) override {
    chunks_.Progress(out, index, progress);
  }
  void Text(std::string& out, uint32_t index, std::string_view text,
            const std::vector<TokenInfo>* logprobs, const Usage* usage) override {
    chunks_.Text(out, index, text, logprobs, usage);
  }
  // Timings stand in the last event before [DONE].
  void Finish(std::string& out, const ChoiceResult& result, const Usage* usage,
              const AnswerTotals* totals) override {
    const bool last_event = totals != nullptr && !include_usage_;
    chunks_.Finish(out, result.index, result.finish_reason, result.logprobs, usage,
                   last_event ? &totals->timings : nullptr);
  }
  void End(std::string& out, const AnswerTotals& totals) override {
    if (include_usage_) chunks_.UsageOnly(out, totals.usage, totals.timings);
    AppendDoneEvent(out);
  }
  void Fail(std::string& out, const ApiError& error) override { AppendErrorEvent(out, error); }
  std::string Whole(std::span<const ChoiceResult> results, const AnswerTotals& totals) override {
    return ResponseBody(head_, results, totals.usage, totals.timings);
  }

 private:
  const ResponseHead head_;
  const bool include_usage_;
  const ChunkWriter chunks_;
};

}  // namespace

std::unique_ptr<AnswerFormat> MakeAnswerFormat(const ResponseHead& head,
                                               const ParsedRequest& request) {
  switch (head.api) {
    case Api::kNative:
      return MakeNativeFormat(head, request);
    case Api::kResponses:
      return MakeResponsesFormat(head, request);
    case Api::kMessages:
      return MakeMessagesFormat(head);
    case Api::kChat:
    case Api::kCompletions:
      break;
  }
  return std::make_unique<CompletionFormat>(head, request.include_usage);
}

}  // namespace kvrm
