// One request and its streamed answer over one connection, and the arrival time of all that comes.
//
// Each read of the socket is stamped once, before anything is parsed: events that arrive together
// have one time. Single-threaded: everything runs on the io_context's thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/load/answer_event.h"
#include "bench/load/request_record.h"
#include "bench/load/sse_reader.h"

namespace kvrm::cli {

// Microseconds of the monotonic clock.
int64_t NowUs();

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  using Tcp = boost::asio::ip::tcp;
  struct Spec {
    Tcp::endpoint server;
    std::string request;  // head and body
    double timeout_s = 0;
    std::optional<uint32_t> cancel_after;  // text events
  };
  using OnText = std::function<void(const RequestRecord&)>;
  using OnEnd = std::function<void(Exchange&)>;

  // `on_text` after each event with text; `on_end` once, when record() is complete, from no call of
  // this class. `record` brings what is known of the request.
  Exchange(boost::asio::io_context& io, Spec spec, RequestRecord record, OnText on_text,
           OnEnd on_end);

  // `idle`: a connection that an earlier exchange left, or nullptr. One that the server has closed
  // meanwhile is replaced, which is no error: nothing was answered on it.
  void Start(std::unique_ptr<Tcp::socket> idle);
  // Ends it now, if it has not ended; the connection is closed.
  void Abort(Outcome outcome);

  RequestRecord& record() { return record_; }
  const std::string& text() const { return text_; }  // of the answer, so far
  // nullptr unless the server lets the connection serve another request. After on_end.
  std::unique_ptr<Tcp::socket> TakeConnection();

 private:
  using Parser = boost::beast::http::response_parser<boost::beast::http::string_body>;

  void Connect();
  void Write();
  void Read();
  void OnRead(const boost::system::error_code& error, size_t num_bytes);
  // False: the exchange has ended.
  bool Parse(int64_t now_us);
  bool TakeBody(int64_t now_us);
  void OnEvent(const SseEvent& event, int64_t now_us);
  void OnConnectionEnd(const boost::system::error_code& error, int64_t now_us);
  void OnMessageEnd(int64_t now_us);
  void End(Outcome outcome, std::string detail, int64_t now_us);

  const Spec spec_;
  const OnText on_text_;
  const OnEnd on_end_;

  boost::asio::io_context& io_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<Tcp::socket> socket_;
  boost::beast::flat_buffer pending_;
  std::unique_ptr<Parser> parser_;
  SseReader events_;
  RequestRecord record_;
  std::string text_;
  std::string stream_error_;
  std::string bad_event_;
  bool saw_done_ = false;
  bool reused_ = false;  // the connection served before, and nothing has come on it yet
  bool reusable_ = false;
  bool ended_ = false;
};

}  // namespace kvrm::cli
