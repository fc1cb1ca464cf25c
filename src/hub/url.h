// http and https addresses, as far as downloads need them: no user info, no fragment. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvrm {

struct Url {
  bool tls = false;
  std::string host;  // "huggingface.co", "127.0.0.1", "::1"
  uint16_t port = 0;
  std::string target = "/";  // path and query, begins with '/'

  bool SameOrigin(const Url& other) const;
  std::string Authority()
      const;                   // "host", "host:8080", "[::1]:8080"; a scheme's own port is left out
  std::string Origin() const;  // "https://host"
  std::string Text() const { return Origin() + target; }
};

// Errors name the text: another scheme, user info, no host, a port out of range, blanks or control
// characters (which would end a request's line).
Result<Url> ParseUrl(std::string_view text);

// What a Location header means in the answer to `base`: a whole URL, "//host/path", "/path", or a
// path beside base's. Errors: those of ParseUrl.
Result<Url> ResolveUrl(const Url& base, std::string_view location);

// A path's segments percent-encoded, its slashes kept.
std::string EncodePath(std::string_view path);
// A name that is one segment of a path: its slashes are encoded too.
std::string EncodeSegment(std::string_view name);

}  // namespace kvrm
