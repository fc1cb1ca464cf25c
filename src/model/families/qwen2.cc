// Qwen 2 and 2.5: llama's layers with biases on queries, keys and values.
#include "model/families/families.h"

namespace kvrm {

const Family kQwen2 = {.name = "qwen2",
                       .hf_type = "qwen2",
                       .qkv_bias = true,
                       .window_by_flag = true,
                       .hub = {.num_kv_heads = 32, .window = 4096}};

}  // namespace kvrm
