// GET and HEAD over HTTP/1.1, with or without TLS: what downloads from a hub need. One connection a
// request; answers are handed on as they come. Certificates are checked against the system's (or
// SSL_CERT_FILE's). Blocking; thread-compatible.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "hub/url.h"

namespace kvrm {

struct HttpQuestion {
  Url url;
  bool head_only = false;
  std::string token;  // sent as a bearer token to url's origin, never to another; empty = none
  std::optional<uint64_t> from_byte;  // Range: bytes=N-
};

struct HttpAnswer {
  Url url;  // that answered, behind redirects
  unsigned status = 0;
  std::vector<std::pair<std::string, std::string>> fields;
  std::optional<uint64_t> content_length;

  std::string_view Find(std::string_view field) const;  // case ignored; "" = absent
};

enum class Redirects : uint8_t {
  kFollow,    // at most ten; never from https to http
  kRelative,  // only those that name no host: the answer of others is the answer
};

class HttpClient {
 public:
  // Called with the answer's head before its body; an error ends the exchange.
  using OnHead = std::function<Status(const HttpAnswer&)>;
  using OnBytes = std::function<Status(std::span<const char>)>;

  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Any status is an answer. Errors: the callbacks'; kUnavailable: host not found, connection
  // refused or lost, TLS, an answer that is no HTTP, a redirect that cannot be followed, silence
  // for longer than timeout().
  Result<HttpAnswer> Ask(const HttpQuestion& question, Redirects redirects, const OnHead& on_head,
                         const OnBytes& on_bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvrm
