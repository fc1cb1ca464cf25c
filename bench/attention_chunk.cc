// Compiled once per chunk length, KVRM_CHUNK_TOKENS; see attention_chunk.h.
#include <atomic>

#if defined(__AVX512VNNI__)
#define KVRM_LANES_AVX512
#endif
#define KVRM_BENCH_JOIN(a, b) a##b
#define KVRM_BENCH_NAME(a, b) KVRM_BENCH_JOIN(a, b)
#define KVRM_LANES_NS KVRM_BENCH_NAME(lanes_chunk_, KVRM_CHUNK_TOKENS)

#include "attention_chunk.h"
#include "ops/attention_kernel.h"

namespace kvrm::bench {

void KVRM_BENCH_NAME(AttentionChunk, KVRM_CHUNK_TOKENS)(const ops::AttentionArgs& args,
                                                        uint32_t task, ops::Scratch scratch) {
  ops::KVRM_LANES_NS::Attention(args, task, scratch);
}

}  // namespace kvrm::bench
