// What one Collect of a merger saw and did, as data, and the laws of train_merger.h over it: pure,
// byte by byte, obviously right. Test code only.
// Cost: O(bytes waiting x log), O(pieces^2): for spaces of a few hundred bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/descriptor.h"

namespace kvrm::testing {

struct WaitingPiece {
  CopyDescriptor copy;
  uint32_t age_steps = 0;  // a piece that was hurried has its max_age_steps
  uint32_t number = 0;     // the caller's; what is left of a piece keeps it

  bool due() const { return age_steps >= copy.max_age_steps; }
};

struct TrainSnapshot {
  uint64_t tau_bytes = 1;
  bool everything = false;            // a flush: all that waits is due
  std::vector<WaitingPiece> waiting;  // before the call, in the order of Add
  std::vector<Train> trains;          // what it issued, in this order
};

struct TrainVerdict {
  std::vector<std::string> violations;  // of TRAIN-1..5, one line each, law id first
  std::vector<WaitingPiece> left;       // what still waits, in order; ages not yet counted up
  bool overlapped = false;              // two of the pieces waiting had to keep their order
};

TrainVerdict Validate(const TrainSnapshot& snapshot);

}  // namespace kvrm::testing
