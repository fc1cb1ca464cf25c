#include "bench/replay/engine_backend.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "bench/load/local_exchange.h"
#include "text/text_stream.h"

namespace kvrm::cli {
namespace {

namespace asio = boost::asio;

// The sink's calls come on the engine thread; all else on the io_context's. The engine holds it
// until its OnFinish, and so does the io_context, which must not end before that.
class EngineExchange final : public LocalExchange, public EventSink {
 public:
  EngineExchange(asio::io_context& io, const Session& session, const Question& question,
                 RequestRecord record, OnText on_text, OnEnd on_end)
      : LocalExchange(io, question, std::move(record), std::move(on_text), std::move(on_end)),
        session_(session),
        stream_(*session.tokenizer, {}),
        request_(RequestOf(question)) {}

  void Start() override;

  void OnToken(RequestId, const TokenEvent& event) override {
    asio::post(io_, [self = Self(), token = event.token, now_us = NowUs()] {
      self->TakeToken(token, now_us);
    });
  }
  void OnFinish(RequestId, const FinishEvent& event) override {
    asio::post(io_, [self = Self(), event, now_us = NowUs()] { self->TakeFinish(event, now_us); });
  }

 private:
  std::shared_ptr<EngineExchange> Self() {
    return std::static_pointer_cast<EngineExchange>(shared_from_this());
  }
  // Errors: the chat template refuses the messages.
  Result<GenerateRequest> RequestOf(const Question& question) const;
  void TakeToken(TokenId token, int64_t now_us);
  void TakeFinish(const FinishEvent& event, int64_t now_us);
  void GiveUp() override {
    if (id_) session_.runtime->engine->Cancel(*id_);
  }

  const Session& session_;
  TextStream stream_;
  Result<GenerateRequest> request_;
  std::optional<RequestId> id_;
  // While the engine has the request.
  std::shared_ptr<EngineExchange> held_by_engine_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
};

Result<GenerateRequest> EngineExchange::RequestOf(const Question& question) const {
  GenerateRequest request;
  if (question.chat) {
    std::vector<ChatMessage> messages;
    for (const Message& message : question.messages) {
      messages.push_back({.role = message.role, .content = message.content});
    }
    KVRM_ASSIGN_OR_RETURN(request.prompt, EncodeChat(session_, messages));
  } else {
    request.prompt = EncodePrompt(*session_.tokenizer, question.text);
  }
  request.sampling.temperature = static_cast<float>(question.temperature);
  request.max_new_tokens = question.output_tokens;
  if (!question.ignore_eos) request.end_tokens = session_.tokenizer->end_tokens();
  return request;
}

void EngineExchange::Start() {
  BeginAnswer();
  if (!request_.ok()) return End(Outcome::kHttp4xx, request_.error().message, record_.sent_us);
  Engine& engine = *session_.runtime->engine;
  request_->sink = this;
  if (const Status fits = engine.Check(*request_); !fits.ok()) {
    return End(Outcome::kHttp4xx, fits.error().message, NowUs());
  }
  held_by_engine_ = Self();
  work_.emplace(io_.get_executor());
  const Result<RequestId> id = engine.Submit(std::move(*request_));
  if (!id.ok()) {
    work_.reset();
    held_by_engine_.reset();
    return End(Outcome::kHttp429, id.error().message, NowUs());
  }
  id_ = *id;
}

void EngineExchange::TakeToken(TokenId token, int64_t now_us) {
  if (!ended()) TakeText(stream_.Push(token), now_us);
}

void EngineExchange::TakeFinish(const FinishEvent& event, int64_t now_us) {
  const std::shared_ptr<EngineExchange> self = std::move(held_by_engine_);
  work_.reset();
  if (!ended()) TakeText(stream_.Finish(), now_us);
  if (ended()) return;
  record_.finish_reason = StopReasonName(event.reason);
  record_.prompt_tokens = event.timings.prompt_tokens;
  record_.output_tokens = event.timings.output_tokens;
  record_.cached_tokens = event.timings.cached_tokens;
  if (event.reason == StopReason::kError) return End(Outcome::kStreamError, event.message, now_us);
  if (event.reason == StopReason::kCancelled) return End(Outcome::kReset, "cancelled", now_us);
  End(record_.tokens() == 0 ? Outcome::kEmpty : Outcome::kDone, "", now_us);
}

}  // namespace

EngineBackend::EngineBackend(const Session& session, uint32_t context_tokens)
    : session_(session),
      context_tokens_(context_tokens > 0 ? context_tokens : session.runtime->ctx),
      engine_thread_([&engine = *session.runtime->engine] { engine.Run(); }) {}

EngineBackend::~EngineBackend() {
  session_.runtime->engine->Stop();
  engine_thread_.join();
}

std::shared_ptr<Exchange> EngineBackend::Ask(asio::io_context& io, const Question& question,
                                             RequestRecord record, Exchange::OnText on_text,
                                             Exchange::OnEnd on_end) {
  return std::make_shared<EngineExchange>(io, session_, question, std::move(record),
                                          std::move(on_text), std::move(on_end));
}

}  // namespace kvrm::cli
