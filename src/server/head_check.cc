#include "server/head_check.h"

#include <algorithm>

#include "text/utf8.h"

namespace kvrm {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

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

// `Authorization: Bearer KEY`, or Anthropic's `x-api-key: KEY`; "" = none.
std::string_view PresentedKey(const RequestHead& head) {
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view value = View(head[http::field::authorization]);
  if (EqualsIgnoreCase(value.substr(0, kBearer.size()), kBearer)) {
    return value.substr(std::min(value.size(), value.find_first_not_of(' ', kBearer.size())));
  }
  return View(head["X-Api-Key"]);
}

std::optional<ApiError> CheckKey(const RequestHead& head, const RequestFacts& facts,
                                 const ApiKeys& keys) {
  if (keys.empty() || facts.key || InfoOf(facts.match.route).open) return std::nullopt;
  ApiError error =
      HttpError(401,
                PresentedKey(head).empty() ? "an API key is needed: Authorization: Bearer KEY"
                                           : "the API key is not one of this server's",
                "invalid_api_key");
  error.type = "authentication_error";
  return error;
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
  const std::string_view length = View(head[http::field::content_length]);
  if (head.count(http::field::content_length) > 1 ||
      length.find_first_not_of("0123456789") != std::string_view::npos) {
    return HttpError(400, "Content-Length: must be one number, given once", "bad_content_length");
  }
  return std::nullopt;
}

RequestFacts ReadFacts(const RequestHead& head, const HeadPolicy& policy) {
  RequestFacts facts;
  facts.match = MatchRoute(View(head.target()));
  if (IsPlainHeaderValue(View(head["X-Request-ID"]))) facts.id = head["X-Request-ID"];
  if (IsTraceParent(View(head["traceparent"]))) facts.trace = head["traceparent"];
  if (!policy.keys->empty()) facts.key = policy.keys->Find(PresentedKey(head));
  const std::string_view origin = View(head[http::field::origin]);
  for (const std::string& allowed : policy.cors_origins) {
    if (!origin.empty() && allowed == "*") facts.cors_origin = "*";
    if (allowed == origin) facts.cors_origin = allowed;
  }
  facts.head_only = head.method() == http::verb::head;
  facts.chunked = head.version() >= 11;
  facts.send_stamps = head["X-Send-Stamps"] == "1";
  return facts;
}

bool IsAllowedPreflight(const RequestHead& head, const RequestFacts& facts) {
  return head.method() == http::verb::options && !facts.cors_origin.empty() &&
         head.count(http::field::access_control_request_method) == 1;
}

std::optional<ApiError> CheckHead(const RequestHead& head, const RequestFacts& facts,
                                  ServerPhase phase, const HeadPolicy& policy) {
  if (policy.loopback_only) {
    if (auto error = CheckHost(head, policy.served_host)) return error;
  }
  if (IsAllowedPreflight(head, facts)) return std::nullopt;
  if (auto error = CheckKey(head, facts, *policy.keys)) return error;
  const auto method = head.method();
  const Route route = facts.match.route;
  if (route == Route::kNone) {
    return HttpError(404, "unknown path; /openapi.json has those that are served", "not_found");
  }
  if (route == Route::kNotOffered) {
    return HttpError(400, std::string(facts.match.not_offered) + ": not offered by this server",
                     "unsupported_route");
  }
  const bool read = method == http::verb::get || method == http::verb::head;
  if (IsPost(route) ? method != http::verb::post : !read) {
    return HttpError(405, "method not allowed here, only " + std::string(AllowedMethods(route)),
                     "method_not_allowed");
  }
  if (KindOf(route) == RouteKind::kState) return std::nullopt;
  if (phase != ServerPhase::kReady) return NotReadyError(phase);
  return IsPost(route) ? CheckContent(head) : std::nullopt;
}

}  // namespace kvrm
