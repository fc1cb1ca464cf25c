// Merges descriptors that are neighbours at both ends into trains: greedy, in address order.
//
// Copies of a few hundred bytes run far below a device's bandwidth; copies of tau bytes reach 90 %
// of its plateau. So pieces that nobody needs yet wait, up to their max_age_steps, for neighbours;
// a train closes once it holds tau bytes, and is never longer than 4 tau, so that no copy holds up
// the engine for long. What this step needs (max_age_steps 0) leaves at once, merged as far as it
// goes.
//
// Thread class: engine-thread-only. Never allocates after construction, but where a single step
// adds so much that more than 2 * kMaxPending pieces stand at once: then its lists grow.
// Cost: Collect sorts what is pending: O(n log n), n <= kMaxPending and what the last step added;
// O(n log^2 n) where copies overlap. Nothing pending costs nothing.
//
// Invariants (ids recur in tests):
//   TRAIN-1  the bytes of the trains issued are those of the descriptors added and not cancelled,
//            each byte pair (source, destination) once.
//   TRAIN-2  no train exceeds 4 tau. A descriptor that does is cut.
//   TRAIN-3  a train below tau leaves only when a piece of it is due, or as what a cut of a run
//            that held tau or more left over.
//   TRAIN-4  after Collect no pending piece is older than its max_age_steps.
//   TRAIN-5  a train joins pieces of one cause and one pair of spaces only; copies that overlap an
//            earlier one (same destination bytes, or source bytes that another writes) keep their
//            order: whatever was added before the later of the two is due.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/descriptor.h"

namespace kvrm {

inline constexpr uint64_t kDefaultTauBytes = 128 * 1024;  // until calibrated
inline constexpr uint32_t kMaxPending = 4096;

class TrainMerger {
 public:
  // Requires: tau_bytes >= 1.
  explicit TrainMerger(uint64_t tau_bytes = kDefaultTauBytes);

  void set_tau_bytes(uint64_t tau_bytes);
  uint64_t tau_bytes() const { return tau_bytes_; }

  // Adds a piece that may wait; `joined` is how many pieces the caller has merged into it already.
  // When kMaxPending are pending already, everything pending becomes due: it leaves with the next
  // Collect. Requires: bytes >= 1; source and destination do not overlap.
  void Add(const CopyDescriptor& piece, uint32_t joined = 1);
  // Forgets pending pieces (or the parts of them) whose source lies in [offset, offset + bytes) of
  // `source`: its contents are void. O(pending).
  void CancelSource(CopySpace source, uint64_t offset, uint64_t bytes);
  // Makes pending pieces whose destination lies in that range due in the next Collect. O(pending).
  void Hurry(CopySpace destination, uint64_t offset, uint64_t bytes);

  // One step passes: the trains to issue now, in the order to issue them; valid until the next
  // Collect or Flush.
  std::span<const Train> Collect();
  // Everything pending, at once (before a shutdown, or when an executor falls idle).
  std::span<const Train> Flush();

  uint32_t pending() const { return static_cast<uint32_t>(pending_.size()); }
  const CopyCounters& counters() const { return counters_; }

 private:
  struct Piece {
    CopyDescriptor copy;
    uint32_t age_steps = 0;
    uint32_t pieces = 1;
    bool leaves = false;

    bool due() const { return age_steps >= copy.max_age_steps; }
    Piece TakeFront(uint64_t bytes);
  };
  using Index = uint32_t;  // into pending_, which stands in the order of Add

  std::span<const Train> Issue(bool everything);
  Index EndOfWave(Index begin);
  bool Disjoint(Index begin, Index end);
  bool ReadsWhatIsWritten(Index begin, Index end) const;
  void MergeWave(Index begin, Index end, bool everything);
  void MergeRun(std::span<const Index> run, bool everything);
  void EmitRun(std::span<const Index> run);
  void EmitTrain(const Piece& front);

  uint64_t tau_bytes_;
  std::vector<Piece> pending_;
  std::vector<Piece> kept_;    // scratch of CancelSource
  std::vector<Index> sorted_;  // scratch: of one wave, by run or by destination
  std::vector<Train> trains_;
  bool everything_due_ = false;
  CopyCounters counters_;
};

}  // namespace kvrm
