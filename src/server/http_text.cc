#include "server/http_text.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <iterator>

namespace kvrm {
namespace {

constexpr size_t kMaxEchoedHeader = 128;

// "name:80", "name", "[::1]:80" without the port; empty when what follows the name is no port.
std::string_view WithoutPort(std::string_view host) {
  const size_t end = host.starts_with('[') ? host.find(']') + 1 : host.find(':');
  const std::string_view name = host.substr(0, end);
  const std::string_view rest = host.substr(name.size());
  if (rest.empty()) return name;
  return rest[0] == ':' && rest.find_first_not_of("0123456789", 1) == std::string_view::npos
             ? name
             : std::string_view();
}

// "127.A.B.C", four decimal numbers: no name that a resolver is asked for looks like it.
bool IsLoopbackV4(std::string_view name) {
  int parts = 0;
  const char* at = name.data();
  const char* const end = at + name.size();
  while (at != end) {
    uint32_t number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number > 255 || (parts == 0 && number != 127)) return false;
    ++parts;
    if (stop == end) break;
    if (*stop != '.' || stop + 1 == end) return false;
    at = stop + 1;
  }
  return parts == 4;
}

std::string_view StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Status";
  }
}

void AppendDate(std::string& out) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[40];
  out.append(text, std::strftime(text, sizeof(text), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &utc));
}

void AppendField(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

void AppendCors(std::string& out, const HeadFields& fields) {
  AppendField(out, "Access-Control-Allow-Origin", fields.cors_origin);
  if (fields.cors_origin != "*") AppendField(out, "Vary", "Origin");
  AppendField(out, "Access-Control-Expose-Headers", "X-Request-ID, X-Lossy-View, Retry-After");
  if (!fields.preflight) return;
  AppendField(out, "Access-Control-Allow-Methods", "GET, HEAD, POST");
  AppendField(out, "Access-Control-Allow-Headers",
              "Authorization, Content-Type, X-Api-Key, X-Request-ID, X-Send-Stamps, traceparent, "
              "anthropic-version, anthropic-dangerous-direct-browser-access");
  AppendField(out, "Access-Control-Max-Age", "600");
}

}  // namespace

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

bool IsLocalHost(std::string_view host_value, std::string_view served_host) {
  const std::string_view name = WithoutPort(host_value);
  if (name.empty()) return false;
  if (EqualsIgnoreCase(name, "localhost") || name == "[::1]" || IsLoopbackV4(name)) return true;
  return EqualsIgnoreCase(name, served_host) ||
         EqualsIgnoreCase(name, "[" + std::string(served_host) + "]");
}

std::string HeadText(const HeadFields& fields) {
  std::string out = "HTTP/1.1 " + std::to_string(fields.status) + " ";
  out.append(StatusText(fields.status)).append("\r\nServer: kvrm\r\n");
  AppendDate(out);
  if (!fields.preflight) {
    AppendField(out, "Content-Type", fields.content_type);
    if (fields.framing == HeadFields::Framing::kLength) {
      AppendField(out, "Content-Length", std::to_string(fields.content_length));
    } else if (fields.framing == HeadFields::Framing::kChunked) {
      AppendField(out, "Transfer-Encoding", "chunked");
    }
  }
  AppendField(out, "Connection", fields.keep_alive ? "keep-alive" : "close");
  if (fields.event_stream) {
    AppendField(out, "Cache-Control", "no-cache");
    AppendField(out, "X-Accel-Buffering", "no");
  }
  if (!fields.request_id.empty()) AppendField(out, "X-Request-ID", fields.request_id);
  if (!fields.lossy_view.empty()) AppendField(out, "X-Lossy-View", fields.lossy_view);
  if (!fields.allow.empty()) AppendField(out, "Allow", fields.allow);
  if (fields.challenge) AppendField(out, "WWW-Authenticate", "Bearer");
  if (!fields.cors_origin.empty()) AppendCors(out, fields);
  if (fields.retry_after_s > 0) {
    AppendField(out, "Retry-After", std::to_string(fields.retry_after_s));
  }
  out += "\r\n";
  return out;
}

void AppendChunk(std::string& out, std::string_view data) {
  char size[17];
  const auto end = std::to_chars(size, size + sizeof(size), data.size(), 16);
  out.append(size, end.ptr).append("\r\n").append(data).append("\r\n");
}

bool IsPlainHeaderValue(std::string_view value) {
  return !value.empty() && value.size() <= kMaxEchoedHeader &&
         std::all_of(value.begin(), value.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

bool IsTraceParent(std::string_view value) {
  constexpr size_t kDashes[] = {2, 35, 52};
  if (value.size() != 55 || !value.starts_with("00-")) return false;
  for (size_t i = 0; i < value.size(); ++i) {
    const bool dash = std::find(std::begin(kDashes), std::end(kDashes), i) != std::end(kDashes);
    const bool hex = (value[i] >= '0' && value[i] <= '9') || (value[i] >= 'a' && value[i] <= 'f');
    if (dash ? value[i] != '-' : !hex) return false;
  }
  const auto zero = [](std::string_view id) {
    return id.find_first_not_of('0') == std::string_view::npos;
  };
  return !zero(value.substr(3, 32)) && !zero(value.substr(36, 16));
}

}  // namespace kvrm
