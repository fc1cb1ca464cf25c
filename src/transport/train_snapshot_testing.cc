#include "transport/train_snapshot_testing.h"

#include <algorithm>
#include <compare>
#include <deque>
#include <map>
#include <span>

namespace kvrm::testing {
namespace {

struct Byte {
  uint32_t space = 0;
  uint64_t offset = 0;
  auto operator<=>(const Byte&) const = default;
};

template <class Copy>
Byte SourceOf(const Copy& copy, uint64_t i) {
  return {static_cast<uint32_t>(copy.source.kind) * 256u + copy.source.kv_group,
          copy.source_offset + i};
}
template <class Copy>
Byte DestinationOf(const Copy& copy, uint64_t i) {
  return {static_cast<uint32_t>(copy.destination.kind) * 256u + copy.destination.kv_group,
          copy.destination_offset + i};
}

bool Overlap(CopySpace one, uint64_t a, uint64_t a_bytes, CopySpace other, uint64_t b,
             uint64_t b_bytes) {
  return one == other && a < b + b_bytes && b < a + a_bytes;
}
bool MustKeepOrder(const CopyDescriptor& a, const CopyDescriptor& b) {
  return Overlap(a.destination, a.destination_offset, a.bytes,  //
                 b.destination, b.destination_offset, b.bytes) ||
         Overlap(a.destination, a.destination_offset, a.bytes,  //
                 b.source, b.source_offset, b.bytes) ||
         Overlap(a.source, a.source_offset, a.bytes,  //
                 b.destination, b.destination_offset, b.bytes);
}

// Pieces or trains that could join: one cause, one pair of spaces, one displacement.
template <class One, class Other>
bool OneLine(const One& a, const Other& b) {
  return a.cause == b.cause && a.source == b.source && a.destination == b.destination &&
         a.destination_offset - a.source_offset == b.destination_offset - b.source_offset;
}

// The bytes of the contiguous run around `first` that the copies of one line make together.
template <class Copy, class CopyOf>
uint64_t RunAround(const CopyOf& copy_of, std::span<const Copy> all, const Copy& first) {
  uint64_t begin = copy_of(first).source_offset, end = begin + copy_of(first).bytes;
  for (bool grew = true; grew;) {
    grew = false;
    for (const Copy& element : all) {
      const auto& copy = copy_of(element);
      const uint64_t copy_end = copy.source_offset + copy.bytes;
      if (!OneLine(copy, copy_of(first)) || copy.source_offset > end || copy_end < begin) continue;
      grew = grew || copy.source_offset < begin || copy_end > end;
      begin = std::min(begin, copy.source_offset);
      end = std::max(end, copy_end);
    }
  }
  return end - begin;
}

class Judge {
 public:
  explicit Judge(const TrainSnapshot& snapshot) : s_(snapshot), issued_(s_.waiting.size()) {
    for (uint32_t piece = 0; piece < s_.waiting.size(); ++piece) {
      const CopyDescriptor& copy = s_.waiting[piece].copy;
      issued_[piece].resize(copy.bytes, false);
      for (uint64_t i = 0; i < copy.bytes; ++i) {
        queues_[{SourceOf(copy, i), DestinationOf(copy, i)}].push_back(piece);
      }
      for (uint32_t earlier = 0; earlier < piece; ++earlier) {
        if (MustKeepOrder(s_.waiting[earlier].copy, copy)) forced_before_ = piece;
      }
    }
  }

  TrainVerdict Run() {
    verdict_.overlapped = forced_before_ > 0;
    for (const Train& train : s_.trains) Take(train);
    CheckOrder();
    KeepWhatIsLeft();
    CheckLeft();
    return std::move(verdict_);
  }

 private:
  void Report(const char* law, const std::string& what) {
    verdict_.violations.push_back(std::string(law) + " " + what);
  }

  // Gives the bytes of a train to the pieces that have waited longest for them.
  void Take(const Train& train) {
    bool due = s_.everything, unknown = false, mixed = false;
    for (uint64_t i = 0; i < train.bytes; ++i) {
      auto& queue = queues_[{SourceOf(train, i), DestinationOf(train, i)}];
      if (queue.empty()) {
        unknown = true;
        continue;
      }
      auto taken = std::find_if(queue.begin(), queue.end(), [&](uint32_t piece) {
        return s_.waiting[piece].copy.cause == train.cause;
      });
      mixed = mixed || taken == queue.end();
      if (taken == queue.end()) taken = queue.begin();
      const uint32_t piece = *taken;
      queue.erase(taken);
      const WaitingPiece& waiting = s_.waiting[piece];
      due = due || waiting.due() || piece < forced_before_;
      issued_[piece][train.source_offset + i - waiting.copy.source_offset] = true;
    }
    if (unknown) Report("TRAIN-1", "a train carries bytes that nobody waits for");
    if (mixed) Report("TRAIN-5", "a train joins pieces of several causes");
    if (train.bytes > 4 * s_.tau_bytes) Report("TRAIN-2", "a train is longer than 4 tau");
    const auto itself = [](const Train& t) -> const Train& { return t; };
    if (!due && !unknown &&
        RunAround(itself, std::span<const Train>(s_.trains), train) < s_.tau_bytes) {
      Report("TRAIN-3", "a short train left early");
    }
  }

  // Every byte that was written is the one that the pieces, one after the other, would have left.
  void CheckOrder() {
    using Memory = std::map<Byte, Byte>;  // what a byte holds: what another held before the call
    const auto copy_byte = [](Memory& memory, Byte from, Byte to) {
      const auto held = memory.find(from);
      memory[to] = held == memory.end() ? from : held->second;
    };
    Memory one_by_one, as_issued;
    for (uint32_t piece = 0; piece < s_.waiting.size(); ++piece) {
      const CopyDescriptor& copy = s_.waiting[piece].copy;
      for (uint64_t i = 0; i < copy.bytes; ++i) {
        if (issued_[piece][i]) copy_byte(one_by_one, SourceOf(copy, i), DestinationOf(copy, i));
      }
    }
    for (const Train& train : s_.trains) {
      for (uint64_t i = 0; i < train.bytes; ++i) {
        copy_byte(as_issued, SourceOf(train, i), DestinationOf(train, i));
      }
    }
    const bool all_known =
        std::none_of(verdict_.violations.begin(), verdict_.violations.end(),
                     [](const std::string& violation) { return violation.starts_with("TRAIN-1"); });
    if (all_known && one_by_one != as_issued) {
      Report("TRAIN-5", "trains overtook each other: other bytes than the pieces would leave");
    }
  }

  void KeepWhatIsLeft() {
    for (uint32_t piece = 0; piece < s_.waiting.size(); ++piece) {
      const std::vector<bool>& issued = issued_[piece];
      for (uint64_t begin = 0; begin < issued.size();) {
        uint64_t end = begin + 1;
        while (end < issued.size() && issued[end] == issued[begin]) ++end;
        if (!issued[begin]) {
          WaitingPiece part = s_.waiting[piece];
          part.copy.source_offset += begin;
          part.copy.destination_offset += begin;
          part.copy.bytes = end - begin;
          verdict_.left.push_back(part);
          CheckNobodyOvertook(piece);
        }
        begin = end;
      }
    }
  }

  void CheckNobodyOvertook(uint32_t piece) {
    for (uint32_t later = piece + 1; later < s_.waiting.size(); ++later) {
      if (MustKeepOrder(s_.waiting[piece].copy, s_.waiting[later].copy)) {
        Report("TRAIN-5", "a piece stays that a later one overlaps");
        return;
      }
    }
  }

  void CheckLeft() {
    const auto copy_of = [](const WaitingPiece& p) -> const CopyDescriptor& { return p.copy; };
    for (const WaitingPiece& piece : verdict_.left) {
      if (s_.everything || piece.due()) {
        Report("TRAIN-4", "a piece that is due stays");
      } else if (RunAround(copy_of, std::span<const WaitingPiece>(verdict_.left), piece) >=
                 s_.tau_bytes) {
        Report("TRAIN-3", "a run of tau bytes stays");
      }
    }
  }

  const TrainSnapshot& s_;
  std::vector<std::vector<bool>> issued_;                         // [piece][byte]
  std::map<std::pair<Byte, Byte>, std::deque<uint32_t>> queues_;  // pieces that wait for a byte
  uint32_t forced_before_ = 0;  // pieces before this one are due: a later one overlaps one of them
  TrainVerdict verdict_;
};

}  // namespace

TrainVerdict Validate(const TrainSnapshot& snapshot) { return Judge(snapshot).Run(); }

}  // namespace kvrm::testing
