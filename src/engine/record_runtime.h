// Between a record's header and a runtime: what a run's record says of it, and how to load the same
// again. Thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/loader.h"
#include "engine/record_format.h"

namespace kvrm {

// XXH3-128 of a model's bytes, low half first: of a GGUF file with all its parts, or of a folder's
// config.json and safetensors, in order of their names. Errors: one cannot be read.
using FileHash = std::array<uint64_t, 2>;
Result<FileHash> HashModel(const std::string& model_path);
std::string HashText(const FileHash& hash);  // 32 hexadecimal digits

// The header of a record of `runtime`, which was loaded with `options`. `program`: its name and
// version. Reads the whole model file. Errors: HashModel's.
Result<RecordHeader> RecordHeaderOf(const Runtime& runtime, const RuntimeOptions& options,
                                    const std::string& program);

// How to load the model of `header` at `model_path` for a replay: everything as recorded but
// threads, SIMD level and progress, which the caller chooses. Errors: the file is not the recorded
// model; settings that this program does not know.
Result<RuntimeOptions> OptionsForReplay(const RecordHeader& header, const std::string& model_path);

// A line of the header's text: what follows `name` and a blank; "" where there is none.
std::string TextLine(const RecordHeader& header, const std::string& name);

}  // namespace kvrm
