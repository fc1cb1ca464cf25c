// SmolLM3: llama's layers, every fourth of which does not rotate.
#include "model/families/families.h"

namespace kvrm {

const Family kSmolLm3 = {.name = "smollm3",
                         .hf_type = "smollm3",
                         .gguf_rope = RopeLayout::kInterleaved,
                         .window_by_flag = true,
                         .no_rope_every = 4,
                         .hub = {.num_kv_heads = 4, .rope_base = 2'000'000, .tied_head = true}};

}  // namespace kvrm
