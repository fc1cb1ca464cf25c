// A merger with a slow oracle beside it: it keeps a list of its own of what waits, judges each call
// by train_snapshot_testing.h, and carries the trains out on small spaces. Test code only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/train_merger.h"
#include "transport/train_snapshot_testing.h"

namespace kvrm::testing {

class CheckedMerger {
 public:
  static constexpr uint32_t kSpaces = 4;
  static constexpr uint64_t kSpaceBytes = 96;

  explicit CheckedMerger(uint64_t tau_bytes) : merger_(tau_bytes) {
    uint8_t value = 0;
    for (auto& space : now_) {
      space.resize(kSpaceBytes);
      for (uint8_t& byte : space) byte = value++;  // 384 bytes: a value recurs, but not in a space
    }
    expected_ = now_;
  }

  static CopySpace Space(uint32_t index) {
    return {.kind = index % 2 == 0 ? CopySpaceKind::kPool : CopySpaceKind::kWindow,
            .kv_group = static_cast<uint8_t>(index / 2)};
  }

  // False, and nothing happens, where the piece would overlap itself.
  bool Add(const CopyDescriptor& copy, uint32_t joined = 1) {
    if (copy.source == copy.destination &&
        Overlap(copy.source_offset, copy.bytes, copy.destination_offset, copy.bytes)) {
      return false;
    }
    merger_.Add(copy, joined);
    waiting_.push_back({.copy = copy, .number = static_cast<uint32_t>(added_.size())});
    added_.push_back({copy, std::vector<bool>(copy.bytes, false)});
    return true;
  }

  void CancelSource(CopySpace source, uint64_t offset, uint64_t bytes) {
    merger_.CancelSource(source, offset, bytes);
    std::vector<WaitingPiece> kept;
    for (const WaitingPiece& piece : waiting_) {
      const CopyDescriptor& copy = piece.copy;
      if (copy.source != source || !Overlap(copy.source_offset, copy.bytes, offset, bytes)) {
        kept.push_back(piece);
        continue;
      }
      const uint64_t end = copy.source_offset + copy.bytes;
      const uint64_t from = std::max(copy.source_offset, offset);
      const uint64_t to = std::min(end, offset + bytes);
      KeepPart(piece, copy.source_offset, from, kept);
      KeepPart(piece, to, end, kept);
      Added& added = added_[piece.number];
      for (uint64_t at = from; at < to; ++at) {
        added.cancelled[at - added.copy.source_offset] = true;
      }
    }
    waiting_ = std::move(kept);
  }

  void Hurry(CopySpace destination, uint64_t offset, uint64_t bytes) {
    merger_.Hurry(destination, offset, bytes);
    for (WaitingPiece& piece : waiting_) {
      if (piece.copy.destination == destination &&
          Overlap(piece.copy.destination_offset, piece.copy.bytes, offset, bytes)) {
        piece.age_steps = piece.copy.max_age_steps;
      }
    }
  }

  void Collect() {
    Take(merger_.Collect(), /*everything=*/false);
    for (WaitingPiece& piece : waiting_) ++piece.age_steps;
  }

  // Everything leaves; the spaces hold what piece by piece would have made of them.
  void Flush() {
    Take(merger_.Flush(), /*everything=*/true);
    for (const Added& piece : added_) {
      for (uint64_t i = 0; i < piece.copy.bytes; ++i) {
        if (piece.cancelled[i]) continue;
        expected_[SpaceIndex(piece.copy.destination)][piece.copy.destination_offset + i] =
            expected_[SpaceIndex(piece.copy.source)][piece.copy.source_offset + i];
      }
    }
    added_.clear();
    if (now_ != expected_) Report("TRAIN-5 the bytes are not those of the pieces in order");
  }

  const std::vector<std::string>& violations() const { return violations_; }
  uint64_t trains() const { return trains_; }
  bool overlapped() const { return overlapped_; }  // some call met copies that overlap

 private:
  struct Added {
    CopyDescriptor copy;
    std::vector<bool> cancelled;  // [byte]
  };

  static bool Overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
  }
  static uint32_t SpaceIndex(CopySpace space) {
    return (space.kind == CopySpaceKind::kWindow ? 1u : 0u) + 2u * space.kv_group;
  }
  void Report(const std::string& violation) { violations_.push_back(violation); }

  static void KeepPart(const WaitingPiece& piece, uint64_t begin, uint64_t end,
                       std::vector<WaitingPiece>& kept) {
    if (begin >= end) return;
    WaitingPiece part = piece;
    part.copy.destination_offset += begin - piece.copy.source_offset;
    part.copy.source_offset = begin;
    part.copy.bytes = end - begin;
    kept.push_back(part);
  }

  void Take(std::span<const Train> trains, bool everything) {
    TrainSnapshot snapshot{.tau_bytes = merger_.tau_bytes(),
                           .everything = everything,
                           .waiting = std::move(waiting_),
                           .trains = {trains.begin(), trains.end()}};
    TrainVerdict verdict = Validate(snapshot);
    for (const std::string& violation : verdict.violations) Report(violation);
    overlapped_ = overlapped_ || verdict.overlapped;
    waiting_ = std::move(verdict.left);
    if (merger_.pending() != waiting_.size()) Report("TRAIN-1 the merger miscounts what waits");
    for (const Train& train : trains) {
      for (uint64_t i = 0; i < train.bytes; ++i) {
        now_[SpaceIndex(train.destination)][train.destination_offset + i] =
            now_[SpaceIndex(train.source)][train.source_offset + i];
      }
      ++trains_;
      pieces_ += train.pieces;
      bytes_ += train.bytes;
    }
    CheckCounters();
  }

  void CheckCounters() {
    uint64_t pieces = 0, copies = 0, bytes = 0;
    for (uint32_t cause = 0; cause < kNumCopyCauses; ++cause) {
      pieces += merger_.counters().copy_pieces[cause];
      copies += merger_.counters().copies[cause];
      bytes += merger_.counters().copy_bytes[cause];
    }
    if (pieces != pieces_ || copies != trains_ || bytes != bytes_) {
      Report("TRAIN-1 the counters do not say what was issued");
    }
  }

  TrainMerger merger_;
  std::vector<WaitingPiece> waiting_;  // what the merger should have pending
  std::vector<Added> added_;           // since the last flush; WaitingPiece::number is an index
  using Spaces = std::array<std::vector<uint8_t>, kSpaces>;
  Spaces now_, expected_;
  uint64_t trains_ = 0, pieces_ = 0, bytes_ = 0;
  bool overlapped_ = false;
  std::vector<std::string> violations_;
};

}  // namespace kvrm::testing
