#include "transport/train_merger.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/kv_view.h"

namespace kvrm {
namespace {

constexpr uint64_t kMaxTrainsOfTau = 4;  // TRAIN-2

uint32_t Key(CopySpace space) {
  return static_cast<uint32_t>(space.kind) * kMaxKvGroups + space.kv_group;
}

bool Overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// Pieces that are neighbours at both ends have one cause, one pair of spaces and one displacement
// (destination - source, modulo 2^64); among those, source order is address order at both ends.
auto RunKey(const CopyDescriptor& c) {
  return std::tuple(c.cause, Key(c.source), Key(c.destination),
                    c.destination_offset - c.source_offset, c.source_offset);
}

bool Continues(const CopyDescriptor& before, const CopyDescriptor& c) {
  return before.cause == c.cause && before.source == c.source &&
         before.destination == c.destination &&
         before.source_offset + before.bytes == c.source_offset &&
         before.destination_offset + before.bytes == c.destination_offset;
}

auto WriteKey(const CopyDescriptor& c) {
  return std::pair(Key(c.destination), c.destination_offset);
}

}  // namespace

TrainMerger::TrainMerger(uint64_t tau_bytes) {
  set_tau_bytes(tau_bytes);
  // A cancelled middle leaves two pieces where one was.
  pending_.reserve(size_t{2} * kMaxPending);
  kept_.reserve(size_t{2} * kMaxPending);
  sorted_.reserve(size_t{2} * kMaxPending);
  trains_.reserve(size_t{2} * kMaxPending);
}

void TrainMerger::set_tau_bytes(uint64_t tau_bytes) {
  KVRM_CHECK(tau_bytes >= 1 && tau_bytes <= UINT64_MAX / kMaxTrainsOfTau,
             "TRAIN-2: tau is at least one byte, and 4 tau is a number");
  tau_bytes_ = tau_bytes;
}

// Cuts the first `bytes` off, with their share of the pieces that were joined; each side is a
// piece.
TrainMerger::Piece TrainMerger::Piece::TakeFront(uint64_t bytes) {
  Piece front = *this;
  front.copy.bytes = bytes;
  front.pieces = std::max<uint32_t>(1, static_cast<uint32_t>(pieces * bytes / copy.bytes));
  pieces = std::max<uint32_t>(1, pieces - std::min(pieces, front.pieces));
  copy.source_offset += bytes;
  copy.destination_offset += bytes;
  copy.bytes -= bytes;
  return front;
}

void TrainMerger::Add(const CopyDescriptor& piece, uint32_t joined) {
  KVRM_CHECK(piece.bytes > 0 && joined > 0, "TRAIN-1: a piece has bytes");
  KVRM_CHECK(static_cast<uint32_t>(piece.cause) < kNumCopyCauses &&
                 piece.source.kv_group < kMaxKvGroups && piece.destination.kv_group < kMaxKvGroups,
             "TRAIN-5: a piece names a cause and spaces that exist");
  KVRM_CHECK(piece.source != piece.destination ||
                 !Overlap(piece.source_offset, piece.bytes, piece.destination_offset, piece.bytes),
             "TRAIN-5: a piece does not overlap itself");
  everything_due_ = everything_due_ || pending_.size() >= kMaxPending;
  pending_.push_back({.copy = piece, .age_steps = 0, .pieces = joined});
}

void TrainMerger::CancelSource(CopySpace source, uint64_t offset, uint64_t bytes) {
  kept_.clear();
  for (Piece piece : pending_) {
    const CopyDescriptor& copy = piece.copy;
    if (copy.source != source || !Overlap(copy.source_offset, copy.bytes, offset, bytes)) {
      kept_.push_back(piece);
      continue;
    }
    if (copy.source_offset < offset) {
      kept_.push_back(piece.TakeFront(offset - copy.source_offset));
    }
    const uint64_t end = offset + bytes;
    if (copy.source_offset + copy.bytes > end) {
      if (copy.source_offset < end) piece.TakeFront(end - copy.source_offset);
      kept_.push_back(piece);
    }
  }
  std::swap(pending_, kept_);
}

void TrainMerger::Hurry(CopySpace destination, uint64_t offset, uint64_t bytes) {
  for (Piece& piece : pending_) {
    const CopyDescriptor& copy = piece.copy;
    if (copy.destination == destination &&
        Overlap(copy.destination_offset, copy.bytes, offset, bytes)) {
      piece.age_steps = copy.max_age_steps;
    }
  }
}

std::span<const Train> TrainMerger::Collect() {
  const std::span<const Train> trains = Issue(everything_due_);
  for (Piece& piece : pending_) ++piece.age_steps;
  return trains;
}

std::span<const Train> TrainMerger::Flush() { return Issue(/*everything=*/true); }

// Takes the pieces that leave out of pending_, as trains.
//
// A *wave* is a stretch of pieces, in the order of Add, of which no two overlap: its trains may
// leave in any order, and some of it may stay. What stands before the last wave leaves as a whole,
// wave by wave, so that nothing overtakes what it overlaps (TRAIN-5).
std::span<const Train> TrainMerger::Issue(bool everything) {
  trains_.clear();
  const Index end = pending();
  for (Index begin = 0; begin < end;) {
    const Index wave_end = EndOfWave(begin);
    MergeWave(begin, wave_end, everything || wave_end < end);
    begin = wave_end;
  }
  std::erase_if(pending_, [](const Piece& piece) { return piece.leaves; });
  everything_due_ = false;
  return trains_;
}

// The longest stretch from `begin` of which no two overlap. Almost always all of it; where not, a
// galloping search, so that many short waves cost no more than a long one.
TrainMerger::Index TrainMerger::EndOfWave(Index begin) {
  const Index end = pending();
  if (begin == 0 && Disjoint(0, end)) return end;
  Index good = 1, reach = 2;
  while (begin + reach <= end && Disjoint(begin, begin + reach)) {
    good = reach;
    reach *= 2;
  }
  Index bad = std::min(reach, end - begin + 1);  // end - begin + 1: past what is there
  while (good + 1 < bad) {
    const Index middle = good + (bad - good) / 2;
    (Disjoint(begin, begin + middle) ? good : bad) = middle;
  }
  return begin + good;
}

// Whether no piece of [begin, end) writes what another of them reads or writes.
bool TrainMerger::Disjoint(Index begin, Index end) {
  sorted_.clear();
  for (Index i = begin; i < end; ++i) sorted_.push_back(i);
  std::sort(sorted_.begin(), sorted_.end(), [&](Index a, Index b) {
    return WriteKey(pending_[a].copy) < WriteKey(pending_[b].copy);
  });
  for (size_t k = 1; k < sorted_.size(); ++k) {
    const CopyDescriptor& one = pending_[sorted_[k - 1]].copy;
    const CopyDescriptor& other = pending_[sorted_[k]].copy;
    if (one.destination == other.destination &&
        other.destination_offset < one.destination_offset + one.bytes) {
      return false;
    }
  }
  return !ReadsWhatIsWritten(begin, end);
}

// sorted_ holds [begin, end) by destination, and no two destinations overlap.
bool TrainMerger::ReadsWhatIsWritten(Index begin, Index end) const {
  uint32_t read = 0, written = 0;  // spaces, as bits
  static_assert(3 * kMaxKvGroups <= 32);
  for (Index i = begin; i < end; ++i) {
    read |= 1u << Key(pending_[i].copy.source);
    written |= 1u << Key(pending_[i].copy.destination);
  }
  if ((read & written) == 0) return false;
  for (Index i = begin; i < end; ++i) {
    const CopyDescriptor& reader = pending_[i].copy;
    const auto read_end = std::pair(Key(reader.source), reader.source_offset + reader.bytes);
    // Of the writes that begin before the read ends, the last one ends last: they are disjoint.
    auto at = std::lower_bound(
        sorted_.begin(), sorted_.end(), read_end,
        [&](Index w, const auto& key) { return WriteKey(pending_[w].copy) < key; });
    if (at == sorted_.begin()) continue;
    const CopyDescriptor& writer = pending_[*(at - 1)].copy;
    if (writer.destination == reader.source &&
        writer.destination_offset + writer.bytes > reader.source_offset) {
      return true;
    }
  }
  return false;
}

void TrainMerger::MergeWave(Index begin, Index end, bool everything) {
  sorted_.clear();
  for (Index i = begin; i < end; ++i) sorted_.push_back(i);
  std::sort(sorted_.begin(), sorted_.end(),
            [&](Index a, Index b) { return RunKey(pending_[a].copy) < RunKey(pending_[b].copy); });
  for (size_t first = 0; first < sorted_.size();) {
    size_t last = first + 1;
    while (last < sorted_.size() &&
           Continues(pending_[sorted_[last - 1]].copy, pending_[sorted_[last]].copy)) {
      ++last;
    }
    MergeRun(std::span(sorted_).subspan(first, last - first), everything);
    first = last;
  }
}

// A maximal run of neighbours: it leaves whole or stays whole (TRAIN-3).
void TrainMerger::MergeRun(std::span<const Index> run, bool everything) {
  uint64_t bytes = 0;
  bool due = everything;
  for (const Index i : run) {
    bytes += pending_[i].copy.bytes;
    due = due || pending_[i].due();
  }
  if (!due && bytes < tau_bytes_) return;
  EmitRun(run);
  for (const Index i : run) pending_[i].leaves = true;
}

// Cuts between pieces where that keeps a train within 4 tau, and within a piece where it must.
void TrainMerger::EmitRun(std::span<const Index> run) {
  const uint64_t most = kMaxTrainsOfTau * tau_bytes_;
  Piece front = pending_[run[0]];
  for (size_t k = 1;; ++k) {
    while (front.copy.bytes > most) EmitTrain(front.TakeFront(most));
    if (k == run.size()) break;
    const Piece& next = pending_[run[k]];
    if (front.copy.bytes + next.copy.bytes <= most) {
      front.copy.bytes += next.copy.bytes;
      front.pieces += next.pieces;
      continue;
    }
    EmitTrain(front);
    front = next;
  }
  EmitTrain(front);
}

void TrainMerger::EmitTrain(const Piece& front) {
  const CopyDescriptor& copy = front.copy;
  trains_.push_back({.source_offset = copy.source_offset,
                     .destination_offset = copy.destination_offset,
                     .bytes = copy.bytes,
                     .source = copy.source,
                     .destination = copy.destination,
                     .cause = copy.cause,
                     .pieces = front.pieces});
  const auto cause = static_cast<uint32_t>(copy.cause);
  counters_.copy_pieces[cause] += front.pieces;
  ++counters_.copies[cause];
  counters_.copy_bytes[cause] += copy.bytes;
}

}  // namespace kvrm
