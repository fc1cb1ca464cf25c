// How much of a slot's keys and values a step reads. Plain data.
#pragma once

#include <cstdint>

namespace kvrm {

// Token places that attention reads in layers without a window; what a row does not see of them is
// computed and thrown away. kBucket: the least of an eighth, a quarter, half and all of
// max_seq_tokens that holds the longest sequence of the step. Slots' tables must cover the width.
enum class KvWidth : uint8_t { kLive, kBucket, kFull };

}  // namespace kvrm
