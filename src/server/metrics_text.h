// What /metrics says, in Prometheus' text format. docs/server.md lists the names.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "server/service.h"

namespace kvrm {

enum class ServerPhase : uint8_t { kLoading, kReady, kDraining };

struct HttpCounters {
  uint64_t connections = 0;  // open now
  uint64_t connections_accepted = 0;
  uint64_t connections_refused = 0;  // over the limit
  uint64_t client_gone = 0;          // hang-ups while an answer was under way
  uint64_t outbox_overflows = 0;     // streams cut because their reader stalled
  // By (route as in docs/server.md, status).
  std::map<std::pair<std::string, int>, uint64_t> responses;
};

// `service` null: still loading, the engine's metrics are left out.
std::string MetricsText(const HttpCounters& http, ServerPhase phase, const Service* service);

}  // namespace kvrm
