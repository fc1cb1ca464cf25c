#include "server/head_check.h"

#include <utility>

#include "text/utf8.h"

namespace kvrm {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

// What lets one connection be read as two different request sequences is refused.
std::optional<ApiError> CheckFraming(const RequestHead& head) {
  if (head.version() != 11 && head.version() != 10) {
    return HttpError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here", "bad_version");
  }
  const auto hosts = head.count(http::field::host);
  if (hosts > 1 || (hosts == 0 && head.version() == 11)) {
    return HttpError(400, "Host: must be given once, not " + std::to_string(hosts) + " times",
                     "bad_host");
  }
  if (head.count(http::field::transfer_encoding) > 1 ||
      (head.count(http::field::transfer_encoding) == 1 &&
       (head.version() == 10 ||
        !beast::iequals(head[http::field::transfer_encoding], "chunked")))) {
    return HttpError(400, "Transfer-Encoding: only chunked is taken", "bad_transfer_encoding");
  }
  return std::nullopt;
}

// A web page can point a name of its own at 127.0.0.1 and then read answers as its own origin's
// (DNS rebinding); its requests carry that name.
std::optional<ApiError> CheckHost(const RequestHead& head, std::string_view served) {
  const std::string_view host = View(head[http::field::host]);
  const std::string_view target_host = TargetHost(View(head.target()));
  const bool host_ok = head.count(http::field::host) == 0 || IsLocalHost(host, served);
  const bool target_ok = target_host.empty() || IsLocalHost(target_host, served);
  if (host_ok && target_ok) return std::nullopt;
  return HttpError(403,
                   "Host: '" + ForMessage(host_ok ? target_host : host) +
                       "' is no name of this machine (localhost, 127.0.0.0/8, [::1], --host)",
                   "bad_host");
}

std::optional<ApiError> CheckContent(const RequestHead& head) {
  // A browser page of another origin can post text/plain, or no type at all, without asking the
  // server first, but not JSON.
  const auto type = head[http::field::content_type];
  const auto essence = type.substr(0, type.find_first_of("; \t"));
  if (head.count(http::field::content_type) != 1 || !beast::iequals(essence, "application/json")) {
    return HttpError(
        415,
        "Content-Type: " + (type.empty() ? "absent" : "'" + ForMessage(View(type)) + "'") +
            ", must be application/json",
        "bad_content_type");
  }
  if (head.count(http::field::content_encoding) > 0 &&
      !beast::iequals(head[http::field::content_encoding], "identity")) {
    return HttpError(400,
                     "Content-Encoding: '" + ForMessage(View(head[http::field::content_encoding])) +
                         "', only identity is taken",
                     "bad_content_encoding");
  }
  if (head.count(http::field::expect) > 0 &&
      !beast::iequals(head[http::field::expect], "100-continue")) {
    return HttpError(417, "Expect: only 100-continue is met", "bad_expect");
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> CheckHead(const RequestHead& head, const HeadRules& rules) {
  if (auto error = CheckFraming(head)) return error;
  if (rules.loopback_only) {
    if (auto error = CheckHost(head, rules.served_host)) return error;
  }
  const auto method = head.method();
  if (rules.route == Route::kNone) {
    return HttpError(404, "unknown path; see docs/server.md for those served", "not_found");
  }
  if (rules.route == Route::kNotOffered) {
    return HttpError(400, std::string(rules.not_offered) + ": not offered by this server",
                     "unsupported_route");
  }
  const bool read = method == http::verb::get || method == http::verb::head;
  if (IsPost(rules.route) ? method != http::verb::post : !read) {
    return HttpError(405,
                     "method not allowed here, only " + std::string(AllowedMethods(rules.route)),
                     "method_not_allowed");
  }
  if (KindOf(rules.route) == RouteKind::kState) return std::nullopt;
  if (rules.phase != ServerPhase::kReady) return NotReadyError(rules.phase);
  return IsPost(rules.route) ? CheckContent(head) : std::nullopt;
}

}  // namespace kvrm
