#include "serve/request_defaults.h"

#include <utility>

#include "session/session.h"

namespace kvrm::cli {

Result<RequestDefaults> RequestDefaultsOf(const OptionValues& values, SamplingParams base) {
  RequestDefaults defaults;
  KVRM_ASSIGN_OR_RETURN(defaults.sampling, SamplingOf(values, std::move(base)));
  const int64_t seed = values.Int("seed");
  if (seed >= 0) defaults.seed = static_cast<uint64_t>(seed);
  const int64_t max_tokens = values.Int("max-tokens");
  if (max_tokens > 0) defaults.max_tokens = static_cast<uint32_t>(max_tokens);
  return defaults;
}

}  // namespace kvrm::cli
