// What is checked of a request's head before its body is read. Pure functions, thread-safe. Private
// to the folder (it shows Beast).
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/http_error.h"
#include "server/http_text.h"
#include "server/metrics_text.h"
#include "server/openai_types.h"
#include "server/routes.h"

namespace kvrm {

using RequestHead = boost::beast::http::request_header<>;

struct HeadRules {
  Route route;
  std::string_view not_offered;  // of kNotOffered
  ServerPhase phase;
  bool loopback_only;            // only requests addressed to this machine
  std::string_view served_host;  // what the server was told to bind
};

// Nothing when the request may go on: framing, host, path, method, phase, content, in that order.
std::optional<ApiError> CheckHead(const RequestHead& head, const HeadRules& rules);

}  // namespace kvrm
