// Small pure pieces of HTTP: hosts, heads, chunks. No socket, no Boost. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvrm {

// True when a Host value names this machine: localhost, 127.0.0.0/8, [::1], or `served_host` (a
// name or an address, as the server was told to bind it), each with or without a port.
bool IsLocalHost(std::string_view host_value, std::string_view served_host);
bool EqualsIgnoreCase(std::string_view a, std::string_view b);  // ASCII

struct HeadFields {
  int status = 200;
  std::string_view content_type;
  // Body bytes that follow, or chunked, or until the connection closes.
  enum class Framing : uint8_t { kLength, kChunked, kUntilClose } framing = Framing::kLength;
  uint64_t content_length = 0;
  bool keep_alive = true;
  bool event_stream = false;     // adds what proxies need to pass events on at once
  std::string_view request_id;   // empty = none
  std::string_view lossy_view;   // that an answer was made under; empty = none
  std::string_view allow;        // of a 405
  uint32_t retry_after_s = 0;    // of a 429 or 503; 0 = none
  bool challenge = false;        // of a 401
  std::string_view cors_origin;  // whose pages may read this; empty = none
  bool preflight = false;        // tells a browser what those pages may send; no body
};
std::string HeadText(const HeadFields& fields);

// Appends `data` (not empty) as one chunk of a chunked body.
void AppendChunk(std::string& out, std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// True for a value that may be repeated in a header: 1..128 visible ASCII characters.
bool IsPlainHeaderValue(std::string_view value);

// A W3C trace context: version 00, ids not zero.
bool IsTraceParent(std::string_view value);

}  // namespace kvrm
