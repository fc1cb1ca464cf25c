// What GET and HEAD read: the state of the server, and what it serves. Pure, but for the service's
// look at the engine's progress; I/O thread.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "server/metrics_text.h"
#include "server/routes.h"
#include "server/service.h"

namespace kvrm {

struct ReadContext {
  ServerPhase phase;
  Service* service;  // null while loading
  const HttpCounters& counters;
};

struct ReadAnswer {
  std::string_view content_type;
  std::string body;
};

inline constexpr std::string_view kJsonType = "application/json";
inline constexpr std::string_view kIconType = "image/svg+xml";

// Requires: a route of kind kState, or of kind kRead with a service.
std::variant<ReadAnswer, ApiError> AnswerRead(const RouteMatch& match, const ReadContext& context);

}  // namespace kvrm
