// Gemma 2: every other layer has a window, scores and logits are capped, and what attention and ffn
// add is normed first.
#include "model/families/families.h"

namespace kvrm {

const Family kGemma2 = {.name = "gemma2",
                        .hf_type = "gemma2",
                        .gating = Gating::kGeluTanh,
                        .post_norms = true,
                        .scaled_embedding = true,
                        .norms_less_one = true,
                        .window = 4096,
                        .full_every = 2,
                        .attention_soft_cap = 50,
                        .logit_soft_cap = 30,
                        .width_scaled_layers = 46,
                        .hub = {.num_kv_heads = 4,
                                .head_dim = 256,
                                .window = 4096,
                                .query_scalar = 256,
                                .tied_head = true}};

}  // namespace kvrm
