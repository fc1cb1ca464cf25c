// The GGUF grammar over hostile bytes: from a span to metadata and tensor views. Used by gguf.cc
// alone. Pure; thread-safe. Memory taken is bounded by a small multiple of the bytes given: no
// count is believed before that many entries could lie in what is left of the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/gguf.h"

namespace kvrm {

struct GgufContents {
  uint32_t version = 0;
  std::vector<std::pair<std::string, GgufValue>> metadata;  // in file order
  std::vector<GgufTensor> tensors;                          // in file order, data within the bytes
};

// Errors: one line without the file's name. Names are not checked for being unique.
Status ParseGguf(std::span<const std::byte> bytes, GgufContents* contents);

}  // namespace kvrm
