// Gemma 3, text: five layers of six have a window and frequencies of their own; queries and keys
// are normed head by head, and what attention and ffn add is normed first.
#include "model/families/families.h"

namespace kvrm {

const Family kGemma3 = {.name = "gemma3",
                        .hf_type = "gemma3_text",
                        .gating = Gating::kGeluTanh,
                        .head_norms = true,
                        .post_norms = true,
                        .scaled_embedding = true,
                        .norms_less_one = true,
                        .full_every = 6,
                        .local_rope_base = 10'000,
                        .width_scaled_layers = 62,
                        .hub = {.num_kv_heads = 4,
                                .head_dim = 256,
                                .window = 4096,
                                .rope_base = 1'000'000,
                                .query_scalar = 256,
                                .tied_head = true}};

}  // namespace kvrm
