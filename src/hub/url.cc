#include "hub/url.h"

#include <algorithm>
#include <charconv>

namespace kvrm {
namespace {

constexpr std::string_view kHttp = "http://", kHttps = "https://";
constexpr uint16_t kHttpPort = 80, kHttpsPort = 443;

// Graphic ASCII alone: anything else must come percent-encoded.
bool IsUrlText(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

std::string Shown(std::string_view text) {
  std::string shown(text.substr(0, 200));
  std::replace_if(shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return "URL '" + shown + "'";
}

}  // namespace

bool Url::SameOrigin(const Url& other) const {
  return tls == other.tls && host == other.host && port == other.port;
}

std::string Url::Authority() const {
  std::string text = host.find(':') == std::string::npos ? host : "[" + host + "]";
  if (port != (tls ? kHttpsPort : kHttpPort)) text += ":" + std::to_string(port);
  return text;
}

std::string Url::Origin() const { return std::string(tls ? kHttps : kHttp) + Authority(); }

Result<Url> ParseUrl(std::string_view text) {
  Url url;
  url.tls = text.starts_with(kHttps);
  if (!url.tls && !text.starts_with(kHttp)) {
    return InvalidInput(Shown(text) + ": takes http://HOST[:PORT]/... or https://HOST[:PORT]/...");
  }
  if (!IsUrlText(text)) return InvalidInput(Shown(text) + ": holds what is no graphic ASCII");
  std::string_view rest = text.substr(url.tls ? kHttps.size() : kHttp.size());
  rest = rest.substr(0, rest.find('#'));
  const size_t end = std::min(rest.find_first_of("/?"), rest.size());
  std::string_view authority = rest.substr(0, end);
  const std::string_view target = rest.substr(end);
  url.target = (target.starts_with('/') ? "" : "/") + std::string(target);
  if (authority.find('@') != std::string_view::npos) {  // not shown: there may be a password in it
    return InvalidInput("a URL with a user name: takes http://HOST[:PORT]/... without");
  }
  url.port = url.tls ? kHttpsPort : kHttpPort;
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) {
    const std::string_view digits = authority.substr(colon + 1);
    const auto [at, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (error != std::errc() || at != digits.data() + digits.size() || url.port == 0) {
      return InvalidInput(Shown(text) + ": the port is 1 to 65535");
    }
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[') && authority.ends_with(']')) {
    authority = authority.substr(1, authority.size() - 2);
  }
  if (authority.empty()) return InvalidInput(Shown(text) + ": names no host");
  url.host = authority;
  std::transform(url.host.begin(), url.host.end(), url.host.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return url;
}

Result<Url> ResolveUrl(const Url& base, std::string_view location) {
  const size_t scheme = location.find("://");
  if (scheme < location.find_first_of("/?")) return ParseUrl(location);
  if (location.starts_with("//")) {
    return ParseUrl((base.tls ? "https:" : "http:") + std::string(location));
  }
  if (location.starts_with('/')) return ParseUrl(base.Origin() + std::string(location));
  const std::string path = base.target.substr(0, base.target.find('?'));
  return ParseUrl(base.Origin() + path.substr(0, path.rfind('/') + 1) + std::string(location));
}

std::string EncodePath(std::string_view path) {
  std::string text;
  for (const char c : path) text += c == '/' ? "/" : EncodeSegment({&c, 1});
  return text;
}

std::string EncodeSegment(std::string_view name) {
  constexpr std::string_view kKept =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string text;
  for (const char c : name) {
    if (kKept.find(c) != std::string_view::npos) {
      text += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    text += {'%', kHex[byte >> 4], kHex[byte & 15]};
  }
  return text;
}

}  // namespace kvrm
