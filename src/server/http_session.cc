#include "server/http_session.h"

#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <cerrno>

#include "server/http_error.h"

namespace kvrm {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr size_t kIdleReadBytes = 512;
constexpr size_t kMaxBufferedBytes = 128u << 10;
constexpr uint64_t kSmallBodyBytes = 64u << 10;  // below it a body does not count
constexpr auto kLingerTime = std::chrono::seconds(2);

}  // namespace

HttpSession::HttpSession(HttpServer& server, HttpServer::Tcp::socket socket)
    : server_(server), stream_(std::move(socket)), buffer_(kMaxBufferedBytes) {}

HttpSession::~HttpSession() = default;

void HttpSession::Start() noexcept {
  Run([this] { AwaitRequest(); });
}

void HttpSession::StartRefused() noexcept {
  Run([this] {
    BeginRequest({});
    facts_.keep_alive = false;
    RespondError(HttpError(503,
                           "too many connections, at most " +
                               std::to_string(server_.config().max_connections) + " are served",
                           "busy"));
  });
}

// ---- reading
void HttpSession::AwaitRequest() {
  state_ = State::kIdle;
  facts_ = {};
  head_sent_ = last_write_ = false;
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

// From here on the request is owed one line of the log.
void HttpSession::BeginRequest(RequestFacts facts) {
  facts_ = std::move(facts);
  if (facts_.id.empty()) facts_.id = server_.NextRequestId();
  record_ = {};
  record_.open = true;
  record_.begun_us = SteadyNowUs();
}

void HttpSession::OnHead(const Error& ec) {
  if (ec) return RefuseHead(ec);
  const auto& head = parser_->get();
  BeginRequest(ReadFacts(head, server_.head_policy()));
  facts_.keep_alive = head.keep_alive();
  if (auto error = CheckFraming(head)) {
    facts_.keep_alive = false;
    return RespondError(*error);
  }
  if (auto error = CheckHead(head, facts_, server_.phase(), server_.head_policy())) {
    // An unread body would be taken for the next request.
    if (!parser_->is_done()) facts_.keep_alive = false;
    return RespondError(*error);
  }
  if (IsPost(facts_.match.route) && head.method() == http::verb::post) return ReadBody();
  if (!parser_->is_done()) facts_.keep_alive = false;
  if (IsAllowedPreflight(head, facts_)) return AnswerPreflight();
  AnswerGet();
}

// The head itself was wrong: say so if it was read that far, and close.
void HttpSession::RefuseHead(const Error& ec) {
  if (!record_.open) BeginRequest({});
  facts_.keep_alive = false;
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
    facts_.match = MatchRoute(View(parser_->get().target()));
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
  const auto& head = parser_->get();
  // HTTP/1.0 does not know an answer before the answer.
  if (head.count(http::field::expect) == 0 || head.version() < 11 || parser_->is_done()) {
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
  facts_.keep_alive = false;
  RespondError(HttpError(503,
                         "bodies of more than " +
                             std::to_string(server_.config().max_pending_body_bytes) +
                             " bytes at once, all together",
                         "busy"));
}

void HttpSession::ReleaseBodyBudget() noexcept {
  server_.ReturnBodyBudget(std::exchange(body_budget_, 0));
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

void HttpSession::Close() noexcept {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();
  // While the body is being prepared its room is in use, whether the client is there or not.
  if (!computing_) ReleaseBodyBudget();
  state_ = State::kClosed;
  if (writing_) EndWrite();
  ReleaseGeneration();
  stream_.close();
  server_.Remove(this);
  EndAnswer();
  EndRequest(/*client_gone=*/true);
}

void HttpSession::CloseIfIdle() noexcept {
  if (state_ == State::kIdle || state_ == State::kHead) Close();
}

void HttpSession::OnOutOfMemory() noexcept {
  if (state_ == State::kClosed) return;
  if (record_.open && !writing_ && !head_sent_) {
    ReleaseGeneration();
    if (!computing_) ReleaseBodyBudget();
    facts_.keep_alive = false;
    try {
      return RespondError(OutOfMemoryError());
    } catch (const std::bad_alloc&) {
      return Close();  // not even for that
    }
  }
  Close();
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
