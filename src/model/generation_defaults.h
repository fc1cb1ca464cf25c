// How a model's makers want it sampled: generation_config.json of a folder, general.sampling.* of a
// GGUF file. What they leave out stays empty. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/gguf.h"

namespace kvrm {

struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<uint32_t> top_k;    // 0 = off
  std::vector<TokenId> end_tokens;  // of folders: beside those that the tokenizer knows
};

// generation_config.json in the words of GGUF files. Errors, one line without the file's name: no
// JSON object, a field of another type.
Result<std::vector<std::pair<std::string, GgufValue>>> ReadHubGeneration(std::string_view text);

// Errors: a key of another type or out of range, by name. Whether a number makes sense as a
// sampling parameter is for who uses it.
Result<GenerationDefaults> ReadGenerationDefaults(const GgufFile& file);

}  // namespace kvrm
