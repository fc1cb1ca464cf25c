// The safetensors format over hostile bytes: eight bytes of header length, a JSON header, data.
// Pure; thread-safe. Memory taken is bounded by a small multiple of the header's bytes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/gguf.h"

namespace kvrm {

// Tensors by the names that the file has, dims innermost first, data within `bytes`.
// Errors, one line without the file's name: a header past the file's end or that is no JSON object;
// a tensor without dtype, shape or offsets, of 0 or more than 4 dimensions, of a dtype other than
// F32, F16 and BF16, or whose bytes are not what its shape needs; data that does not fill the file
// without holes and overlaps.
Result<std::vector<GgufTensor>> ParseSafetensors(std::span<const std::byte> bytes);

}  // namespace kvrm
