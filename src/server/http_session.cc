#include "server/http_session.h"

#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <cerrno>

#include "server/head_check.h"
#include "server/read_routes.h"

namespace kvrm {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr std::string_view kEvents = "text/event-stream; charset=utf-8";
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr size_t kIdleReadBytes = 512;
constexpr size_t kMaxBufferedBytes = 128u << 10;
constexpr uint64_t kSmallBodyBytes = 64u << 10;  // below it a body does not count
constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr uint32_t kRetryAfterSeconds = 1;

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

HttpSession::HttpSession(HttpServer& server, HttpServer::Tcp::socket socket)
    : server_(server), stream_(std::move(socket)), buffer_(kMaxBufferedBytes) {}

HttpSession::~HttpSession() = default;

// Keeps the session alive for an operation, and drops the callback of one that was closed.
template <class Handler>
auto HttpSession::Guarded(Handler handler) {
  return [self = shared_from_this(), handler](const Error& ec, auto... rest) {
    if (self->state_ != State::kClosed) handler(*self, ec, rest...);
  };
}

void HttpSession::StartRefused() {
  keep_alive_ = false;
  RespondError(HttpError(503,
                         "too many connections, at most " +
                             std::to_string(server_.config().max_connections) + " are served",
                         "busy"));
}

// ---- reading
void HttpSession::AwaitRequest() {
  state_ = State::kIdle;
  match_ = {};
  request_id_.clear();
  head_only_ = head_sent_ = last_write_ = false;
  keep_alive_ = chunked_ = true;
  parser_.emplace();
  parser_->header_limit(server_.config().max_header_bytes);
  parser_->body_limit(server_.config().max_body_bytes);
  if (buffer_.size() > 0) {
    ReadHead();
    return;
  }
  buffer_.shrink_to_fit();
  stream_.expires_after(server_.config().idle_timeout);
  stream_.async_read_some(buffer_.prepare(kIdleReadBytes),
                          Guarded([](HttpSession& self, const Error& ec, size_t bytes) {
                            if (ec) return self.Close();
                            self.buffer_.commit(bytes);
                            self.ReadHead();
                          }));
}

// One deadline for the whole head, however slowly it drips in.
void HttpSession::ReadHead() {
  state_ = State::kHead;
  stream_.expires_after(server_.config().header_timeout);
  http::async_read_header(
      stream_, buffer_, *parser_,
      Guarded([](HttpSession& self, const Error& ec, size_t) { self.OnHead(ec); }));
}

void HttpSession::OnHead(const Error& ec) {
  if (ec) return RefuseHead(ec);
  const auto& head = parser_->get();
  keep_alive_ = head.keep_alive();
  chunked_ = head.version() >= 11;
  head_only_ = head.method() == http::verb::head;
  match_ = MatchRoute(View(head.target()));
  if (IsPlainHeaderValue(View(head["X-Request-ID"]))) request_id_ = head["X-Request-ID"];
  const HeadRules rules{match_.route, match_.not_offered, server_.phase(), server_.loopback_only(),
                        server_.config().host};
  if (auto error = CheckHead(head, rules)) {
    // An unread body would be taken for the next request.
    if (!parser_->is_done()) keep_alive_ = false;
    return RespondError(*error);
  }
  if (IsPost(match_.route)) return ReadBody();
  if (!parser_->is_done()) keep_alive_ = false;
  AnswerGet();
}

// The head itself was wrong: say so if it was read that far, and close.
void HttpSession::RefuseHead(const Error& ec) {
  keep_alive_ = false;
  if (ec == http::error::header_limit) {
    const uint64_t limit = server_.config().max_header_bytes;
    return RespondError(HttpError(431,
                                  "the header has " + std::to_string(limit + 1) +
                                      " bytes or more, at most " + std::to_string(limit) +
                                      " are taken",
                                  "header_too_large"));
  }
  if (ec == http::error::body_limit) {
    const uint64_t limit = server_.config().max_body_bytes;
    // Already known to be a number; absent of a chunked body.
    const std::string length(View(parser_->get()[http::field::content_length]));
    const std::string size =
        length.empty() ? std::to_string(limit + 1) + " bytes or more" : length + " bytes";
    match_ = MatchRoute(View(parser_->get().target()));
    return RespondError(
        HttpError(413, "the body has " + size + ", at most " + std::to_string(limit) + " are taken",
                  "body_too_large"));
  }
  const bool from_peer = ec.category() == http::make_error_code(http::error::bad_method).category();
  if (!from_peer || ec == http::error::end_of_stream || ec == http::error::partial_message) {
    return Close();
  }
  RespondError(HttpError(400, "not valid HTTP: " + ec.message(), "bad_http"));
}

void HttpSession::ReadBody() {
  state_ = State::kBody;
  parser_->eager(true);
  if (!ChargeBody(parser_->content_length().value_or(0))) return RefuseBody();
  const auto read = [](HttpSession& self, const Error& ec, size_t) {
    if (ec) return self.Close();
    self.stream_.expires_after(self.server_.config().body_timeout);
    self.ReadMoreBody();
  };
  if (parser_->get().count(http::field::expect) == 0 || parser_->is_done()) {
    return read(*this, {}, 0);
  }
  stream_.expires_after(server_.config().write_timeout);
  net::async_write(stream_, net::buffer(kContinue), Guarded(read));
}

// Chunked bodies do not say how large they will be: they are charged as they grow.
void HttpSession::ReadMoreBody() {
  if (parser_->is_done()) return BeginAnswer();
  http::async_read_some(stream_, buffer_, *parser_,
                        Guarded([](HttpSession& self, const Error& ec, size_t) {
                          if (ec) return self.OnBodyFailed(ec);
                          if (!self.ChargeBody(self.parser_->get().body().size())) {
                            return self.RefuseBody();
                          }
                          self.ReadMoreBody();
                        }));
}

void HttpSession::OnBodyFailed(const Error& ec) {
  ReleaseBodyBudget();
  const bool too_large = ec == http::error::body_limit || ec == http::error::buffer_overflow;
  RefuseHead(too_large ? Error(http::error::body_limit) : ec);
}

// Raises the room taken to that of a body of `bytes`; false = there is none.
bool HttpSession::ChargeBody(uint64_t bytes) {
  if (bytes <= kSmallBodyBytes || bytes <= body_budget_) return true;
  if (!server_.TakeBodyBudget(bytes - body_budget_)) return false;
  body_budget_ = bytes;
  return true;
}

void HttpSession::RefuseBody() {
  ReleaseBodyBudget();
  keep_alive_ = false;
  RespondError(HttpError(503,
                         "bodies of more than " +
                             std::to_string(server_.config().max_pending_body_bytes) +
                             " bytes at once, all together",
                         "busy"));
}

void HttpSession::ReleaseBodyBudget() { server_.ReturnBodyBudget(std::exchange(body_budget_, 0)); }

// ---- answering
void HttpSession::AnswerGet() {
  const auto answer = AnswerRead(match_, server_.read_context());
  if (const auto* error = std::get_if<ApiError>(&answer)) return RespondError(*error);
  const ReadAnswer& read = std::get<ReadAnswer>(answer);
  Respond(200, read.content_type, read.body);
}

void HttpSession::BeginAnswer() {
  // The server may have begun to drain while the body was read.
  if (server_.phase() != ServerPhase::kReady) {
    ReleaseBodyBudget();
    return RespondError(NotReadyError(server_.phase()));
  }
  state_ = State::kAnswering;
  answering_ = true;
  server_.AnswerBegan();
  Watch();
  if (KindOf(match_.route) == RouteKind::kConvert) return BeginConversion();
  const Api api = match_.route == Route::kChat ? Api::kChat : Api::kCompletions;
  server_.Prepare(api, std::move(parser_->get().body()),
                  [self = shared_from_this()](HttpServer::Prepared prepared) {
                    self->ReleaseBodyBudget();
                    if (self->state_ != State::kClosed) self->OnPrepared(std::move(prepared));
                  });
}

void HttpSession::BeginConversion() {
  server_.Convert(match_.route, std::move(parser_->get().body()),
                  [self = shared_from_this()](HttpServer::Converted converted) {
                    self->ReleaseBodyBudget();
                    if (self->state_ == State::kClosed) return;
                    const auto* error = std::get_if<ApiError>(&converted);
                    if (error != nullptr) return self->RespondError(*error);
                    self->Respond(200, kJsonType, std::get<std::string>(converted));
                  });
}

void HttpSession::OnPrepared(HttpServer::Prepared prepared) {
  if (const auto* error = std::get_if<ApiError>(&prepared)) return RespondError(*error);
  auto started = server_.service()->Start(std::move(std::get<PreparedRequest>(prepared)), this);
  if (const auto* error = std::get_if<ApiError>(&started)) return RespondError(*error);
  generation_ = std::move(std::get<std::shared_ptr<Generation>>(started));
}

void HttpSession::OnOutput(Generation&) { Pump(); }

void HttpSession::Pump() {
  if (writing_) {
    if (generation_->output_bytes() <= server_.config().max_outbox_bytes) return;
    ++server_.counters().outbox_overflows;
    return Close();
  }
  if (const auto& error = generation_->error()) {
    const ApiError copy = *error;
    ReleaseGeneration();
    return RespondError(copy);
  }
  if (generation_->stream()) return PumpStream();
  if (!generation_->complete()) return;
  const std::string body = generation_->TakeOutput();
  ReleaseGeneration();
  Respond(200, kJsonType, body);
}

// Everything made since the last write goes out in one write; the head travels with the first text.
void HttpSession::PumpStream() {
  const bool complete = generation_->complete();
  const std::string events = generation_->TakeOutput();
  if (events.empty()) return;
  out_.clear();
  if (!head_sent_) {
    HeadFields head;
    head.content_type = kEvents;
    head.framing = chunked_ ? HeadFields::Framing::kChunked : HeadFields::Framing::kUntilClose;
    if (!chunked_) keep_alive_ = false;
    head.keep_alive = keep_alive_;
    head.event_stream = true;
    head.request_id = request_id_;
    out_ = HeadText(head);
    head_sent_ = true;
    ++server_.counters().responses[{std::string(RouteName(match_.route)), 200}];
  }
  if (chunked_) {
    AppendChunk(out_, events);
    if (complete) out_ += kLastChunk;
  } else {
    out_ += events;
  }
  last_write_ = complete;
  if (complete) ReleaseGeneration();
  Write();
}

void HttpSession::ReleaseGeneration() {
  if (generation_ != nullptr) server_.service()->Release(*generation_);
  generation_.reset();
}

void HttpSession::EndAnswer() {
  if (std::exchange(answering_, false)) server_.AnswerEnded();
}

// ---- writing
void HttpSession::Respond(int status, std::string_view content_type, const std::string& body) {
  HeadFields head;
  head.status = status;
  head.content_type = content_type;
  head.content_length = body.size();
  if (server_.phase() == ServerPhase::kDraining) keep_alive_ = false;
  head.keep_alive = keep_alive_;
  head.request_id = request_id_;
  if (status == 405) head.allow = AllowedMethods(match_.route);
  if (status == 429 || status == 503) head.retry_after_s = kRetryAfterSeconds;
  out_ = HeadText(head);
  if (!head_only_) out_ += body;
  ++server_.counters().responses[{std::string(RouteName(match_.route)), status}];
  last_write_ = true;
  Write();
}

void HttpSession::RespondError(const ApiError& error) {
  Respond(error.status, kJsonType, ErrorBody(error));
}

void HttpSession::Write() {
  if (!answering_) state_ = State::kWriting;
  writing_ = true;
  stream_.expires_after(server_.config().write_timeout);
  net::async_write(stream_, net::buffer(out_),
                   Guarded([](HttpSession& self, const Error& ec, size_t) { self.OnWritten(ec); }));
}

void HttpSession::OnWritten(const Error& ec) {
  writing_ = false;
  if (ec) return ClientGone();
  if (!last_write_) return Pump();
  EndAnswer();
  if (state_ == State::kClosed) return;  // the last answer of a drain closes what is left
  out_ = {};
  if (keep_alive_ && server_.phase() != ServerPhase::kDraining) return AwaitRequest();
  Linger();
}

// Closing at once while the client still sends would reset the connection and could take the answer
// with it: say that nothing more comes, and read on for a moment.
void HttpSession::Linger() {
  if (state_ != State::kLingering) {
    state_ = State::kLingering;
    Error ignored;
    stream_.socket().shutdown(HttpServer::Tcp::socket::shutdown_send, ignored);
    stream_.expires_after(kLingerTime);
  }
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kSmallBodyBytes),
                          Guarded([](HttpSession& self, const Error& ec, size_t) {
                            if (ec) return self.Close();
                            self.Linger();
                          }));
}

void HttpSession::Close() {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();
  // While the body is being prepared its room is in use, whether the client is there or not.
  if (state_ == State::kBody) ReleaseBodyBudget();
  state_ = State::kClosed;
  ReleaseGeneration();
  stream_.close();
  server_.Remove(this);
  EndAnswer();
}

void HttpSession::CloseIfIdle() {
  if (state_ == State::kIdle || state_ == State::kHead) Close();
}

// ---- watching
void HttpSession::Watch() {
  if (watching_ || state_ != State::kAnswering) return;
  watching_ = true;
  stream_.socket().async_wait(HttpServer::Tcp::socket::wait_read,
                              Guarded([](HttpSession& self, const Error& ec) {
                                self.watching_ = false;
                                if (!ec) self.OnReadable();
                              }));
}

// The wait may be one left over from an earlier answer: whatever woke it, the socket tells.
void HttpSession::OnReadable() {
  if (state_ != State::kAnswering) return;
  char byte = 0;
  const ssize_t got = recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0) {
    if (!KeepPipelined(kMaxBufferedBytes - buffer_.size())) return Close();
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    return ClientGone();
  }
  Watch();
}

// The client has sent its next request already: its bytes are kept, for only an empty socket can
// tell of a hang-up. False: it sent more than is kept.
bool HttpSession::KeepPipelined(size_t max_bytes) {
  if (max_bytes == 0) return false;
  const auto room = buffer_.prepare(std::min<size_t>(max_bytes, kSmallBodyBytes));
  const ssize_t got =
      recv(stream_.socket().native_handle(), room.data(), room.size(), MSG_DONTWAIT);
  if (got > 0) buffer_.commit(static_cast<size_t>(got));
  return true;
}

void HttpSession::ClientGone() {
  if (answering_) ++server_.counters().client_gone;
  Close();
}

}  // namespace kvrm
