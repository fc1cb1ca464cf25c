// One connection: reads requests, answers them one after the other, watches the socket while an
// answer is under way. I/O thread only. Private to the folder (it shows Beast).
//
// Lifetime: pending operations hold it (shared_ptr: that is how Asio's callbacks keep their
// object), the server knows it by address until Remove.
//
//   idle -> head -> [body -> preparing -> answering] -> writing -> idle, or lingering, or closed
//
// While an answer is under way the socket is watched (readable, then a peek): end of file or an
// error means that the client is gone, and its answer is cancelled, streamed or not, queued or
// running. A half-closed connection counts as gone.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>

#include "server/head_check.h"
#include "server/http_server.h"
#include "server/http_text.h"
#include "server/request_log.h"

namespace kvrm {

class HttpSession final : public std::enable_shared_from_this<HttpSession>,
                          private GenerationListener {
 public:
  HttpSession(HttpServer& server, HttpServer::Tcp::socket socket);
  ~HttpSession() override;

  void Start() { AwaitRequest(); }
  // Too many connections: says so, whatever is asked, and closes.
  void StartRefused();
  // At once; an open answer is cancelled.
  void Close();
  // A stream that has been silent for long says so, that nothing on the way gives it up.
  void KeepAlive(int64_t now_us);
  // The server drains: a connection without a request has nothing to wait for.
  void CloseIfIdle();

 private:
  using Error = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class State : uint8_t { kIdle, kHead, kBody, kAnswering, kWriting, kLingering, kClosed };

  // ---- reading
  void AwaitRequest();
  void ReadHead();
  void OnHead(const Error& ec);
  void BeginRequest(RequestFacts facts);
  void RefuseHead(const Error& ec);
  void ReadBody();
  void ReadMoreBody();
  bool ChargeBody(uint64_t bytes);
  void RefuseBody();
  void OnBodyFailed(const Error& ec);
  void ReleaseBodyBudget();

  // ---- answering
  void AnswerGet();
  void AnswerPreflight();
  void BeginAnswer();
  void BeginConversion();
  void OnPrepared(HttpServer::Prepared prepared);
  void OnOutput(Generation& generation) override;
  void Pump();
  void PumpStream();
  std::string_view LossyView() const;
  void BeginStream();
  void SendEvents(const std::string& events, bool complete);
  void ReleaseGeneration();
  void EndAnswer();
  void EndRequest(bool client_gone);

  // ---- writing
  void Respond(int status, std::string_view content_type, const std::string& body);
  void NoteResponse(int status);
  void RespondError(const ApiError& error);
  void Write();
  void OnWritten(const Error& ec);
  void Linger();

  // ---- watching
  void Watch();
  void OnReadable();
  bool KeepPipelined(size_t max_bytes);
  void ClientGone();

  // Keeps the session alive for an operation, and drops the callback of one that was closed.
  template <class Handler>
  auto Guarded(Handler handler) {
    return [self = shared_from_this(), handler](const Error& ec, auto... rest) {
      if (self->state_ != State::kClosed) handler(*self, ec, rest...);
    };
  }

  HttpServer& server_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;  // bytes read and not yet parsed
  std::optional<Parser> parser_;      // of the current request
  State state_ = State::kIdle;

  // The current request, and what its line in the log will say.
  RequestFacts facts_;
  struct Record {
    bool open = false;  // a line is owed
    int64_t begun_us = 0;
    int status = 0;
    std::string error_code;
    std::optional<int64_t> first_output_us;
    std::optional<AnswerRecord> answer;
  } record_;
  uint64_t body_budget_ = 0;
  std::shared_ptr<Generation> generation_;
  bool answering_ = false;       // counted by the server
  uint32_t retry_after_s_ = 1;   // of a 429 or 503
  bool holds_key_slot_ = false;  // counted for its API key
  bool head_sent_ = false;       // of a stream

  // The write under way.
  std::string out_;
  bool writing_ = false;
  bool last_write_ = false;  // the response ends with it
  int64_t written_us_ = 0;   // when it began, or the answer did

  bool watching_ = false;
};

}  // namespace kvrm
