// How much a step must read and compute, from the model's shapes alone: the numerators of a floor.
// Pure.
#pragma once

#include <cstdint>

#include "base/kv_view.h"
#include "model/model.h"

namespace kvrm::cli {

// Bytes that one decode step of `num_seqs` sequences of `context_tokens` tokens reads: all weights
// once (of an embedding that is not the head's only the rows), and each sequence's keys and values.
uint64_t DecodeStepBytes(const Model& model, const KvGeometry& geometry, uint32_t num_seqs,
                         double context_tokens);

// Operations (a multiply-add is two) of the prefill of one prompt; the head for one row.
struct PrefillOperations {
  double linear = 0;     // of the weight encodings' arithmetic
  double attention = 0;  // in float
};
PrefillOperations PrefillWork(const Model& model, uint32_t prompt_tokens);

}  // namespace kvrm::cli
