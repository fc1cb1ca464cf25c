// config.json of a hub folder in the words of GGUF files: the same keys, so that what reads one
// reads both. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/gguf.h"

namespace kvrm {

struct HubConfig {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<float> rope_factors;  // of rope_freqs.weight; empty = none
  bool tied_head = false;           // said in so many words: an lm_head that is there is not used
  bool own_head = false;            // said in so many words: there must be an lm_head
};

// `text`: the file's; `name`: general.name. Errors, one line without the file's name: no JSON
// object, a model_type that is not known, a field that is missing or of another type, an activation
// or a RoPE kind that is not offered.
Result<HubConfig> ReadHubConfig(std::string_view text, const std::string& name);

// "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight" of `family`; names that are
// not known stay as they are.
std::string GgufTensorName(std::string_view hub_name, bool post_norms);

}  // namespace kvrm
