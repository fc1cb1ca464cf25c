// The attention kernel of this machine's best vectors, built with a chunk length of its own.
// 256 is what the contract says; the others give other bits and exist only to be measured.
#pragma once

#include "ops/op_args.h"

namespace kvrm::bench {

void AttentionChunk128(const ops::AttentionArgs& args, uint32_t task, ops::Scratch scratch);
void AttentionChunk256(const ops::AttentionArgs& args, uint32_t task, ops::Scratch scratch);
void AttentionChunk512(const ops::AttentionArgs& args, uint32_t task, ops::Scratch scratch);

}  // namespace kvrm::bench
