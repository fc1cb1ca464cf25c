// Llama 2 and 3, SmolLM2, and Mistral, whose layers have a window. The scaled frequencies of
// Llama 3.x come with the file.
#include "model/families/families.h"

namespace kvrm {

const Family kLlama = {.name = "llama", .hf_type = "llama", .gguf_rope = RopeLayout::kInterleaved};

// GGUF files of Mistral models call themselves llama; the name is that of their config.json.
const Family kMistral = {.name = "mistral",
                         .hf_type = "mistral",
                         .gguf_rope = RopeLayout::kInterleaved,
                         .hub = {.num_kv_heads = 8, .window = 4096}};

}  // namespace kvrm
