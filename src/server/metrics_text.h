// What /metrics says, in Prometheus' text format. docs/metrics.md lists the names.
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
  uint64_t outbox_overflows = 0;     // streams cut because their reader stalled: too many bytes,
  uint64_t outbox_too_old = 0;       // a write that took too long
  uint64_t late_gaps = 0;            // gaps over the budget for their sending alone (sent_gaps.h),
  int64_t late_gap_us = 0;           // and what they were over it
  uint64_t refused_key_limit = 0, refused_no_key = 0, refused_not_ready = 0, refused_no_memory = 0;
  // By (route as in docs/server.md, status).
  std::map<std::pair<std::string, int>, uint64_t> responses;
};

// `service` null: still loading, the engine's metrics are left out.
std::string MetricsText(const HttpCounters& http, ServerPhase phase, const Service* service);

}  // namespace kvrm
