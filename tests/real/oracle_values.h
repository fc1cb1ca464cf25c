// The stored values of an independent f32 forward pass over the default model (data/oracle). Test
// code; the small case lies in tests/data, the others in KVRM_DATA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"

namespace kvrm::testing {

struct OracleCase {
  std::string name;
  std::vector<TokenId> ids;
  std::vector<TokenId> greedy;
  std::vector<double> greedy_gap;  // top-1 minus top-2 logit before each greedy token
  double max_abs_logit = 0;
  std::vector<int32_t> positions;
  std::vector<int32_t> columns;  // vocabulary ids
  std::vector<float> logits;     // [positions, columns]
};

// Reads a case from `folder`; the test fails when something is missing or misshapen.
OracleCase ReadOracleCase(const std::string& folder, const std::string& name);

}  // namespace kvrm::testing
