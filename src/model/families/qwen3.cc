// Qwen 3: queries and keys are normed head by head before they are rotated.
#include "model/families/families.h"

namespace kvrm {

const Family kQwen3 = {.name = "qwen3",
                       .hf_type = "qwen3",
                       .head_norms = true,
                       .window_by_flag = true,
                       .hub = {.num_kv_heads = 32, .head_dim = 128, .window = 4096}};

}  // namespace kvrm
