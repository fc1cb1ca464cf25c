#include "hub/proxy.h"

#include <algorithm>
#include <cctype>
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

}  // namespace

Result<std::optional<Url>> ProxyFor(const Url& url) {
  std::string name = url.tls ? "https_proxy" : "http_proxy";
  std::string value = Variable(name);
  if (value.empty()) value = Variable(name = "all_proxy");
  if (value.empty() || IsExempt(url.host)) return std::optional<Url>();
  if (value.find("://") == std::string::npos) value.insert(0, "http://");
  auto proxy = ParseUrl(value);
  if (!proxy.ok()) return Error{proxy.error().kind, name + ": " + proxy.error().message};
  if (proxy->tls) return Unsupported(name + ": a proxy is asked over http:// alone");
  return std::optional<Url>(std::move(proxy).value());
}

}  // namespace kvrm
