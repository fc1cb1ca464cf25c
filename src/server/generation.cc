#include "server/generation.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "base/retry_memory.h"

namespace kvrm {
namespace {

constexpr double kUsPerMs = 1000.0;

uint64_t CountCharacters(std::string_view utf8) {
  return static_cast<uint64_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

// No event is lost, or its answer would never end: for lack of memory the engine waits, and what it
// has told so far is read meanwhile.
template <class Fill>
void Generation::Sink::Send(const Fill& fill) {
  RetryUntilMemory([&] {
    try {
      MailboxEvent mail;
      mail.generation = generation;
      mail.choice = index;
      fill(mail);
      mailbox->Append(std::move(mail));
    } catch (const std::bad_alloc&) {
      mailbox->Flush();
      throw;
    }
  });
}

void Generation::Sink::OnPromptToken(RequestId, const PromptTokenEvent& event) {
  Send([&](MailboxEvent& mail) {
    mail.token = event.token;
    mail.prompt_index = event.index;
    mail.rank = event.rank;
    mail.logprob = event.logprob;
    mail.top = *event.top;
  });
}

void Generation::Sink::OnToken(RequestId, const TokenEvent& event) {
  Send([&](MailboxEvent& mail) {
    mail.token = event.token;
    mail.made_us = event.made_us;
    mail.timings = event.timings;
    mail.logprob = event.logprob;
    if (event.top != nullptr) mail.top = *event.top;
  });
}

void Generation::Sink::OnProgress(RequestId, const PromptProgress& progress) {
  Send([&](MailboxEvent& mail) { mail.progress = progress; });
}

void Generation::Sink::OnFinish(RequestId, const FinishEvent& event) {
  Send([&](MailboxEvent& mail) { mail.finish = std::make_unique<FinishEvent>(event); });
}

Generation::Generation(PreparedRequest prepared, ResponseHead head, const Tokenizer& tokenizer,
                       Mailbox& mailbox)
    : prepared_(std::move(prepared)),
      head_(std::move(head)),
      tokenizer_(tokenizer),
      format_(MakeAnswerFormat(head_, prepared_.request)) {
  const size_t count = prepared_.prompts.size() * prepared_.request.n;
  choices_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    choices_.push_back(std::make_unique<Choice>(tokenizer, prepared_.request.stop));
    Sink& sink = choices_.back()->sink;
    sink.generation = this;
    sink.mailbox = &mailbox;
    sink.index = static_cast<uint32_t>(i);
  }
  scores_.resize(prepared_.prompts.size());
  num_unfinished_ = num_choices();
}

// Choices of one prompt are neighbours: index = prompt * n + choice.
GenerateRequest Generation::EngineRequest(uint32_t index, uint32_t max_seq_tokens,
                                          uint64_t seed) const {
  const ParsedRequest& wanted = prepared_.request;
  GenerateRequest request;
  request.prompt = prepared_.prompts[index / wanted.n];
  request.sampling = wanted.sampling;
  request.sampling.seed = seed;
  request.sampling.choice = index % wanted.n;
  // The produced token's own log-probability needs at least one alternative to be computed.
  if (wanted.logprobs) request.sampling.num_logprobs = std::max<uint32_t>(*wanted.logprobs, 1);
  // Choices of one prompt share what is said of it, and its pages.
  const uint32_t first = index - index % wanted.n;
  request.score_prompt = scores_prompts() && index == first;
  request.num_prompt_logprobs =
      std::max(wanted.prompt_logprobs.value_or(0), wanted.echo ? wanted.logprobs.value_or(0) : 0);
  if (index != first) request.fork_of = choices_[first]->request_id;
  request.generate = wanted.max_tokens != 0u;
  const auto room = max_seq_tokens - static_cast<uint32_t>(request.prompt.size());
  request.max_new_tokens = std::min(wanted.max_tokens.value_or(room), room);
  request.min_new_tokens = std::min(wanted.min_tokens, request.max_new_tokens);
  request.end_tokens = prepared_.end_tokens;
  request.sink = &choices_[index]->sink;
  request.tenant = prepared_.tenant;
  request.report_progress = wanted.return_progress && wanted.stream;
  request.priority = wanted.priority;
  return request;
}

void Generation::Opened(uint32_t index) noexcept {
  choices_[index]->open = true;
  ++num_open_;
}

void Generation::NotTaken(uint32_t index) noexcept {
  choices_[index]->open = false;
  --num_open_;
}

Generation::Next Generation::Apply(const MailboxEvent& event) {
  Choice& choice = *choices_[event.choice];
  KVRM_CHECK(choice.open, "no event comes after OnFinish");
  sound_bytes_ = output_.size();
  if (event.progress) {
    if (complete_ || choice.stopped) return Next::kGoOn;
    format_->Progress(output_, event.choice, *event.progress);
    any_output_ = any_output_ || !output_.empty();
    return Next::kGoOn;
  }
  if (event.prompt_index != 0) {
    NoteScore(event.choice / prepared_.request.n, event);
    return Next::kGoOn;
  }
  const bool failed = event.finish != nullptr && event.finish->reason != StopReason::kEnd &&
                      event.finish->reason != StopReason::kLength;
  if (prepared_.request.echo && !choice.echoed && !complete_ && !failed) {
    Echo(choice, event.choice);
  }
  if (event.finish != nullptr) return OnFinish(choice, event.choice, *event.finish);
  return OnToken(choice, event.choice, event);
}

bool Generation::IsEndToken(TokenId id) const {
  return std::find(prepared_.end_tokens.begin(), prepared_.end_tokens.end(), id) !=
         prepared_.end_tokens.end();
}

Generation::Next Generation::OnToken(Choice& choice, uint32_t index, const MailboxEvent& event) {
  // Tokens that were under way when the stop string matched do not count.
  if (complete_ || choice.stopped) return Next::kGoOn;
  ++choice.num_tokens;
  if (prepared_.request.logprobs) NoteToken(choice, event);
  if (IsEndToken(event.token)) return Next::kGoOn;
  choice.text_stream.ArmStops(choice.num_tokens > prepared_.request.min_tokens);
  const std::string text = choice.text_stream.Push(event.token);
  if (!text.empty()) {
    Emit(choice, index, text);
    stamps_.Add(event.made_us);
  }
  if (!choice.text_stream.stopped()) return Next::kGoOn;
  // Its end goes out with this step; that the engine lets go of it is not waited for.
  choice.stopped = true;
  choice.timings = event.timings;
  End(choice, index, ChoiceEnd::kStopText);
  return Next::kCancelChoice;
}

void Generation::NoteToken(Choice& choice, const MailboxEvent& event) {
  TokenInfo info;
  info.bytes = BytesOf(event.token);
  info.id = event.token;
  info.logprob = event.logprob;
  info.text_offset = choice.num_characters;
  choice.num_characters += CountCharacters(info.bytes);
  const size_t wanted = std::min<size_t>(*prepared_.request.logprobs, event.top.size());
  for (size_t i = 0; i < wanted; ++i) {
    info.top.push_back({BytesOf(event.top[i].id), event.top[i].logprob, event.top[i].id});
  }
  choice.tokens.push_back(std::move(info));
}

std::string Generation::BytesOf(TokenId id) const {
  return std::string(tokenizer_.TokenBytes(id, /*with_special=*/true));
}

// ---- the prompt in the answer
bool Generation::scores_prompts() const {
  const ParsedRequest& wanted = prepared_.request;
  return wanted.prompt_logprobs || (wanted.echo && wanted.logprobs);
}

// The token itself first, then the likeliest but it.
void Generation::NoteScore(uint32_t prompt, const MailboxEvent& event) {
  std::vector<PromptLogprob> place;
  place.reserve(event.top.size() + 1);
  place.push_back({event.token, event.logprob, event.rank, BytesOf(event.token)});
  for (uint32_t i = 0; i < event.top.size(); ++i) {
    const TokenLogprob& entry = event.top[i];
    if (entry.id == event.token) continue;
    place.push_back({entry.id, entry.logprob, i + 1, BytesOf(entry.id)});
  }
  scores_[prompt].push_back(std::move(place));
}

// The first event of a choice comes when its prompt is computed, and so scored.
void Generation::Echo(Choice& choice, uint32_t index) {
  choice.echoed = true;
  const uint32_t prompt = index / prepared_.request.n;
  if (prepared_.request.logprobs) EchoTokens(choice, prompt);
  Emit(choice, index, prepared_.echoes[prompt]);
}

void Generation::EchoTokens(Choice& choice, uint32_t prompt) {
  const std::vector<TokenId>& ids = prepared_.prompts[prompt];
  const PromptLogprobs& places = scores_[prompt];
  KVRM_CHECK(places.size() + 1 == ids.size(), "a prompt is scored before anything follows it");
  uint64_t num_characters = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    TokenInfo info;
    info.bytes = BytesOf(ids[i]);
    info.id = ids[i];
    info.text_offset = num_characters;
    num_characters += CountCharacters(info.bytes);
    info.scored = i > 0;
    if (info.scored) {
      const auto& place = places[i - 1];
      info.logprob = place[0].logprob;
      for (const PromptLogprob& entry : place) {
        if (entry.rank <= *prepared_.request.logprobs) {
          info.top.push_back({entry.bytes, entry.logprob, entry.id});
        }
      }
    }
    choice.tokens.push_back(std::move(info));
  }
  // What the tokens have and the text lacks was put before it: a start token, a first blank.
  const uint64_t shown = CountCharacters(prepared_.echoes[prompt]);
  const uint64_t lead = num_characters - std::min(num_characters, shown);
  for (TokenInfo& info : choice.tokens) info.text_offset -= std::min(info.text_offset, lead);
  choice.num_characters = shown;
}

void Generation::Emit(Choice& choice, uint32_t index, const std::string& text) {
  if (!stream()) {
    choice.text += text;
    return;
  }
  Usage storage;
  const Usage* usage = ChunkUsage(storage);
  if (!std::exchange(choice.begun, true)) format_->Begin(output_, index, usage);
  const bool logprobs = prepared_.request.logprobs.has_value();
  format_->Text(output_, index, text, logprobs ? &choice.tokens : nullptr, usage);
  choice.tokens.clear();
  any_output_ = true;
}

Generation::Next Generation::OnFinish(Choice& choice, uint32_t index, const FinishEvent& event) {
  choice.open = false;
  --num_open_;
  if (choice.stopped) return Next::kGoOn;
  choice.timings = event.timings;
  if (complete_) return Next::kGoOn;
  if (event.reason == StopReason::kError) {
    Fail({500, event.message.empty() ? "the model produced no usable numbers" : event.message,
          "server_error", "", "generation_failed"});
    return Next::kCancelAll;
  }
  if (event.reason == StopReason::kCancelled && !expired_) {
    Fail({503, "the server is shutting down", "unavailable_error", "", "shutting_down"});
    return Next::kCancelAll;
  }
  const std::string rest = choice.text_stream.Finish();
  if (!rest.empty()) Emit(choice, index, rest);
  End(choice, index,
      event.reason == StopReason::kLength      ? ChoiceEnd::kLength
      : event.reason == StopReason::kCancelled ? ChoiceEnd::kTimeout
                                               : ChoiceEnd::kEndToken);
  return Next::kGoOn;
}

// Nothing more comes of `choice`.
void Generation::End(Choice& choice, uint32_t index, ChoiceEnd end) {
  choice.end = end;
  const bool cut = end == ChoiceEnd::kLength || end == ChoiceEnd::kTimeout;
  choice.finish_reason = cut ? "length" : "stop";
  --num_unfinished_;
  if (stream()) EmitFinish(choice, index);
  if (num_unfinished_ == 0) Complete();
}

void Generation::EmitFinish(Choice& choice, uint32_t index) {
  Usage storage;
  const Usage* usage = ChunkUsage(storage);
  if (!std::exchange(choice.begun, true)) format_->Begin(output_, index, usage);
  ChoiceResult result = ResultOf(choice);
  if (choice.tokens.empty()) result.logprobs = nullptr;
  const AnswerTotals totals = Totals();
  format_->Finish(output_, result, usage, num_unfinished_ == 0 ? &totals : nullptr);
  choice.tokens.clear();
  any_output_ = true;
}

// All but the text.
ChoiceResult Generation::ResultOf(const Choice& choice) const {
  ChoiceResult result;
  result.index = choice.sink.index;
  result.finish_reason = choice.finish_reason;
  result.logprobs = prepared_.request.logprobs ? &choice.tokens : nullptr;
  if (prepared_.request.prompt_logprobs) {
    result.prompt_logprobs = &scores_[choice.sink.index / prepared_.request.n];
  }
  result.end = choice.end;
  result.stop_text = choice.text_stream.matched_stop();
  result.usage = UsageOf(choice);
  result.timings = TimingsOf(choice);
  return result;
}

void Generation::Complete() {
  if (stream()) {
    format_->End(output_, Totals());
    complete_ = true;
    return;
  }
  if (prepared_.request.prompt_logprobs) {
    // An echo with more entries may have asked for more than this field did.
    const uint32_t most = *prepared_.request.prompt_logprobs;
    for (PromptLogprobs& places : scores_) {
      for (auto& place : places) {
        const auto beyond = [most](const PromptLogprob& entry) { return entry.rank > most; };
        place.erase(std::remove_if(place.begin() + 1, place.end(), beyond), place.end());
      }
    }
  }
  std::vector<ChoiceResult> results;
  results.reserve(choices_.size());
  for (const auto& choice : choices_) {
    results.push_back(ResultOf(*choice));
    results.back().text = std::move(choice->text);
  }
  output_ = format_->Whole(results, Totals());
  complete_ = true;
}

bool Generation::Expire() noexcept {
  if (complete_) return true;
  expired_ = any_token;
  if (any_token) return true;
  FailWith([] {
    return ApiError{408, "the request's timeout passed before its first token", "timeout_error",
                    "timeout", "timeout"};
  });
  return false;
}

// A stream that has begun ends with an error event; anything else is answered with the status.
void Generation::Fail(const ApiError& error) noexcept {
  FailWith([&]() -> const ApiError& { return error; });
}

template <class Make>
void Generation::FailWith(const Make& make) noexcept {
  if (complete_) return;
  complete_ = failed_ = true;
  try {
    if (stream() && any_output_) return format_->Fail(output_, make());
    output_.clear();
    error_ = make();
  } catch (const std::bad_alloc&) {
    Drop();
  }
}

void Generation::Drop() noexcept {
  complete_ = failed_ = dropped_ = true;
  output_.clear();
  error_.reset();
}

void Generation::OnOutOfMemory(const MailboxEvent& event) noexcept {
  if (event.finish != nullptr && choices_[event.choice]->open) NotTaken(event.choice);
  output_.resize(std::min(output_.size(), sound_bytes_));  // half an event is none
  FailWith(OutOfMemoryError);
}

std::string Generation::TakeOutput() {
  if (!stream() && !complete_) return {};
  return std::exchange(output_, {});
}

AnswerRecord Generation::Record() const {
  AnswerRecord record;
  record.totals = Totals();
  record.choices = num_choices();
  if (!choices_.empty()) record.finish_reason = choices_[0]->finish_reason;
  for (const auto& choice : choices_) {
    record.queued_us = std::max(record.queued_us, choice->timings.queued_us);
    record.longest_gap_us = std::max(record.longest_gap_us, choice->timings.longest_gap_us);
  }
  return record;
}

Usage Generation::UsageOf(const Choice& choice) const {
  return {.prompt_tokens = prepared_.prompts[choice.sink.index / prepared_.request.n].size(),
          .completion_tokens = choice.num_tokens,
          .cached_tokens = choice.timings.cached_tokens};
}

// Each prompt once, however many choices it has.
Usage Generation::CurrentUsage() const {
  Usage sum;
  for (const auto& choice : choices_) {
    const Usage usage = UsageOf(*choice);
    sum.completion_tokens += usage.completion_tokens;
    if (choice->sink.index % prepared_.request.n != 0) continue;
    sum.prompt_tokens += usage.prompt_tokens;
    sum.cached_tokens += usage.cached_tokens;
  }
  return sum;
}

Timings Generation::TimingsOf(const Choice& choice) const {
  const RequestTimings& t = choice.timings;
  Timings timings;
  // What a choice shares with the first one of its prompt was not in the cache before.
  if (choice.sink.index % prepared_.request.n == 0) timings.cache_n = t.cached_tokens;
  timings.prompt_n = t.prompt_tokens - std::min(t.prompt_tokens, t.cached_tokens);
  timings.prompt_ms = static_cast<double>(t.prompt_us) / kUsPerMs;
  timings.predicted_n = choice.num_tokens;
  timings.predicted_ms = static_cast<double>(t.decode_us) / kUsPerMs;
  return timings;
}

// Counts of all choices together; times of the slowest, since choices run side by side.
Timings Generation::CurrentTimings() const {
  Timings sum;
  for (const auto& choice : choices_) {
    const Timings one = TimingsOf(*choice);
    sum.cache_n += one.cache_n;
    sum.prompt_n += one.prompt_n;
    sum.predicted_n += one.predicted_n;
    sum.prompt_ms = std::max(sum.prompt_ms, one.prompt_ms);
    sum.predicted_ms = std::max(sum.predicted_ms, one.predicted_ms);
  }
  return sum;
}

const Usage* Generation::ChunkUsage(Usage& storage) const {
  if (!prepared_.request.continuous_usage) return nullptr;
  storage = CurrentUsage();
  return &storage;
}

}  // namespace kvrm
