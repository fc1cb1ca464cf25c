// Where the rivals of a tail comparison lie. Thread-compatible.
#pragma once

#include <string>

#include "base/result.h"
#include "bench/tail/tail_plan.h"
#include "options/option_values.h"

namespace kvrm::cli {

// Of those that `names` ("llama,openvino", each of llama, openvino, vllm) asks for, the programs in
// `dir`, where `tools/rivals` puts them, go into `setup`, whose model is known. With `must` unset a
// rival that is not there is left out, with a note on standard error; llama-server never is.
// Errors: another name; one that is not there; one that cannot read the model.
Status FindTailRivals(const std::string& names, const std::string& dir, bool must,
                      TailSetup& setup);
// As --rival and --rivals say; a list that nobody gave need not be there as a whole.
Status FindTailRivals(const OptionValues& values, TailSetup& setup);

}  // namespace kvrm::cli
