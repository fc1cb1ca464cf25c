#include "bench/load/http_exchange.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <utility>

namespace kvrm::cli {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace json = boost::json;
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

// A name may have several addresses, and a server listen on one of them only ("localhost"): the
// first that takes a connection, or else the first.
Result<asio::ip::tcp::endpoint> FindServer(const LoadTarget& target) {
  asio::io_context io;
  asio::ip::tcp::resolver resolver(io);
  ErrorCode error;
  std::string host = target.host;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto found = resolver.resolve(host, std::to_string(target.port), error);
  if (error) return NotFound("host '" + target.host + "': " + error.message());
  if (found.size() > 1) {
    for (const auto& entry : found) {
      asio::ip::tcp::socket socket(io);
      socket.connect(entry.endpoint(), error);
      if (!error) return entry.endpoint();
    }
  }
  return found.begin()->endpoint();
}

}  // namespace

int64_t NowUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

HttpExchange::HttpExchange(asio::io_context& io, Spec spec, std::unique_ptr<Tcp::socket> idle,
                           RequestRecord record, OnText on_text, OnEnd on_end)
    : Exchange(std::move(record), std::move(on_text), std::move(on_end)),
      spec_(std::move(spec)),
      io_(io),
      timer_(io),
      socket_(std::move(idle)),
      reused_(socket_ != nullptr) {}

void HttpExchange::Start() {
  timer_.expires_after(std::chrono::microseconds(static_cast<int64_t>(spec_.timeout_s * 1e6)));
  timer_.async_wait([self = shared_from_this()](const ErrorCode& error) {
    if (!error) self->Abort(Outcome::kTimeout);
  });
  record_.sent_us = NowUs();
  if (reused_) {
    Write();
  } else {
    Connect();
  }
}

void HttpExchange::Connect() {
  socket_ = std::make_unique<Tcp::socket>(io_);
  socket_->async_connect(spec_.server, [self = shared_from_this()](const ErrorCode& error) {
    if (self->ended_) return;
    if (error) return self->End(Outcome::kConnect, error.message(), NowUs());
    ErrorCode ignored;
    self->socket_->set_option(Tcp::no_delay(true), ignored);
    self->Write();
  });
}

void HttpExchange::Write() {
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

void HttpExchange::Read() {
  socket_->async_read_some(pending_.prepare(kReadBytes),
                           [self = shared_from_this()](const ErrorCode& error, size_t num_bytes) {
                             self->OnRead(error, num_bytes);
                           });
}

void HttpExchange::OnRead(const ErrorCode& error, size_t num_bytes) {
  const int64_t now_us = NowUs();
  if (ended_) return;
  if (error) return OnConnectionEnd(error, now_us);
  reused_ = false;
  pending_.commit(num_bytes);
  if (Parse(now_us)) Read();
}

bool HttpExchange::Parse(int64_t now_us) {
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
bool HttpExchange::TakeBody(int64_t now_us) {
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

void HttpExchange::OnEvent(const SseEvent& event, int64_t now_us) {
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

void HttpExchange::OnConnectionEnd(const ErrorCode& error, int64_t now_us) {
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

void HttpExchange::OnMessageEnd(int64_t now_us) {
  reusable_ = parser_->is_done() && parser_->get().keep_alive() && pending_.size() == 0;
  if (record_.http_status != 200) {
    return End(OutcomeOfStatus(record_.http_status), ErrorMessage(parser_->get().body()), now_us);
  }
  const bool complete = saw_done_ || !record_.finish_reason.empty();
  if (!complete) return End(Outcome::kTruncated, "no finish reason, no [DONE]", now_us);
  if (record_.tokens() == 0) return End(Outcome::kEmpty, "no token", now_us);
  End(Outcome::kDone, "", saw_done_ ? record_.end_us : now_us);
}

void HttpExchange::Abort(Outcome outcome) {
  if (!ended_) End(outcome, "", NowUs());
}

void HttpExchange::End(Outcome outcome, std::string detail, int64_t now_us) {
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

std::unique_ptr<HttpExchange::Tcp::socket> HttpExchange::TakeConnection() {
  return reusable_ ? std::move(socket_) : nullptr;
}

// ---- the backend

Result<LoadTarget> ParseTarget(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) {
    return InvalidInput("URL '" + url + "': takes http://HOST[:PORT][/BASE]");
  }
  LoadTarget target;
  const std::string rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string authority = rest.substr(0, slash), path = rest.substr(slash);
  while (path.ends_with('/')) path.pop_back();
  if (!path.empty()) target.base_path = path;
  target.port = 80;
  const size_t bracket = authority.find(']');
  const size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos) {
    const char* end = authority.data() + authority.size();
    const auto [stop, error] = std::from_chars(authority.data() + colon + 1, end, target.port);
    if (error != std::errc() || stop != end || target.port == 0) {
      return InvalidInput("URL '" + url + "': the port is 1 to 65535");
    }
    authority.resize(colon);
  }
  if (authority.empty()) return InvalidInput("URL '" + url + "': names no host");
  target.host = authority;
  return target;
}

Result<std::unique_ptr<HttpBackend>> HttpBackend::Create(const LoadTarget& target) {
  KVRM_ASSIGN_OR_RETURN(Tcp::endpoint server, FindServer(target));
  return std::unique_ptr<HttpBackend>(new HttpBackend(target, std::move(server)));
}

std::shared_ptr<Exchange> HttpBackend::Ask(asio::io_context& io, const Question& question,
                                           RequestRecord record, Exchange::OnText on_text,
                                           Exchange::OnEnd on_end) {
  std::unique_ptr<Tcp::socket> idle;
  if (!idle_.empty()) {
    idle = std::move(idle_.back());
    idle_.pop_back();
    ++reused_connections_;
  }
  HttpExchange::Spec spec{.server = server_,
                          .request = RequestText(question),
                          .timeout_s = question.timeout_s,
                          .cancel_after = question.cancel_after};
  return std::make_shared<HttpExchange>(io, std::move(spec), std::move(idle), std::move(record),
                                        std::move(on_text), std::move(on_end));
}

void HttpBackend::Ended(Exchange& exchange) {
  auto connection = static_cast<HttpExchange&>(exchange).TakeConnection();
  if (connection != nullptr) idle_.push_back(std::move(connection));
}

std::string HttpBackend::RequestText(const Question& question) const {
  json::object body{{"model", target_.model},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}},
                    {"max_tokens", question.output_tokens},
                    {"temperature", question.temperature},
                    {"ignore_eos", question.ignore_eos}};
  if (question.chat) {
    json::array messages;
    for (const Message& message : question.messages) {
      messages.push_back({{"role", message.role}, {"content", message.content}});
    }
    body["messages"] = std::move(messages);
  } else {
    body["prompt"] = question.text;
  }
  const std::string content = json::serialize(body);
  std::string text = "POST " + target_.base_path +
                     (question.chat ? "/chat/completions" : "/completions") +
                     " HTTP/1.1\r\nHost: " + target_.host + ":" + std::to_string(target_.port) +
                     "\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n";
  for (const auto& [name, value] : target_.headers) text += name + ": " + value + "\r\n";
  return text + "Content-Length: " + std::to_string(content.size()) + "\r\n\r\n" + content;
}

}  // namespace kvrm::cli
