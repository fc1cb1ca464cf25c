// A workload: which requests are due when, described in a small TOML file (docs/load.md has the
// grammar). Plain data and its parser; thread-safe.
//
// Errors name file, section, key, value and limit; unknown keys are errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/load/random.h"

namespace kvrm::cli {

// A number of tokens (or events) drawn for each request.
struct LengthRule {
  enum class Kind : uint8_t { kFixed, kUniform, kLogNormal, kTrace };
  Kind kind = Kind::kFixed;
  double a = 0;  // fixed: the number; uniform: the least; log-normal: the median
  double b = 0;  // uniform: the most; log-normal: standard deviation of the logarithm (base e)
  uint32_t Draw(Random& random) const;  // >= 1. Requires: not kTrace.
};
// "512", "uniform 100 300", "lognormal 400 0.8", "trace".
Result<LengthRule> ParseLengthRule(const std::string& text);

enum class Arrivals : uint8_t { kClosed, kPoisson, kGamma, kConstant, kTrace };

// Requests of one kind, with arrivals of their own.
struct Source {
  std::string name;
  Arrivals arrivals = Arrivals::kClosed;
  double clients = 1;  // closed: conversations at once
  double think_s = 0;  // closed: pause between the end of one conversation and the next
  double rate = 1;     // poisson, gamma, constant: conversations a second
  double cv = 1;       // gamma: standard deviation of the gaps over their mean
  double start_s = 0;  // its first moment
  std::string trace;   // file; relative names are looked up beside the workload, then in --data
  double from_s = 0;   // trace: begin at this time of it
  double speed = 1;    // trace: times are divided by it

  LengthRule prompt_tokens{LengthRule::Kind::kFixed, 128, 0};
  LengthRule output_tokens{LengthRule::Kind::kFixed, 64, 0};
  double prefix_tokens = 0;  // at the beginning of every prompt, the same within a group
  double prefix_groups = 1;
  double turns = 1;  // requests of a conversation; each sends all that came before
  double turn_pause_s = 0;
  double cancel_share = 0;                                  // of the requests that are given up
  LengthRule cancel_after{LengthRule::Kind::kFixed, 8, 0};  // text events seen before that
};

struct Objectives {  // 0 = none
  double ttft_ms = 0;
  double itl_ms = 0;  // the longest gap of a request
  double tpot_ms = 0;
  double e2e_ms = 0;
};

struct Workload {
  std::string name;
  std::string dir;  // of its file
  bool chat = true;
  double context = 0;      // tokens; 0: what the server says
  double duration_s = 30;  // requests are due in [0, duration_s)
  double requests = 0;     // conversations of each source at most; 0: no bound
  double warmup_s = 0;     // requests due before are sent and not counted
  double drain_s = 60;
  double timeout_s = 300;
  double seed = 1;
  double max_open = 0;  // requests at once; more wait here, and their latency counts; 0: no bound
  double temperature = 0;
  bool ignore_eos = true;
  Objectives objectives;
  std::vector<Source> sources;
};

// `overrides`: "key=value" and "section.key=value", as if written in the file; a source that it
// lacks is an error. `path` names the file in messages.
Result<Workload> ParseWorkload(const std::string& text, const std::string& path,
                               const std::vector<std::string>& overrides);

}  // namespace kvrm::cli
