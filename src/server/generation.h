// One answer while it is made: from the engine's token events of its choices to response bytes.
//
// Thread class: everything but the sinks runs on one thread (the server's I/O thread). The sinks
// are called on the engine thread and do nothing but append to the mailbox.
//
// Lifetime: held by the service until the engine has let go of every choice (its OnFinish was
// dispatched), and by the connection until its last byte is written, whichever is later: the one
// shared_ptr of this folder's data.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/answer_format.h"
#include "server/mailbox.h"
#include "server/openai_types.h"
#include "server/sent_gaps.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace kvrm {

class Generation;

// Who waits for an answer; called on the I/O thread, once after each batch of events in which this
// answer changed: at most one write per step and stream.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  virtual void OnOutput(Generation& generation) noexcept = 0;
};

// A request ready to be submitted: tokens, not text.
struct PreparedRequest {
  ParsedRequest request;
  std::vector<std::vector<TokenId>> prompts;  // [prompts] of the request
  std::vector<TokenId> end_tokens;            // ids that end a choice; never printed
  std::vector<std::string> echoes;            // [prompts] the texts that answers begin with
  uint64_t tenant = 0;                        // prefixes are shared within a tenant only
};

class Generation {
 public:
  // `tokenizer` and `mailbox` outlive it.
  Generation(PreparedRequest prepared, ResponseHead head, const Tokenizer& tokenizer,
             Mailbox& mailbox);
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  // ---- before it runs
  uint32_t num_choices() const { return static_cast<uint32_t>(choices_.size()); }
  // The engine's view of choice `index`; its sink is this generation's.
  GenerateRequest EngineRequest(uint32_t index, uint32_t max_seq_tokens, uint64_t seed) const;
  // Choice `index` is being submitted: its events may already be in the mailbox.
  void Opened(uint32_t index) noexcept;
  void SetRequestId(uint32_t index, RequestId id) { choices_[index]->request_id = id; }
  // The engine did not take it after all.
  void NotTaken(uint32_t index) noexcept;

  // ---- events, in the order of the mailbox
  enum class Next : uint8_t { kGoOn, kCancelChoice, kCancelAll };
  // What the engine should be told: a choice whose stop string matched is cancelled; after a fault
  // all are.
  Next Apply(const MailboxEvent& event);
  // Something was sent before the first event: an error that comes now is an event, too.
  void StreamBegan() { any_output_ = true; }
  // Its time is up. True: what it has is its answer, which ends when its open choices, to be
  // cancelled by the caller, have ended; false: there is nothing yet, it has failed with 408.
  bool Expire() noexcept;
  // The answer ends with `error`; when there is no memory even for that, it is dropped.
  void Fail(const ApiError& error) noexcept;
  // It ends without a word: nobody waits any more, or there is no memory for one.
  void Drop() noexcept;
  // Applying `event` threw std::bad_alloc: the answer ends, and its choices are to be cancelled.
  void OnOutOfMemory(const MailboxEvent& event) noexcept;

  // ---- what the connection reads
  bool stream() const { return prepared_.request.stream; }
  int64_t timeout_us() const { return prepared_.request.timeout_us; }  // 0 = none
  std::optional<uint64_t> seed() const { return prepared_.request.seed; }
  bool failed() const { return failed_; }
  // Failed without a word for its client, whose connection is all that can be closed.
  bool dropped() const { return dropped_; }
  // No event will come any more.
  bool engine_done() const { return num_open_ == 0; }
  // Nothing will be appended any more.
  bool complete() const { return complete_; }
  // Set when it failed with nothing to show for it: to be answered with the error's status. A
  // stream that has begun ends with an error event instead.
  const std::optional<ApiError>& error() const { return error_; }
  // Stream: the events made since the last call. Else: the whole body, once complete.
  std::string TakeOutput();
  size_t output_bytes() const { return output_.size(); }
  // Of a stream: of the tokens that gave the text of the next TakeOutput.
  TextStamps TakeStamps() { return std::exchange(stamps_, {}); }
  AnswerRecord Record() const;  // as far as it has come
  std::string_view finish_reason(uint32_t index) const { return choices_[index]->finish_reason; }
  ChoiceEnd choice_end(uint32_t index) const { return choices_[index]->end; }
  RequestId request_id(uint32_t index) const { return choices_[index]->request_id; }
  bool choice_open(uint32_t index) const { return choices_[index]->open; }

  int64_t received_us = 0;                 // when its request came in
  bool any_token = false;                  // its first token was made
  int64_t deadline_us = 0;                 // 0 = none
  GenerationListener* listener = nullptr;  // null: nobody waits any more
  bool abandoned = false;                  // released before it was complete
  bool touched = false;                    // by the batch being dispatched
  bool counted = false;                    // in the service's counters, as it ended

 private:
  // Runs on the engine thread.
  struct Sink final : EventSink {
    void OnPromptToken(RequestId id, const PromptTokenEvent& event) override;
    void OnToken(RequestId id, const TokenEvent& event) override;
    void OnProgress(RequestId id, const PromptProgress& progress) override;
    void OnFinish(RequestId id, const FinishEvent& event) override;
    template <class Fill>
    void Send(const Fill& fill);
    Generation* generation = nullptr;
    Mailbox* mailbox = nullptr;
    uint32_t index = 0;
  };
  struct Choice {
    Choice(const Tokenizer& tokenizer, std::vector<std::string> stops)
        : text_stream(tokenizer, std::move(stops)) {}
    Sink sink;
    TextStream text_stream;
    RequestId request_id;
    std::string text;               // whole answers only
    std::vector<TokenInfo> tokens;  // not yet sent, when log-probabilities are asked for
    uint64_t num_characters = 0;
    uint32_t num_tokens = 0;  // produced, up to the one that completed a stop string
    bool echoed = false;      // the prompt stands before its text
    bool open = false;        // the engine may still send events
    bool stopped = false;     // a stop string matched
    bool begun = false;       // of a stream: something was made
    ChoiceEnd end = ChoiceEnd::kNone;
    std::string_view finish_reason;
    RequestTimings timings;
  };

  Next OnToken(Choice& choice, uint32_t index, const MailboxEvent& event);
  Next OnFinish(Choice& choice, uint32_t index, const FinishEvent& event);
  void End(Choice& choice, uint32_t index, ChoiceEnd end);
  void NoteToken(Choice& choice, const MailboxEvent& event);
  void NoteScore(uint32_t prompt, const MailboxEvent& event);
  void Echo(Choice& choice, uint32_t index);
  void EchoTokens(Choice& choice, uint32_t prompt);
  bool scores_prompts() const;
  std::string BytesOf(TokenId id) const;
  void Emit(Choice& choice, uint32_t index, const std::string& text);
  void EmitFinish(Choice& choice, uint32_t index);
  ChoiceResult ResultOf(const Choice& choice) const;
  void Complete();
  template <class Make>
  void FailWith(const Make& make) noexcept;
  bool IsEndToken(TokenId id) const;
  Usage UsageOf(const Choice& choice) const;
  Timings TimingsOf(const Choice& choice) const;
  Usage CurrentUsage() const;
  Timings CurrentTimings() const;
  AnswerTotals Totals() const { return {CurrentUsage(), CurrentTimings()}; }
  const Usage* ChunkUsage(Usage& storage) const;

  PreparedRequest prepared_;
  ResponseHead head_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<AnswerFormat> format_;
  std::vector<std::unique_ptr<Choice>> choices_;  // sinks keep their addresses
  std::vector<PromptLogprobs> scores_;            // [prompts]; shared by the choices of each
  uint32_t num_open_ = 0;
  uint32_t num_unfinished_ = 0;
  std::string output_;
  TextStamps stamps_;        // of what is in output_
  size_t sound_bytes_ = 0;   // of output_, before the event being applied
  bool any_output_ = false;  // of a stream: some of it may have been sent
  bool expired_ = false;     // its time is up
  bool complete_ = false;
  bool failed_ = false;
  bool dropped_ = false;
  std::optional<ApiError> error_;
};

}  // namespace kvrm
