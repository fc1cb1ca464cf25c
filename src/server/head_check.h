// What is read and checked of a request's head before its body is read. Pure functions,
// thread-safe. Private to the folder (it shows Beast).
#pragma once

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_keys.h"
#include "server/http_error.h"
#include "server/http_text.h"
#include "server/openai_types.h"
#include "server/routes.h"

namespace kvrm {

using RequestHead = boost::beast::http::request_header<>;

// Of Beast's text; valid as long as that is.
inline std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// What the server was told about who may ask; constant while it runs.
struct HeadPolicy {
  bool loopback_only = false;             // only requests addressed to this machine
  std::string served_host;                // as it was told to bind
  const ApiKeys* keys = nullptr;          // empty: everybody may ask
  std::vector<std::string> cors_origins;  // whose pages may read answers; "*" = all
};

// What a session remembers of the head of the request that it answers.
struct RequestFacts {
  RouteMatch match;
  std::string id;               // X-Request-ID, when it may be repeated; else ""
  std::string trace;            // traceparent, when it is one
  std::optional<uint32_t> key;  // the API key that was presented
  std::string cors_origin;      // to be allowed in the answer; "" = none
  bool head_only = false;       // HEAD
  bool keep_alive = true;       // the session's to set
  bool chunked = true;          // HTTP/1.0 has no chunks
  bool send_stamps = false;     // X-Send-Stamps: 1 (docs/load.md)
};
// All but keep_alive.
RequestFacts ReadFacts(const RequestHead& head, const HeadPolicy& policy);

// What lets one connection be read as two different request sequences: nobody can tell where such a
// request ends, so none may follow it.
std::optional<ApiError> CheckFraming(const RequestHead& head);

// Nothing when the request may go on: host, key, path, method, phase, content, in that order.
// Requires: its framing is sound.
std::optional<ApiError> CheckHead(const RequestHead& head, const RequestFacts& facts,
                                  ServerPhase phase, const HeadPolicy& policy);

// Whether `head` is a browser's question before a request that is to be answered with leave.
bool IsAllowedPreflight(const RequestHead& head, const RequestFacts& facts);

}  // namespace kvrm
