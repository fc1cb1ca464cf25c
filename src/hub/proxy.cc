#include "hub/proxy.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

namespace kvrm {
namespace {

std::string Variable(std::string name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    value = std::getenv(name.c_str());
  }
  return value == nullptr ? "" : value;
}

// "*", a host, or the end of one behind a dot: "example.org" and ".example.org" are also
// "hub.example.org".
bool IsMeant(std::string_view entry, std::string_view host) {
  while (entry.starts_with(' ')) entry.remove_prefix(1);
  while (entry.ends_with(' ')) entry.remove_suffix(1);
  if (entry == "*") return true;
  if (entry.starts_with('.')) entry.remove_prefix(1);
  if (entry.empty() || !host.ends_with(entry)) return false;
  return host.size() == entry.size() || host[host.size() - entry.size() - 1] == '.';
}

bool IsExempt(const std::string& host) {
  const std::string list = Variable("no_proxy");
  std::string_view rest = list;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(','), rest.size());
    if (IsMeant(rest.substr(0, end), host)) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

Result<std::string> PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      decoded += text[at];
      continue;
    }
    uint8_t byte = 0;
    const char* const digits = text.data() + at + 1;
    const char* const end = text.data() + std::min(at + 3, text.size());
    const auto parsed = std::from_chars(digits, end, byte, 16);
    if (parsed.ec != std::errc() || parsed.ptr != digits + 2) {
      return InvalidInput("a percent sign before '@' that no two hexadecimal digits follow");
    }
    decoded += static_cast<char>(byte);
    at += 2;
  }
  return decoded;
}

std::string Base64(const std::string& text) {
  std::string encoded((text.size() + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock ends with a 0
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(encoded.data()),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()));
  encoded.resize(static_cast<size_t>(length));
  return encoded;
}

// Takes "USER[:PASSWORD]@" out of an address, and says it as HTTP's Basic scheme does.
Result<std::string> TakeLogin(std::string* address) {
  const size_t begin = address->find("://") + 3;
  const size_t end = std::min(address->find('/', begin), address->size());
  const size_t at = address->rfind('@', end);
  if (at == std::string::npos || at < begin) return std::string();
  const std::string login = address->substr(begin, at - begin);
  address->erase(begin, at + 1 - begin);
  const size_t colon = login.find(':');
  KVRM_ASSIGN_OR_RETURN(const std::string user, PercentDecoded(login.substr(0, colon)));
  KVRM_ASSIGN_OR_RETURN(const std::string password,
                        PercentDecoded(colon == std::string::npos ? "" : login.substr(colon + 1)));
  return "Basic " + Base64(user + ":" + password);
}

}  // namespace

Result<std::optional<Proxy>> ProxyFor(const Url& url) {
  std::string name = url.tls ? "https_proxy" : "http_proxy";
  std::string value = Variable(name);
  if (value.empty()) value = Variable(name = "all_proxy");
  if (value.empty() || IsExempt(url.host)) return std::optional<Proxy>();
  if (value.find("://") == std::string::npos) value.insert(0, "http://");
  auto login = TakeLogin(&value);
  if (!login.ok()) return Error{login.error().kind, name + ": " + login.error().message};
  auto address = ParseUrl(value);
  if (!address.ok()) return Error{address.error().kind, name + ": " + address.error().message};
  if (address->tls) return Unsupported(name + ": a proxy is asked over http:// alone");
  return std::optional(Proxy{std::move(address).value(), std::move(login).value()});
}

}  // namespace kvrm
