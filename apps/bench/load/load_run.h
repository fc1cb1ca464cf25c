// Runs a workload against whoever answers, a server first of all: one thread, all connections.
//
// Open sources send when a request is due, whatever became of the ones before; closed ones keep a
// number of conversations going. Either way a latency begins when the request was due, so a server
// (or this client) that is late is seen to be late.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bench/load/http_exchange.h"
#include "bench/load/prompt_words.h"
#include "bench/load/request_record.h"
#include "bench/load/trace.h"
#include "bench/load/workload.h"

namespace kvrm::cli {

struct LoadRun {
  std::vector<RequestRecord> records;  // by intended time; ids are their places
  int64_t start_us = 0;
  int64_t counted_from_us = 0;  // the warm-up's end
  int64_t arrivals_end_us = 0;  // no request was due later
  int64_t end_us = 0;           // the last answer's end
  double own_cpu_s = 0;         // of this thread
  uint64_t dropped_turns = 0;   // that the context had no room for, or that were due too late
  uint64_t reused_connections = 0;
  bool interrupted = false;  // by SIGINT
};

struct LoadHooks {
  // After each event with text; the last of record.events is it.
  std::function<void(const RequestRecord&)> on_text;
  // True: SIGINT ends the run early, and what was seen is reported.
  bool catch_interrupt = false;
};

// `traces`: one a source, empty for those that need none. Blocks until the run is over. Errors: a
// source's prefix alone fills the context. A server that is not there is no error: its requests are
// recorded as failed.
Result<LoadRun> RunLoad(const Workload& workload, const std::vector<Trace>& traces,
                        LoadBackend& backend, const PromptWords& words, const LoadHooks& hooks);
// Over HTTP. Errors: the host has no address, too.
Result<LoadRun> RunLoad(const Workload& workload, const std::vector<Trace>& traces,
                        const LoadTarget& target, const PromptWords& words, const LoadHooks& hooks);

}  // namespace kvrm::cli
