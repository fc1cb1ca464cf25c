// What requests get for fields that they leave out, as the flags of `serve` and `batch` say it.
#pragma once

#include "base/result.h"
#include "options/option_values.h"
#include "server/openai_types.h"

namespace kvrm::cli {

// `base`, changed by the flags. Requires: `serve` or `batch`. Errors: those of SamplingOf.
Result<RequestDefaults> RequestDefaultsOf(const OptionValues& values, SamplingParams base = {});

}  // namespace kvrm::cli
