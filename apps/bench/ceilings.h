// What this machine can do at most, measured in the same sitting as the figure it stands beside:
// read bandwidth at a given working-set size, and the arithmetic peak.
#pragma once

#include <cstdint>

namespace kvrm::cli {

// Bytes per second that `num_threads` threads read together from a buffer of `bytes`, each its own
// share in four concurrent streams, over and over; best of the passes of about half a second. Huge
// pages are asked for, as the weights and the pool ask for them.
double MeasureReadBandwidth(uint64_t bytes, uint32_t num_threads);

struct ArithmeticPeak {
  double int8_ops_per_s = 0;   // 8-bit dot products with 32-bit sums; 0: no such instruction
  double float_ops_per_s = 0;  // fused multiply-add, two operations each; 0: not measured here
};
ArithmeticPeak MeasureArithmeticPeak(uint32_t num_threads);

// One thread's share of the peak loops: runs `rounds` rounds, returns the operations done. 0 where
// the CPU (or this build's architecture) has no such instruction.
uint64_t Int8PeakRounds(uint64_t rounds);
uint64_t FloatPeakRounds(uint64_t rounds);

}  // namespace kvrm::cli
