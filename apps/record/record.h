// What `kvrm record show` and `kvrm record replay` share. Thread-compatible.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/record_reader.h"
#include "options/option_values.h"

namespace kvrm::cli {

// The record that the command line names. Errors: none is named; RecordReader's.
Result<std::unique_ptr<RecordReader>> OpenNamedRecord(const OptionValues& values);

}  // namespace kvrm::cli
