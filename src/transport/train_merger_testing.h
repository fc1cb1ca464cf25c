// A slow oracle of TrainMerger: it knows every byte that waits by itself, and says which laws the
// trains break. Test code only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "transport/train_merger.h"

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
    const uint32_t order = static_cast<uint32_t>(added_.size());
    added_.push_back({copy, std::vector<State>(copy.bytes, State::kWaits)});
    for (uint64_t i = 0; i < copy.bytes; ++i) waiting_[KeyOf(copy, i)].push_back(order);
    return true;
  }

  void CancelSource(CopySpace source, uint64_t offset, uint64_t bytes) {
    merger_.CancelSource(source, offset, bytes);
    for (uint32_t order = 0; order < added_.size(); ++order) {
      Added& piece = added_[order];
      if (piece.copy.source != source) continue;
      for (uint64_t i = 0; i < piece.copy.bytes; ++i) {
        const uint64_t at = piece.copy.source_offset + i;
        if (piece.bytes[i] != State::kWaits || at < offset || at >= offset + bytes) continue;
        piece.bytes[i] = State::kCancelled;
        piece.cut = true;
        auto& queue = waiting_[KeyOf(piece.copy, i)];
        queue.erase(std::find(queue.begin(), queue.end(), order));
      }
    }
  }

  // Whole pieces hurry in the merger; a piece that was cut by a cancel counts as several, so only
  // what must leave is marked here.
  void Hurry(CopySpace destination, uint64_t offset, uint64_t bytes) {
    merger_.Hurry(destination, offset, bytes);
    for (Added& piece : added_) {
      if (piece.copy.destination != destination) continue;
      for (uint64_t i = 0; i < piece.copy.bytes; ++i) {
        const uint64_t at = piece.copy.destination_offset + i;
        if (piece.bytes[i] == State::kWaits && at >= offset && at < offset + bytes) {
          piece.hurried = true;
        }
      }
    }
  }

  void Collect() {
    const uint32_t forced = ForcedBefore();
    Take(merger_.Collect(), forced, /*everything=*/false);
    for (uint32_t order = 0; order < added_.size(); ++order) {
      Added& piece = added_[order];
      ++piece.age_steps;
      if (Waits(piece) && piece.age_steps > piece.copy.max_age_steps) {
        Report("TRAIN-4", "piece " + std::to_string(order) + " is older than it may be");
      }
    }
    CheckNoRunWaits();
  }

  // Everything leaves; the spaces hold what piece by piece would have made of them.
  void Flush() {
    Take(merger_.Flush(), static_cast<uint32_t>(added_.size()), /*everything=*/true);
    if (merger_.pending() != 0) Report("TRAIN-1", "pieces are pending after a flush");
    for (const auto& [key, queue] : waiting_) {
      if (!queue.empty()) Report("TRAIN-1", "bytes were not issued");
    }
    for (const Added& piece : added_) {
      for (uint64_t i = 0; i < piece.copy.bytes; ++i) {
        if (piece.bytes[i] == State::kCancelled) continue;
        expected_[SpaceIndex(piece.copy.destination)][piece.copy.destination_offset + i] =
            expected_[SpaceIndex(piece.copy.source)][piece.copy.source_offset + i];
      }
    }
    added_.clear();
    if (now_ != expected_) Report("TRAIN-5", "the bytes are not those of the pieces in order");
  }

  const std::vector<std::string>& violations() const { return violations_; }
  TrainMerger& merger() { return merger_; }
  const std::vector<Train>& last() const { return last_; }
  uint64_t trains() const { return trains_; }
  bool overlapped() const { return overlapped_; }  // some Collect met copies that overlap

 private:
  enum class State : uint8_t { kWaits, kIssued, kCancelled };
  struct Added {
    CopyDescriptor copy;
    std::vector<State> bytes;
    uint32_t age_steps = 0;
    bool hurried = false;
    bool cut = false;  // by a cancel: it may be two pieces now, one before the other
  };
  using Key = std::tuple<uint32_t, uint32_t, uint64_t, uint32_t, uint64_t>;

  static bool Overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
  }
  static uint32_t SpaceIndex(CopySpace space) {
    return (space.kind == CopySpaceKind::kWindow ? 1u : 0u) + 2u * space.kv_group;
  }
  template <class Copy>
  static Key KeyOf(const Copy& copy, uint64_t i) {
    return {static_cast<uint32_t>(copy.cause), SpaceIndex(copy.source), copy.source_offset + i,
            SpaceIndex(copy.destination), copy.destination_offset + i};
  }
  static bool Waits(const Added& piece) {
    return std::find(piece.bytes.begin(), piece.bytes.end(), State::kWaits) != piece.bytes.end();
  }
  void Report(const char* law, const std::string& what) {
    violations_.push_back(std::string(law) + " " + what);
  }

  // Pieces before this one are due, because a later one overlaps one of them (TRAIN-5).
  uint32_t ForcedBefore() {
    uint32_t forced = 0;
    for (uint32_t j = 0; j < added_.size(); ++j) {
      for (uint32_t i = 0; i < j; ++i) {
        if (Waits(added_[i]) && Waits(added_[j]) && Conflict(added_[i].copy, added_[j].copy)) {
          forced = j;
        }
      }
    }
    overlapped_ = overlapped_ || forced > 0;
    return forced;
  }
  static bool Conflict(const CopyDescriptor& a, const CopyDescriptor& b) {
    const bool both_write = a.destination == b.destination &&
                            Overlap(a.destination_offset, a.bytes, b.destination_offset, b.bytes);
    const bool b_reads_it = a.destination == b.source &&
                            Overlap(a.destination_offset, a.bytes, b.source_offset, b.bytes);
    const bool b_writes_it = a.source == b.destination &&
                             Overlap(a.source_offset, a.bytes, b.destination_offset, b.bytes);
    return both_write || b_reads_it || b_writes_it;
  }

  void Take(std::span<const Train> trains, uint32_t forced, bool everything) {
    last_.assign(trains.begin(), trains.end());
    for (const Train& train : trains) {
      bool due = everything;
      for (uint64_t i = 0; i < train.bytes; ++i) {
        auto& queue = waiting_[KeyOf(train, i)];
        if (queue.empty()) {
          Report("TRAIN-1", "a train carries a byte that nobody waits for");
          continue;
        }
        const uint32_t order = queue.front();
        queue.pop_front();
        Added& piece = added_[order];
        due = due || order < forced || (piece.cut && order == forced) || piece.hurried ||
              piece.age_steps >= piece.copy.max_age_steps;
        piece.bytes[train.source_offset + i - piece.copy.source_offset] = State::kIssued;
      }
      const uint64_t tau = merger_.tau_bytes();
      if (train.bytes > 4 * tau) Report("TRAIN-2", "a train is longer than 4 tau");
      if (!due && RunBytes(trains, train) < tau) Report("TRAIN-3", "a short train left early");
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

  // Bytes of the run that `train` was cut from, as far as it left in the same call.
  static uint64_t RunBytes(std::span<const Train> trains, const Train& train) {
    uint64_t begin = train.source_offset, end = begin + train.bytes;
    for (bool grew = true; grew;) {
      grew = false;
      for (const Train& t : trains) {
        if (t.cause != train.cause || t.source != train.source ||
            t.destination != train.destination ||
            t.destination_offset - t.source_offset !=
                train.destination_offset - train.source_offset) {
          continue;
        }
        const uint64_t t_end = t.source_offset + t.bytes;
        if (t.source_offset > end || t_end < begin) continue;
        grew = grew || t.source_offset < begin || t_end > end;
        begin = std::min(begin, t.source_offset);
        end = std::max(end, t_end);
      }
    }
    return end - begin;
  }

  void CheckCounters() {
    uint64_t pieces = 0, copies = 0, bytes = 0;
    for (uint32_t cause = 0; cause < kNumCopyCauses; ++cause) {
      pieces += merger_.counters().copy_pieces[cause];
      copies += merger_.counters().copies[cause];
      bytes += merger_.counters().copy_bytes[cause];
    }
    if (pieces != pieces_ || copies != trains_ || bytes != bytes_) {
      Report("TRAIN-1", "the counters do not say what was issued");
    }
  }

  // "A train closes once it holds tau bytes": what is left after Collect holds no such run.
  void CheckNoRunWaits() {
    for (const auto& [key, queue] : waiting_) {
      Key at = key;
      uint64_t run = 0;
      for (auto found = waiting_.find(at); found != waiting_.end() && !found->second.empty();
           found = waiting_.find(at)) {
        ++run;
        ++std::get<2>(at);
        ++std::get<4>(at);
      }
      if (run >= merger_.tau_bytes()) Report("TRAIN-3", "a run of tau bytes waits");
    }
  }

  TrainMerger merger_;
  std::vector<Added> added_;                     // since the last flush
  std::map<Key, std::deque<uint32_t>> waiting_;  // byte pair -> orders of the pieces that hold it
  using Spaces = std::array<std::vector<uint8_t>, kSpaces>;
  Spaces now_, expected_;
  std::vector<Train> last_;
  uint64_t trains_ = 0, pieces_ = 0, bytes_ = 0;
  bool overlapped_ = false;
  std::vector<std::string> violations_;
};

}  // namespace kvrm::testing
