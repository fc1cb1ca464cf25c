// A tiny model of one family and what PyPI transformers computes from it (tests/data/golden,
// tools/oracle/family_goldens.py). Test code.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"

namespace kvrm::testing {

struct GoldenCase {
  std::vector<TokenId> ids;   // a prompt, then its greedy continuation
  uint32_t prompt = 0;        // how many of them are the prompt
  std::vector<float> logits;  // [ids - 1, vocab]: after each id but the last
  float max_abs_logit = 0;
  uint32_t vocab() const { return static_cast<uint32_t>(logits.size() / (ids.size() - 1)); }
};

// "tests/data/golden/FAMILY/FILE", wherever the repository is.
std::string GoldenPath(const std::string& family, const std::string& file);
// Fails the test when there is none.
GoldenCase ReadGoldenCase(const std::string& family);

}  // namespace kvrm::testing
