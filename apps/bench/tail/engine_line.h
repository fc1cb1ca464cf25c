// What a rival engine in a process of its own prints (tools/peers): one JSON object a line. Pure.
//
//   {"ready": "2026.4"}                    once, when it can be asked
//   {"us": 17, "out": [[3, 1, ""], ...]}   a step was done at this time of the monotonic clock;
//                                          each entry: a request, its new tokens, and how it ended:
//                                          "" not yet, "length", "stop", "cancel", or what went
//                                          wrong
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvrm::cli {

struct EngineLine {
  struct Output {
    uint64_t id = 0;
    uint32_t tokens = 0;
    std::string end;  // "": it goes on
  };
  std::string ready;  // its version; "": a step
  int64_t us = 0;
  std::vector<Output> outputs;
};

// Errors: another form; the message has the line's beginning.
Result<EngineLine> ParseEngineLine(std::string_view line);

}  // namespace kvrm::cli
