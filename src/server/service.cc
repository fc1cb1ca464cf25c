#include "server/service.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <random>

#include "base/check.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

constexpr size_t kMaxLoggedFields = 256;
constexpr size_t kMaxRepeatedBytes = 64;
constexpr uint64_t kMaxScores = 1u << 20;  // tokens times log-probabilities of each, an answer
constexpr int64_t kResidentFreshUs = 1'000'000;

// What the engine refuses at the door is the request's fault, but for its not running at all.
ApiError FromEngine(const Error& error) {
  ApiError out;
  out.message = error.message;
  if (error.kind == ErrorKind::kUnavailable) {
    out.status = 503;
    out.type = "unavailable_error";
  }
  return out;
}

ApiError QueueFull(const std::string& message) {
  return {429, message, "rate_limit_error", "", "queue_full"};
}

const char* IdPrefix(Api api) {
  constexpr const char* kPrefixes[kNumApis] = {"chatcmpl-", "cmpl-", "native-", "resp_", "msg_"};
  return kPrefixes[static_cast<size_t>(api)];
}

// What a client sent, cut to what a message or a log line should repeat.
std::string Shortened(std::string_view text) { return ForMessage(text, kMaxRepeatedBytes); }

// What an answer with `echo` begins with: the prompt as it was given, or what its ids spell.
std::string EchoOf(const Tokenizer& tokenizer, const Prompt& prompt,
                   const std::vector<TokenId>& ids) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return SanitizeUtf8(*text);
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer.TokenBytes(id, /*with_special=*/true);
  return SanitizeUtf8(bytes);
}

// An answer holds every score that was asked for: their number is bounded before any is made.
std::optional<ApiError> CheckScores(const ParsedRequest& request,
                                    const std::vector<std::vector<TokenId>>& prompts) {
  const bool echoed = request.echo && request.logprobs;
  if (!echoed && !request.prompt_logprobs) return std::nullopt;
  uint64_t entries =
      1 + std::max(request.prompt_logprobs.value_or(0), echoed ? *request.logprobs : 0);
  if (echoed) entries *= request.n;
  uint64_t num_tokens = 0;
  for (const auto& prompt : prompts) num_tokens += prompt.size();
  if (num_tokens * entries <= kMaxScores) return std::nullopt;
  return BadField("prompt", std::to_string(num_tokens) + " tokens with " + std::to_string(entries) +
                                " log-probabilities each are more than the limit of " +
                                std::to_string(kMaxScores) + " in one answer");
}

// The same of what is still to be made, at most `ctx` tokens with the prompt; a stream sends it
// away.
std::optional<ApiError> CheckOutputScores(const ParsedRequest& request,
                                          const std::vector<std::vector<TokenId>>& prompts,
                                          uint32_t ctx) {
  if (!request.logprobs || request.stream) return std::nullopt;
  uint64_t num_tokens = 0;
  for (const auto& prompt : prompts) {
    const auto room = static_cast<uint32_t>(ctx - std::min<size_t>(ctx, prompt.size()));
    num_tokens += uint64_t{request.n} * std::min(room, request.max_tokens.value_or(room));
  }
  const uint64_t entries = 1 + *request.logprobs;
  if (num_tokens * entries <= kMaxScores) return std::nullopt;
  const char* const field = request.api == Api::kChat     ? "top_logprobs"
                            : request.api == Api::kNative ? "n_probs"
                                                          : "logprobs";
  return BadField(field, std::to_string(num_tokens) + " tokens in all choices with " +
                             std::to_string(entries) +
                             " log-probabilities each are more than the limit of " +
                             std::to_string(kMaxScores) + " in an answer that is not streamed");
}

}  // namespace

int64_t SteadyNowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t WallNowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

uint64_t RandomSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) ^ device();
}

std::string HexText(uint64_t value) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

Service::Service(ServiceConfig config, Engine& engine, const Tokenizer& tokenizer,
                 const ChatTemplate* chat_template, std::function<void()> wake)
    : config_(std::move(config)),
      engine_(engine),
      tokenizer_(tokenizer),
      ctx_(engine.config().max_seq_tokens),
      encoder_(tokenizer, chat_template, ctx_),
      mailbox_(std::move(wake)),
      random_state_(RandomSeed()),
      stall_(config_.stall_us) {
  engine_.SetTold([this] { mailbox_.Flush(); });
}

Service::~Service() { engine_.SetTold({}); }

uint64_t Service::NextRandom() { return Mix64(random_state_ += kMixStep); }

// ---- text to tokens
std::variant<PreparedRequest, ApiError> Service::Prepare(ParsedRequest request,
                                                         const Caller& caller) const {
  LogUnknownFields(request.unknown_fields);
  if (config_.strict_model && !request.model.empty() && request.model != config_.model) {
    ApiError error = BadField(
        "model",
        "'" + Shortened(request.model) + "' does not exist, only '" + config_.model + "' is served",
        "model_not_found");
    error.status = 404;
    return error;
  }
  PreparedRequest prepared;
  prepared.tenant = caller.tenant;
  if (!request.ignore_eos) prepared.end_tokens = tokenizer_.end_tokens();
  for (size_t i = 0; i < request.stop_token_ids.size(); ++i) {
    const TokenId id = request.stop_token_ids[i];
    if (static_cast<uint32_t>(id) >= tokenizer_.vocab_size()) {
      return BadField("stop_token_ids[" + std::to_string(i) + "]",
                      std::to_string(id) + " is outside the vocabulary of " +
                          std::to_string(tokenizer_.vocab_size()));
    }
    prepared.end_tokens.push_back(id);
  }
  for (const LogitBias& entry : request.sampling.logit_bias) {
    if (static_cast<uint32_t>(entry.id) < tokenizer_.vocab_size()) continue;
    return BadField(
        "logit_bias." + std::to_string(entry.id),
        "the token id is outside the vocabulary of " + std::to_string(tokenizer_.vocab_size()));
  }
  if (request.priority > caller.max_priority) {
    return BadField("priority", std::to_string(request.priority) + " is above " +
                                    std::to_string(caller.max_priority) +
                                    ", the most urgent that this API key may ask for");
  }
  const bool chat = HoldsMessages(request.api);
  const size_t num_prompts = chat ? 1 : request.prompts.size();
  for (size_t i = 0; i < num_prompts; ++i) {
    const std::string path = num_prompts == 1 ? "prompt" : "prompt[" + std::to_string(i) + "]";
    auto ids = chat ? encoder_.Chat(request.messages) : encoder_.Raw(request.prompts[i], path);
    if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
    prepared.prompts.push_back(std::move(std::get<std::vector<TokenId>>(ids)));
    if (request.echo) {
      prepared.echoes.push_back(EchoOf(tokenizer_, request.prompts[i], prepared.prompts.back()));
    }
  }
  if (auto error = CheckScores(request, prepared.prompts)) return std::move(*error);
  if (auto error = CheckOutputScores(request, prepared.prompts, ctx_)) return std::move(*error);
  // The text has served; long answers should not hold on to it.
  request.messages.clear();
  request.prompts.clear();
  prepared.request = std::move(request);
  return prepared;
}

// One line per name in the life of the server, and a bound on the names remembered.
void Service::LogUnknownFields(const std::vector<std::string>& names) const {
  if (names.empty() || !config_.log) return;
  const std::lock_guard<std::mutex> lock(log_mutex_);
  for (const auto& name : names) {
    const std::string shown = Shortened(name);
    if (logged_fields_.size() >= kMaxLoggedFields || !logged_fields_.insert(shown).second) continue;
    config_.log("ignoring unknown request field '" + shown + "'");
  }
}

// ---- answers under way
std::variant<std::shared_ptr<Generation>, ApiError> Service::Start(PreparedRequest prepared,
                                                                   GenerationListener* listener,
                                                                   int64_t received_us) {
  const Api api = prepared.request.api;
  const uint64_t drawn = NextRandom();
  std::shared_ptr<Generation> generation = Open(std::move(prepared), received_us);
  std::optional<ApiError> error;
  try {
    error = SubmitChoices(*generation, drawn);
  } catch (const std::bad_alloc&) {
    Withdraw(*generation);
    throw;
  }
  if (!error) {
    generation->listener = listener;
    ++counters_.requests[static_cast<size_t>(api)];
    return generation;
  }
  if (error->status == 429) ++counters_.refused_queue_full;
  Withdraw(*generation);
  return std::move(*error);
}

// Known from now on, with nothing submitted.
std::shared_ptr<Generation> Service::Open(PreparedRequest prepared, int64_t received_us) {
  ResponseHead head;
  head.api = prepared.request.api;
  head.id = IdPrefix(head.api) + HexText(NextRandom());
  head.created_s = WallNowUs() / 1'000'000;
  head.model = config_.model;
  head.lossy_view = engine_.config().lossy_view;
  auto generation =
      std::make_shared<Generation>(std::move(prepared), std::move(head), tokenizer_, mailbox_);
  generation->received_us = received_us;
  if (touched_.capacity() <= open_.size()) touched_.reserve(2 * open_.size() + 1);
  try {
    open_.emplace(generation.get(), generation);
    const int64_t timeout_us = generation->timeout_us();
    if (timeout_us > 0) {
      generation->deadline_us = received_us + timeout_us;
      deadlines_.emplace(generation->deadline_us, generation.get());
    }
  } catch (const std::bad_alloc&) {
    Forget(*generation);
    throw;
  }
  return generation;
}

// Until one is not taken.
std::optional<ApiError> Service::SubmitChoices(Generation& generation, uint64_t drawn) {
  for (uint32_t i = 0; i < generation.num_choices(); ++i) {
    // Without a seed equal prompts of one request must not give equal texts (B049).
    GenerateRequest request =
        generation.EngineRequest(i, ctx_, generation.seed().value_or(Mix64(drawn + i)));
    if (const Status checked = engine_.Check(request); !checked.ok()) {
      return FromEngine(checked.error());
    }
    generation.Opened(i);
    try {
      auto submitted = engine_.Submit(std::move(request));
      if (submitted.ok()) {
        generation.SetRequestId(i, *submitted);
        continue;
      }
      generation.NotTaken(i);
      return submitted.error().kind == ErrorKind::kNoRoom ? QueueFull(submitted.error().message)
                                                          : FromEngine(submitted.error());
    } catch (const std::bad_alloc&) {
      if (generation.choice_open(i)) generation.NotTaken(i);
      throw;
    }
  }
  return std::nullopt;
}

// It never began: no failure to be counted.
void Service::Withdraw(Generation& generation) noexcept {
  CancelOpenChoices(generation);
  generation.abandoned = true;
  generation.Drop();
  if (generation.engine_done()) Forget(generation);
}

void Service::Forget(Generation& generation) noexcept {
  deadlines_.erase({generation.deadline_us, &generation});
  open_.erase(&generation);
}

std::optional<int64_t> Service::NextDeadlineUs() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

void Service::Expire(int64_t now_us) noexcept {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
    const auto generation = open_.at(deadlines_.begin()->second);
    deadlines_.erase(deadlines_.begin());
    if (generation->complete()) continue;
    ++counters_.timed_out;
    const bool part = generation->Expire();
    CancelOpenChoices(*generation);
    if (!part && generation->listener != nullptr) generation->listener->OnOutput(*generation);
  }
}

void Service::CancelOpenChoices(const Generation& generation) noexcept {
  for (uint32_t i = 0; i < generation.num_choices(); ++i) {
    if (generation.choice_open(i)) engine_.Cancel(generation.request_id(i));
  }
}

void Service::Release(Generation& generation) noexcept {
  generation.listener = nullptr;
  if (generation.complete()) return;
  ++counters_.abandoned;
  generation.abandoned = true;
  CancelOpenChoices(generation);
  generation.Drop();
}

void Service::FailAll(const ApiError& error) noexcept {
  for (auto& [key, generation] : open_) {
    generation->Fail(error);
    CancelOpenChoices(*generation);
    Touch(*generation);
  }
  TellTouched();
}

void Service::Dispatch() noexcept {
  mailbox_.Take(batch_);
  for (const MailboxEvent& event : batch_) {
    Generation& generation = *event.generation;
    const bool is_token = event.finish == nullptr && !event.progress && event.prompt_index == 0;
    if (is_token && !std::exchange(generation.any_token, true)) {
      counters_.first_token.Add(SteadyNowUs() - generation.received_us);
    }
    switch (Apply(generation, event)) {
      case Generation::Next::kGoOn:
        break;
      case Generation::Next::kCancelChoice:
        engine_.Cancel(generation.request_id(event.choice));
        break;
      case Generation::Next::kCancelAll:
        CancelOpenChoices(generation);
        break;
    }
    Touch(generation);
  }
  TellTouched();
}

Generation::Next Service::Apply(Generation& generation, const MailboxEvent& event) noexcept {
  try {
    return generation.Apply(event);
  } catch (const std::bad_alloc&) {
    generation.OnOutOfMemory(event);
    return Generation::Next::kCancelAll;
  }
}

void Service::Touch(Generation& generation) noexcept {
  if (!std::exchange(generation.touched, true)) touched_.push_back(open_.at(&generation));
}

// A listener may start or abandon answers, which changes open_, but never what touched_ holds.
void Service::TellTouched() noexcept {
  for (size_t i = 0; i < touched_.size(); ++i) {
    const std::shared_ptr<Generation> generation = std::move(touched_[i]);
    generation->touched = false;
    // Of a choice that a stop string ended the engine may not have let go yet.
    if (generation->complete() && !std::exchange(generation->counted, true)) Count(*generation);
    if (generation->engine_done()) Forget(*generation);
    if (generation->listener != nullptr) generation->listener->OnOutput(*generation);
  }
  touched_.clear();  // keeps its room
}

void Service::Count(const Generation& generation) {
  for (uint32_t i = 0; i < generation.num_choices(); ++i) {
    switch (generation.choice_end(i)) {
      case ChoiceEnd::kEndToken:
      case ChoiceEnd::kStopText:
        ++counters_.finished_stop;
        break;
      case ChoiceEnd::kLength:
        ++counters_.finished_length;
        break;
      case ChoiceEnd::kTimeout:
        ++counters_.finished_timeout;
        break;
      case ChoiceEnd::kNone:
        break;
    }
  }
  if (generation.failed() && !generation.abandoned) ++counters_.failed;
  if (generation.complete() && !generation.failed()) {
    counters_.whole.Add(SteadyNowUs() - generation.received_us);
  }
}

void Service::Tick(int64_t now_us) {
  const EngineMetrics metrics = engine_.Metrics();
  rate_.Observe(now_us,
                metrics.requests_finished + metrics.requests_cancelled + metrics.requests_failed);
  stall_.Observe(now_us, !open_.empty(), metrics);
}

uint32_t Service::RetryAfterSeconds() const {
  return rate_.RetryAfterSeconds(engine_.Metrics().queued);
}

uint64_t Service::ResidentKvBytes() const {
  const int64_t now_us = SteadyNowUs();
  if (now_us >= resident_until_us_) {
    resident_bytes_ = engine_.ResidentKvBytes();
    resident_until_us_ = now_us + kResidentFreshUs;
  }
  return resident_bytes_;
}

std::string Service::ModelListJson() const {
  return ModelListBody(config_.model, config_.created_s, ctx_);
}
std::string Service::ModelJson() const { return ModelBody(config_.model, config_.created_s, ctx_); }

}  // namespace kvrm
