#include "bench/load/exchange.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <utility>

namespace kvrm::cli {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;

constexpr size_t kReadBytes = 64 * 1024;
constexpr uint32_t kMaxHeadBytes = 64 * 1024;
constexpr uint64_t kMaxAnswerBytes = 256u << 20;
constexpr size_t kMaxErrorBytes = 64 * 1024;

Outcome OutcomeOfStatus(unsigned status) {
  if (status == 429) return Outcome::kHttp429;
  if (status == 503) return Outcome::kHttp503;
  return status >= 400 && status < 500 ? Outcome::kHttp4xx : Outcome::kHttp5xx;
}

}  // namespace

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Exchange::Exchange(asio::io_context& io, Spec spec, RequestRecord record, OnText on_text,
                   OnEnd on_end)
    : spec_(std::move(spec)),
      on_text_(std::move(on_text)),
      on_end_(std::move(on_end)),
      io_(io),
      timer_(io),
      record_(std::move(record)) {}

void Exchange::Start(std::unique_ptr<Tcp::socket> idle) {
  timer_.expires_after(std::chrono::microseconds(static_cast<int64_t>(spec_.timeout_s * 1e6)));
  timer_.async_wait([self = shared_from_this()](const ErrorCode& error) {
    if (!error) self->Abort(Outcome::kTimeout);
  });
  record_.sent_us = NowUs();
  socket_ = std::move(idle);
  reused_ = socket_ != nullptr;
  if (reused_) {
    Write();
  } else {
    Connect();
  }
}

void Exchange::Connect() {
  socket_ = std::make_unique<Tcp::socket>(io_);
  socket_->async_connect(spec_.server, [self = shared_from_this()](const ErrorCode& error) {
    if (self->ended_) return;
    if (error) return self->End(Outcome::kConnect, error.message(), NowUs());
    ErrorCode ignored;
    self->socket_->set_option(Tcp::no_delay(true), ignored);
    self->Write();
  });
}

void Exchange::Write() {
  parser_ = std::make_unique<Parser>();
  parser_->eager(true);
  parser_->header_limit(kMaxHeadBytes);
  parser_->body_limit(kMaxAnswerBytes);
  record_.sent_us = NowUs();
  asio::async_write(*socket_, asio::buffer(spec_.request),
                    [self = shared_from_this()](const ErrorCode& error, size_t) {
                      if (self->ended_) return;
                      // A server that refuses early may close its reading side with the answer
                      // already sent: the read below decides.
                      if (error && self->reused_) {
                        return self->OnConnectionEnd(error, NowUs());
                      }
                      self->Read();
                    });
}

void Exchange::Read() {
  socket_->async_read_some(pending_.prepare(kReadBytes),
                           [self = shared_from_this()](const ErrorCode& error, size_t num_bytes) {
                             self->OnRead(error, num_bytes);
                           });
}

void Exchange::OnRead(const ErrorCode& error, size_t num_bytes) {
  const int64_t now_us = NowUs();
  if (ended_) return;
  if (error) return OnConnectionEnd(error, now_us);
  reused_ = false;
  pending_.commit(num_bytes);
  if (Parse(now_us)) Read();
}

bool Exchange::Parse(int64_t now_us) {
  while (pending_.size() > 0 && !parser_->is_done()) {
    ErrorCode error;
    const size_t used = parser_->put(pending_.data(), error);
    pending_.consume(used);
    if (error && error != http::error::need_more) {
      End(Outcome::kMalformed, "HTTP: " + error.message(), now_us);
      return false;
    }
    if (!TakeBody(now_us)) return false;
    if (used == 0) break;
  }
  if (!parser_->is_done()) return true;
  OnMessageEnd(now_us);
  return false;
}

// Events are taken out of the body as they come; the body of a refusal is kept for its message.
bool Exchange::TakeBody(int64_t now_us) {
  if (!parser_->is_header_done()) return true;
  record_.http_status = parser_->get().result_int();
  std::string& body = parser_->get().body();
  if (record_.http_status != 200) {
    body.resize(std::min(body.size(), kMaxErrorBytes));
    return true;
  }
  if (body.empty()) return true;
  const bool fits = events_.Feed(body, [&](const SseEvent& event) { OnEvent(event, now_us); });
  body.clear();
  if (!fits) bad_event_ = "an event is larger than 4 MiB";
  if (!bad_event_.empty()) {
    End(Outcome::kMalformed, bad_event_, now_us);
  } else if (!stream_error_.empty()) {
    End(Outcome::kStreamError, stream_error_, now_us);
  } else if (spec_.cancel_after && record_.events.size() >= *spec_.cancel_after && !saw_done_) {
    End(Outcome::kCancelled, "", now_us);
  }
  return !ended_;
}

void Exchange::OnEvent(const SseEvent& event, int64_t now_us) {
  if (!bad_event_.empty() || !stream_error_.empty() || saw_done_) return;
  const Result<AnswerEvent> parsed = ParseAnswerEvent(event.data);
  if (!parsed.ok()) {
    bad_event_ = parsed.error().message;
    return;
  }
  stream_error_ = parsed->error;
  saw_done_ = parsed->done;
  if (!parsed->finish_reason.empty()) record_.finish_reason = parsed->finish_reason;
  if (parsed->prompt_tokens) record_.prompt_tokens = parsed->prompt_tokens;
  if (parsed->output_tokens) record_.output_tokens = parsed->output_tokens;
  if (parsed->cached_tokens) record_.cached_tokens = parsed->cached_tokens;
  if (saw_done_) record_.end_us = now_us;
  if (parsed->text.empty()) return;
  text_ += parsed->text;
  record_.events.push_back({now_us, event.sent_us});
  on_text_(record_);
}

void Exchange::OnConnectionEnd(const ErrorCode& error, int64_t now_us) {
  if (reused_) {
    reused_ = false;
    pending_.clear();
    return Connect();
  }
  if (error == asio::error::eof && parser_->is_header_done()) {
    ErrorCode at_end;
    parser_->put_eof(at_end);  // an answer without a length ends with the connection
    if (!at_end) return OnMessageEnd(now_us);
  }
  End(Outcome::kReset, error.message(), now_us);
}

void Exchange::OnMessageEnd(int64_t now_us) {
  reusable_ = parser_->is_done() && parser_->get().keep_alive() && pending_.size() == 0;
  if (record_.http_status != 200) {
    return End(OutcomeOfStatus(record_.http_status), ErrorMessage(parser_->get().body()), now_us);
  }
  const bool complete = saw_done_ || !record_.finish_reason.empty();
  if (!complete) return End(Outcome::kTruncated, "no finish reason, no [DONE]", now_us);
  if (record_.tokens() == 0) return End(Outcome::kEmpty, "no token", now_us);
  End(Outcome::kDone, "", saw_done_ ? record_.end_us : now_us);
}

void Exchange::Abort(Outcome outcome) {
  if (!ended_) End(outcome, "", NowUs());
}

void Exchange::End(Outcome outcome, std::string detail, int64_t now_us) {
  ended_ = true;
  record_.outcome = outcome;
  record_.detail = std::move(detail);
  record_.end_us = now_us;
  timer_.cancel();
  if (!reusable_ && socket_ != nullptr) {
    ErrorCode ignored;
    socket_->close(ignored);
  }
  asio::post(io_, [self = shared_from_this()] { self->on_end_(*self); });
}

std::unique_ptr<Exchange::Tcp::socket> Exchange::TakeConnection() {
  return reusable_ ? std::move(socket_) : nullptr;
}

}  // namespace kvrm::cli
