// One request over HTTP and its streamed answer, and the arrival time of all that comes.
//
// Each read of the socket is stamped once, before anything is parsed: events that arrive together
// have one time. Single-threaded: everything runs on the io_context's thread.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bench/load/answer_event.h"
#include "bench/load/exchange.h"
#include "bench/load/sse_reader.h"

namespace kvrm::cli {

struct LoadTarget {
  std::string host;
  uint16_t port = 0;
  std::string base_path = "/v1";  // in front of /completions; "" or begins with '/'
  std::vector<std::pair<std::string, std::string>> headers;
  std::string model;            // id sent with each request
  uint32_t context_tokens = 0;  // of a request, prompt and answer; 0: unknown, lengths are not cut
};

// "http://host[:port][/base]"; without a path the base is /v1. Errors name the text: another
// scheme, a port out of range.
Result<LoadTarget> ParseTarget(const std::string& url);

class HttpExchange final : public Exchange, public std::enable_shared_from_this<HttpExchange> {
 public:
  using Tcp = boost::asio::ip::tcp;
  struct Spec {
    Tcp::endpoint server;
    std::string request;  // head and body
    double timeout_s = 0;
    std::optional<uint32_t> cancel_after;  // text events
  };

  // `idle`: a connection that an earlier exchange left, or nullptr. One that the server has closed
  // meanwhile is replaced, which is no error: nothing was answered on it.
  HttpExchange(boost::asio::io_context& io, Spec spec, std::unique_ptr<Tcp::socket> idle,
               RequestRecord record, OnText on_text, OnEnd on_end);

  void Start() override;
  void Abort(Outcome outcome) override;  // the connection is closed
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
  boost::asio::io_context& io_;
  boost::asio::steady_timer timer_;
  std::unique_ptr<Tcp::socket> socket_;
  boost::beast::flat_buffer pending_;
  std::unique_ptr<Parser> parser_;
  SseReader events_;
  std::string stream_error_;
  std::string bad_event_;
  bool saw_done_ = false;
  bool reused_ = false;  // the connection served before, and nothing has come on it yet
  bool reusable_ = false;
  bool ended_ = false;
};

// Connections are kept and used again.
class HttpBackend final : public LoadBackend {
 public:
  // Errors: the host has no address.
  static Result<std::unique_ptr<HttpBackend>> Create(const LoadTarget& target);

  uint32_t context_tokens() const override { return target_.context_tokens; }
  std::shared_ptr<Exchange> Ask(boost::asio::io_context& io, const Question& question,
                                RequestRecord record, Exchange::OnText on_text,
                                Exchange::OnEnd on_end) override;
  void Ended(Exchange& exchange) override;
  void Close() override { idle_.clear(); }
  uint64_t reused_connections() const override { return reused_connections_; }

 private:
  using Tcp = boost::asio::ip::tcp;
  HttpBackend(LoadTarget target, Tcp::endpoint server)
      : target_(std::move(target)), server_(std::move(server)) {}
  std::string RequestText(const Question& question) const;

  const LoadTarget target_;
  const Tcp::endpoint server_;
  std::vector<std::unique_ptr<Tcp::socket>> idle_;
  uint64_t reused_connections_ = 0;
};

}  // namespace kvrm::cli
