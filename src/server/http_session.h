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
//
// Memory that is refused (std::bad_alloc) costs the request at hand: it is answered with 503, or,
// when its response has begun or there is no memory even for that, its connection is closed.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "server/head_check.h"
#include "server/http_server.h"
#include "server/http_text.h"
#include "server/request_log.h"
#include "server/sent_gaps.h"

namespace kvrm {

class HttpSession final : public std::enable_shared_from_this<HttpSession>,
                          private GenerationListener {
 public:
  HttpSession(HttpServer& server, HttpServer::Tcp::socket socket);
  ~HttpSession() override;

  void Start() noexcept;
  // Too many connections: says so, whatever is asked, and closes.
  void StartRefused() noexcept;
  // At once; an open answer is cancelled.
  void Close() noexcept;
  // A stream that has been silent for long says so, that nothing on the way gives it up.
  void KeepAlive(int64_t now_us) noexcept;
  // The server drains: a connection without a request has nothing to wait for.
  void CloseIfIdle() noexcept;

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
  void ReleaseBodyBudget() noexcept;

  // ---- answering
  void AnswerGet();
  void AnswerPreflight();
  void BeginAnswer();
  void BeginConversion();
  void OnPrepared(HttpServer::Prepared prepared);
  void EndComputing() noexcept;
  void OnOutput(Generation& generation) noexcept override;
  void Pump();
  void PumpStream();
  std::string_view LossyView() const;
  void BeginStream();
  void SendEvents(const std::string& events, bool complete);
  void ReleaseGeneration() noexcept;
  void EndAnswer() noexcept;
  void EndRequest(bool client_gone) noexcept;

  // ---- writing
  void Respond(int status, std::string_view content_type, const std::string& body);
  void NoteResponse(int status);
  void RespondError(const ApiError& error);
  void Write();
  void OnWritten(const Error& ec);
  void EndWrite() noexcept;
  void Linger();

  // ---- watching
  void Watch();
  void OnReadable();
  bool KeepPipelined(size_t max_bytes);
  void ClientGone();

  // ---- memory that is refused
  // Does `action`, unless the session is closed.
  template <class Action>
  void Run(const Action& action) noexcept {
    if (state_ == State::kClosed) return;
    const auto self = shared_from_this();  // also when the action gives up the last operation
    try {
      action();
    } catch (const std::bad_alloc&) {
      OnOutOfMemory();
    }
  }
  void OnOutOfMemory() noexcept;

  // The callback of a pending operation, which keeps the session alive. One that is dropped without
  // a call was lost: there was no memory to begin or to continue its operation. Nothing would ever
  // wake the session again, so it is closed.
  template <class Handler>
  class Callback {
   public:
    Callback(std::shared_ptr<HttpSession> session, Handler handler)
        : session_(std::move(session)), handler_(std::move(handler)) {}
    Callback(Callback&&) = default;
    Callback& operator=(Callback&&) = delete;
    ~Callback() {
      if (session_ != nullptr) session_->Close();
    }
    template <class... Rest>
    void operator()(const Error& ec, Rest... rest) {
      const auto session = std::exchange(session_, nullptr);
      session->Run([&] { handler_(*session, ec, rest...); });
    }

   private:
    std::shared_ptr<HttpSession> session_;  // null once called or moved from
    Handler handler_;
  };
  template <class Handler>
  Callback<Handler> Guarded(Handler handler) {
    return {shared_from_this(), std::move(handler)};
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
  bool computing_ = false;       // another thread parses or converts, and holds the body
  bool head_sent_ = false;       // of a stream

  // The write under way.
  std::string out_;
  bool writing_ = false;
  bool last_write_ = false;  // the response ends with it
  int64_t written_us_ = 0;   // when it began, or the answer did
  SentGaps sent_gaps_;       // of the current answer

  bool watching_ = false;
};

}  // namespace kvrm
