// --record: a record of what a running engine is told and does. Thread-compatible.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/loader.h"
#include "engine/record_writer.h"

namespace kvrm::cli {

// Begins the record `path` of `runtime`, which was loaded with `options` and has done nothing yet.
// `log` hears once, on a thread of its own, if the record ends before its engine. Reads the model's
// file once more, for its hash. Errors: the model's file, the record's.
Result<std::unique_ptr<RecordWriter>> StartRecord(const std::string& path, const Runtime& runtime,
                                                  const RuntimeOptions& options,
                                                  std::function<void(std::string_view)> log);

}  // namespace kvrm::cli
