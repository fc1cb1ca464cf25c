#include "hub/http_client.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <boost/optional/optional.hpp>

#include "hub/proxy.h"

namespace kvrm {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr auto kTimeout = std::chrono::seconds(30);  // of a connect, a handshake, a read
constexpr size_t kChunkBytes = 256u << 10;
constexpr uint32_t kHeaderBytes = 64u << 10;
constexpr int kMaxRedirects = 10;

// Runs one asynchronous operation to its end; asynchronous because only those have a deadline.
template <class Start>
ErrorCode Await(asio::io_context& io, Start&& start) {
  ErrorCode result = asio::error::would_block;
  start([&result](const ErrorCode& error, auto&&...) { result = error; });
  io.restart();
  io.run();
  return result;
}

Error Lost(const Url& url, const std::string& doing, const std::string& why) {
  return Unavailable(url.Origin() + ": " + doing + ": " + why);
}

Error Lost(const Url& url, const std::string& doing, const ErrorCode& error) {
  return Lost(url, doing,
              error == beast::error::timeout ? "nothing came for 30 seconds" : error.message());
}

// A proxy is told the whole address.
enum class Form : uint8_t { kTarget, kWholeAddress };

http::request<http::empty_body> RequestOf(const HttpQuestion& question, bool with_token,
                                          Form form) {
  http::request<http::empty_body> request(
      question.head_only ? http::verb::head : http::verb::get,
      form == Form::kTarget ? question.url.target : question.url.Text(), /*version=*/11);
  request.set(http::field::host, question.url.Authority());
  request.set(http::field::user_agent, "kvrm/" KVRM_VERSION);
  request.set(http::field::accept, "*/*");
  request.set(http::field::accept_encoding, "identity");  // lengths and checksums are the file's
  request.set(http::field::connection, "close");
  if (with_token) request.set(http::field::authorization, "Bearer " + question.token);
  if (question.from_byte) {
    request.set(http::field::range, "bytes=" + std::to_string(*question.from_byte) + "-");
  }
  return request;
}

void Authorize(const Proxy& proxy, http::request<http::empty_body>& request) {
  if (!proxy.authorization.empty()) {
    request.set(http::field::proxy_authorization, proxy.authorization);
  }
}

bool IsRedirect(unsigned status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// Whether the answer to a question is one to another question, of its Location.
bool LeadsOn(const HttpAnswer& answer, Redirects redirects) {
  const std::string_view location = answer.Find("Location");
  if (!IsRedirect(answer.status) || location.empty()) return false;
  const bool relative =
      location.find("://") == std::string_view::npos && !location.starts_with("//");
  return redirects == Redirects::kFollow || relative;
}

// One request on a connected stream, and its answer.
template <class Stream>
class Exchange {
 public:
  Exchange(asio::io_context& io, Stream& stream, const HttpQuestion& question,
           http::request<http::empty_body> request)
      : io_(io), stream_(stream), question_(question), request_(std::move(request)) {}

  Result<HttpAnswer> Head() {
    parser_.header_limit(kHeaderBytes);
    parser_.body_limit(boost::none);  // who asks knows how much is too much
    parser_.skip(question_.head_only);
    ErrorCode error = Await(io_, [&](auto done) {
      Arm();
      http::async_write(stream_, request_, std::move(done));
    });
    if (error) return Lost(question_.url, "send the request", error);
    error = Await(io_, [&](auto done) {
      Arm();
      http::async_read_header(stream_, buffer_, parser_, std::move(done));
    });
    if (error) return Lost(question_.url, "read the answer", error);
    HttpAnswer answer{.url = question_.url, .status = parser_.get().result_int()};
    for (const auto& field : parser_.get()) {
      answer.fields.emplace_back(std::string(field.name_string()), std::string(field.value()));
    }
    if (const auto length = parser_.content_length()) answer.content_length = *length;
    return answer;
  }

  Status Body(const HttpClient::OnBytes& on_bytes) {
    std::vector<char> chunk(kChunkBytes);
    while (!parser_.is_done()) {
      auto& body = parser_.get().body();
      body.data = chunk.data();
      body.size = chunk.size();
      ErrorCode error = Await(io_, [&](auto done) {
        Arm();
        http::async_read_some(stream_, buffer_, parser_, std::move(done));
      });
      const size_t came = chunk.size() - body.size;
      if (came > 0) KVRM_RETURN_IF_ERROR(on_bytes({chunk.data(), came}));
      if (error == http::error::need_buffer) error = {};
      if (error) return Lost(question_.url, "read the answer", error);
    }
    return Ok();
  }

 private:
  void Arm() { beast::get_lowest_layer(stream_).expires_after(kTimeout); }

  asio::io_context& io_;
  Stream& stream_;
  const HttpQuestion& question_;
  http::request<http::empty_body> request_;
  http::response_parser<http::buffer_body> parser_;
  beast::flat_buffer buffer_;
};

}  // namespace

std::string_view HttpAnswer::Find(std::string_view field) const {
  for (const auto& [name, value] : fields) {
    if (beast::iequals(name, {field.data(), field.size()})) return value;
  }
  return "";
}

struct HttpClient::State {
  asio::io_context io{1};
  std::optional<asio::ssl::context> tls;  // made when it is first needed

  Status Connect(const Url& url, beast::tcp_stream& stream) {
    Tcp::resolver resolver(io);
    Tcp::resolver::results_type found;
    ErrorCode error;
    resolver.async_resolve(url.host, std::to_string(url.port),
                           [&](const ErrorCode& failed, const auto& results) {
                             error = failed;
                             found = results;
                           });
    io.restart();
    io.run();
    if (error) return Lost(url, "find the host", error);
    error = Await(io, [&](auto done) {
      stream.expires_after(kTimeout);
      stream.async_connect(found, std::move(done));
    });
    return error ? Status(Lost(url, "connect", error)) : Ok();
  }

  // A way through a proxy to the host itself. Who asks is told to the proxy and to nobody behind
  // it.
  Status Tunnel(const Proxy& proxy, const Url& url, beast::tcp_stream& stream) {
    const std::string host =
        url.host.find(':') == std::string::npos ? url.host : "[" + url.host + "]";
    const std::string target = host + ":" + std::to_string(url.port);
    http::request<http::empty_body> request(http::verb::connect, target, /*version=*/11);
    request.set(http::field::host, target);
    Authorize(proxy, request);
    HttpQuestion question{.url = proxy.url, .head_only = true};  // what follows is no body
    Exchange<beast::tcp_stream> exchange(io, stream, question, std::move(request));
    KVRM_ASSIGN_OR_RETURN(const HttpAnswer answer, exchange.Head());
    if (answer.status == 200) return Ok();
    const bool wants_login = answer.status == 407;
    return Lost(
        proxy.url, "proxy to " + target,
        "HTTP " + std::to_string(answer.status) +
            (wants_login ? ": it wants a user name: https_proxy=http://USER:PASSWORD@HOST" : ""));
  }

  Status Handshake(const Url& url, beast::ssl_stream<beast::tcp_stream>& stream) {
    stream.set_verify_mode(asio::ssl::verify_peer);
    stream.set_verify_callback(asio::ssl::host_name_verification(url.host));
    SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str());
    const ErrorCode error = Await(io, [&](auto done) {
      beast::get_lowest_layer(stream).expires_after(kTimeout);
      stream.async_handshake(asio::ssl::stream_base::client, std::move(done));
    });
    if (!error) return Ok();
    const long verified = SSL_get_verify_result(stream.native_handle());
    if (verified == X509_V_OK) return Lost(url, "TLS handshake", error);
    return Lost(url, "its certificate was refused", X509_verify_cert_error_string(verified));
  }

  asio::ssl::context& Tls() {
    if (!tls) {
      tls.emplace(asio::ssl::context::tls_client);
      tls->set_default_verify_paths();
      SSL_CTX_set_min_proto_version(tls->native_handle(), TLS1_2_VERSION);
    }
    return *tls;
  }

  template <class Stream>
  Result<HttpAnswer> Exchanged(Exchange<Stream> exchange, const HttpQuestion& question,
                               Redirects redirects, const OnHead& on_head,
                               const OnBytes& on_bytes) {
    KVRM_ASSIGN_OR_RETURN(HttpAnswer answer, exchange.Head());
    if (LeadsOn(answer, redirects)) return answer;
    KVRM_RETURN_IF_ERROR(on_head(answer));
    if (!question.head_only) KVRM_RETURN_IF_ERROR(exchange.Body(on_bytes));
    return answer;
  }

  Result<HttpAnswer> AskOnce(const HttpQuestion& question, bool with_token, Redirects redirects,
                             const OnHead& on_head, const OnBytes& on_bytes) {
    KVRM_ASSIGN_OR_RETURN(const std::optional<Proxy> proxy, ProxyFor(question.url));
    const Url& next = proxy ? proxy->url : question.url;
    if (!question.url.tls) {
      beast::tcp_stream stream(io);
      KVRM_RETURN_IF_ERROR(Connect(next, stream));
      auto request = RequestOf(question, with_token, proxy ? Form::kWholeAddress : Form::kTarget);
      if (proxy) Authorize(*proxy, request);
      return Exchanged(Exchange(io, stream, question, std::move(request)), question, redirects,
                       on_head, on_bytes);
    }
    beast::ssl_stream<beast::tcp_stream> stream(io, Tls());
    KVRM_RETURN_IF_ERROR(Connect(next, beast::get_lowest_layer(stream)));
    if (proxy) {
      KVRM_RETURN_IF_ERROR(Tunnel(*proxy, question.url, beast::get_lowest_layer(stream)));
    }
    KVRM_RETURN_IF_ERROR(Handshake(question.url, stream));
    return Exchanged(Exchange(io, stream, question, RequestOf(question, with_token, Form::kTarget)),
                     question, redirects, on_head, on_bytes);
  }
};

HttpClient::HttpClient() : state_(std::make_unique<State>()) {}
HttpClient::~HttpClient() = default;

Result<HttpAnswer> HttpClient::Ask(const HttpQuestion& question, Redirects redirects,
                                   const OnHead& on_head, const OnBytes& on_bytes) {
  HttpQuestion now = question;
  try {
    for (int hop = 0; hop <= kMaxRedirects; ++hop) {
      const bool with_token = !question.token.empty() && now.url.SameOrigin(question.url);
      KVRM_ASSIGN_OR_RETURN(HttpAnswer answer,
                            state_->AskOnce(now, with_token, redirects, on_head, on_bytes));
      if (!LeadsOn(answer, redirects)) return answer;
      auto next = ResolveUrl(now.url, answer.Find("Location"));
      if (!next.ok()) return Lost(now.url, "follow a redirect", next.error().message);
      if (now.url.tls && !next->tls) {
        return Lost(now.url, "follow a redirect", next->Origin() + " is not encrypted");
      }
      now.url = std::move(next).value();
    }
  } catch (const std::exception& error) {  // no exception crosses a folder
    return Lost(now.url, "ask", error.what());
  }
  return Lost(question.url, "follow a redirect", "more than ten in a row");
}

}  // namespace kvrm
