#include "frame/trace_replay.h"

#include <utility>

#include "frame/field_codec.h"

namespace kvrm {

TraceReplay::TraceReplay(const TraceReader& reader)
    : reader_(reader),
      capacity_(reader.header().capacity),
      by_slot_(reader.header().capacity.max_slots) {}

Result<FrameView> TraceReplay::Seek(size_t index) {
  const size_t key = reader_.KeyBefore(index);
  // From where it stands, unless a key frame is nearer or it must go back.
  size_t next = at_ && *at_ < index && *at_ + 1 >= key ? *at_ + 1 : key;
  if (at_ == index) return view_;
  for (; next <= index; ++next) {
    const Status advanced = Advance(next);
    if (advanced.ok()) continue;
    at_.reset();
    return advanced.error();
  }
  return view_;
}

Status TraceReplay::Advance(size_t index) {
  KVRM_ASSIGN_OR_RETURN(TraceFrame frame, reader_.Read(index));
  const bool follows = at_ && *at_ + 1 == index;
  key_difference_.reset();
  if (follows) {
    previous_ = frame_->block.head();
    KVRM_RETURN_IF_ERROR(Apply(frame.block.deltas(), frame.block.head().epoch, "delta "));
  } else {
    KVRM_RETURN_IF_ERROR(BeginAt(frame));
  }
  frame_.emplace(std::move(frame));
  view_ = ViewOf(frame_->block, *tables_, capacity_, by_slot_);
  at_ = index;
  if (follows && reader_.records()[index].key) key_difference_ = KeyDifference(*frame_);
  return Ok();
}

// Tables from a key frame alone.
Status TraceReplay::BeginAt(const TraceFrame& frame) {
  tables_ = std::make_unique<ResidentTables>(reader_.header().geometry, capacity_);
  if (!tables_->ok()) {
    return NoRoom("no memory for the tables of " + std::to_string(capacity_.max_slots) + " x " +
                  std::to_string(capacity_.max_pages) + " pages");
  }
  previous_.reset();
  if ((frame.key.flags & kTraceKeyHasPrevious) != 0) {
    previous_.emplace();
    previous_->epoch = frame.block.head().epoch - 1;
    previous_->chain_hash = frame.key.previous_hash;
  }
  return Apply(frame.tables, frame.block.head().epoch, "key frame entry ");
}

Status TraceReplay::Apply(std::span<const Delta> deltas, uint64_t epoch, const char* what) {
  for (size_t d = 0; d < deltas.size(); ++d) {
    const char* broken = tables_->BrokenBy(deltas[d]);
    if (broken != nullptr) {
      return InvalidInput("epoch " + std::to_string(epoch) + ": " + broken + " (" + what +
                          std::to_string(d) + ": " + FieldsText(deltas[d]) + ")");
    }
    tables_->Apply(deltas[d]);
  }
  return Ok();
}

// What the tables are, said as a key frame says it, against what this one says.
std::optional<std::string> TraceReplay::KeyDifference(const TraceFrame& frame) const {
  const KvGeometry& geometry = reader_.header().geometry;
  TableLengths lengths;
  for (uint32_t g = 0; g < geometry.groups.size(); ++g) {
    for (uint32_t slot = 0; slot < capacity_.max_slots; ++slot) {
      lengths.push_back(tables_->num_pages(g, slot));
    }
  }
  std::vector<Delta> expected;
  MakeKeyTables(geometry, view_, lengths, &expected);
  if (expected.size() != frame.tables.size()) {
    return "the key frame has " + std::to_string(frame.tables.size()) +
           " entries, the deltas lead to " + std::to_string(expected.size());
  }
  for (size_t d = 0; d < expected.size(); ++d) {
    if (const auto difference = FirstDifference(frame.tables[d], expected[d])) {
      return "key frame entry " + std::to_string(d) + " " + difference->name + " is " +
             difference->first + ", the deltas lead to " + difference->second;
    }
  }
  return std::nullopt;
}

std::vector<std::string> TraceReplay::Violations() const {
  std::vector<std::string> found =
      ValidateFrame(reader_.header().geometry, view_, previous_ ? &*previous_ : nullptr);
  // Counts that leave the tables are told above.
  const Status counts = CheckCounts();
  if (!counts.ok() && found.empty()) found.push_back(counts.error().message);
  if (key_difference_) found.push_back(*key_difference_);
  return found;
}

Status TraceReplay::CheckCounts() const {
  for (const SlotHead& slot : frame_->block.slots()) {
    const std::string name = "slot " + std::to_string(slot.slot);
    if (slot.slot >= capacity_.max_slots) return InvalidInput(name + " is not there");
    for (uint32_t g = 0; g < reader_.header().geometry.groups.size(); ++g) {
      const uint32_t pages = tables_->num_pages(g, slot.slot);
      const uint32_t segments = tables_->num_segments(g, slot.slot);
      const uint32_t holes = tables_->num_holes(g, slot.slot);
      if (slot.num_pages[g] == pages && slot.num_segments[g] == segments &&
          slot.num_holes[g] == holes) {
        continue;
      }
      return InvalidInput(name + " group " + std::to_string(g) + " says " +
                          std::to_string(slot.num_pages[g]) + " pages, " +
                          std::to_string(slot.num_segments[g]) + " segments and " +
                          std::to_string(slot.num_holes[g]) + " holes, its deltas lead to " +
                          std::to_string(pages) + ", " + std::to_string(segments) + " and " +
                          std::to_string(holes));
    }
  }
  return Ok();
}

ReplayReport ReplayTrace(const TraceReader& reader, size_t max_violations) {
  ReplayReport report;
  const auto note = [&](std::string text) {
    ++report.num_violations;
    if (report.violations.size() < max_violations) report.violations.push_back(std::move(text));
  };
  TraceReplay replay(reader);
  const auto records = reader.records();
  for (size_t r = 0; r < records.size(); ++r) {
    const auto frame = replay.Seek(r);
    if (!frame.ok()) {
      note(frame.error().message);
      while (r + 1 < records.size() && !records[r + 1].key) ++r;
      continue;
    }
    ++report.frames;
    report.rows += frame->head->num_rows;
    report.deltas += frame->head->num_deltas;
    for (const std::string& violation : replay.Violations()) {
      note("epoch " + std::to_string(records[r].epoch) + ": " + violation);
    }
  }
  return report;
}

namespace {

template <class T>
std::optional<TraceDifference> DiffObjects(std::optional<uint64_t> epoch, const std::string& object,
                                           const T& first, const T& second) {
  const auto difference = FirstDifference(first, second);
  if (!difference) return std::nullopt;
  return TraceDifference{epoch, object, difference->name, difference->first, difference->second};
}

// Requires: equally many.
template <class T>
std::optional<TraceDifference> DiffEach(uint64_t epoch, const char* name, std::span<const T> first,
                                        std::span<const T> second) {
  for (size_t i = 0; i < first.size(); ++i) {
    const std::string object = std::string(name) + " " + std::to_string(i);
    if (auto difference = DiffObjects<T>(epoch, object, first[i], second[i])) return difference;
  }
  return std::nullopt;
}

std::optional<TraceDifference> DiffFrames(const TraceFrame& first, const TraceFrame& second) {
  const FrameHead &head = first.block.head(), &other = second.block.head();
  FrameHead counts = head, other_counts = other;
  counts.chain_hash = other_counts.chain_hash = 0;  // follows from the rest, so it comes last
  auto found = DiffObjects<FrameHead>(head.epoch, "head", counts, other_counts);
  if (!found) found = DiffEach(head.epoch, "row", first.block.rows(), second.block.rows());
  if (!found) found = DiffEach(head.epoch, "slot head", first.block.slots(), second.block.slots());
  if (!found) found = DiffEach(head.epoch, "delta", first.block.deltas(), second.block.deltas());
  if (!found) found = DiffObjects<FrameHead>(head.epoch, "head", head, other);
  if (found || first.tables.empty() || second.tables.empty()) return found;
  if (first.tables.size() != second.tables.size()) {
    return TraceDifference{head.epoch, "key frame", "num_tables",
                           std::to_string(first.tables.size()),
                           std::to_string(second.tables.size())};
  }
  return DiffEach<Delta>(head.epoch, "key frame entry", first.tables, second.tables);
}

// The headers' bytes are a head, groups and layers, each with its fields.
Result<std::optional<TraceDifference>> DiffHeaders(const TraceHeader& first,
                                                   const TraceHeader& second) {
  KVRM_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, PackTraceHeader(first));
  KVRM_ASSIGN_OR_RETURN(const std::vector<std::byte> other_bytes, PackTraceHeader(second));
  TraceFileHead head, other;
  Unpack(bytes.data(), 1, &head);
  Unpack(other_bytes.data(), 1, &other);
  head.checksum = other.checksum = 0;
  // How often a key frame comes says nothing of what happened.
  head.key_interval = other.key_interval = 0;
  auto found = DiffObjects<TraceFileHead>({}, "header", head, other);
  const std::byte *from = bytes.data() + sizeof head,
                  *other_from = other_bytes.data() + sizeof head;
  const auto diff_array = [&]<class T>(const char* name, uint32_t count, T one, T another) {
    for (uint32_t i = 0; !found && i < count; ++i) {
      Unpack(from, 1, &one);
      Unpack(other_from, 1, &another);
      found = DiffObjects<T>({}, name + std::to_string(i), one, another);
      from += sizeof(T);
      other_from += sizeof(T);
    }
  };
  diff_array("group ", head.num_groups, TraceGroup{}, TraceGroup{});
  diff_array("layer ", head.num_layers, TraceLayer{}, TraceLayer{});
  return found;
}

std::string EpochsOf(const TraceReader& reader) {
  if (reader.records().empty()) return "none";
  return std::to_string(reader.records().front().epoch) + " to " +
         std::to_string(reader.records().back().epoch);
}

}  // namespace

Result<std::optional<TraceDifference>> DiffTraces(const TraceReader& first,
                                                  const TraceReader& second) {
  KVRM_ASSIGN_OR_RETURN(auto found, DiffHeaders(first.header(), second.header()));
  if (found) return found;
  for (size_t r = 0; r < first.records().size(); ++r) {
    const auto other = second.Find(first.records()[r].epoch);
    if (!other.ok()) continue;
    KVRM_ASSIGN_OR_RETURN(const TraceFrame frame, first.Read(r));
    KVRM_ASSIGN_OR_RETURN(const TraceFrame other_frame, second.Read(*other));
    if ((found = DiffFrames(frame, other_frame))) return found;
  }
  if (EpochsOf(first) == EpochsOf(second)) return found;
  return std::optional<TraceDifference>{
      {std::nullopt, "trace", "epochs", EpochsOf(first), EpochsOf(second)}};
}

}  // namespace kvrm
