// Errors of the server itself, as opposed to those of a request's body. Pure, thread-safe.
#pragma once

#include <string>
#include <utility>

#include "server/metrics_text.h"
#include "server/openai_types.h"

namespace kvrm {

inline ApiError HttpError(int status, std::string message, std::string code) {
  ApiError error;
  error.status = status;
  error.message = std::move(message);
  error.code = std::move(code);
  if (status == 503) error.type = "unavailable_error";
  if (status == 500) error.type = "server_error";
  return error;
}

// Why nothing is answered in `phase`. Requires: it is not kReady.
inline ApiError NotReadyError(ServerPhase phase) {
  return phase == ServerPhase::kLoading
             ? HttpError(503, "the model is loading", "loading")
             : HttpError(503, "the server is shutting down", "shutting_down");
}

}  // namespace kvrm
