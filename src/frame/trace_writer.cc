#include "frame/trace_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "frame/chain_hash.h"
#include "frame/field_codec.h"
#include "frame/frame_block.h"

namespace kvrm {
namespace {

Error FileError(const std::string& path, const char* what, int code) {
  const std::string text = path + ": " + what + ": " + std::strerror(code);
  return code == ENOSPC || code == EDQUOT ? NoRoom(text) : Unavailable(text);
}

// Writes all of `bytes`, or returns errno; *written is how many went through.
int WriteAll(int file, std::span<const std::byte> bytes, size_t* written) {
  *written = 0;
  while (*written < bytes.size()) {
    const ssize_t count = ::write(file, bytes.data() + *written, bytes.size() - *written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENOSPC;
    *written += static_cast<size_t>(count);
  }
  return 0;
}

// Entries of a table whose length nobody told: up to its last page, for between steps no table of a
// sequence that waits ends with a hole.
uint32_t LengthOf(const uint32_t* dense, uint32_t max_pages) {
  while (max_pages > 0 && dense[max_pages - 1] == kNullPage.value) --max_pages;
  return max_pages;
}

}  // namespace

Result<std::unique_ptr<TraceWriter>> TraceWriter::Create(const std::string& path,
                                                         const KvGeometry& geometry,
                                                         const FrameCapacity& capacity,
                                                         const TraceOptions& options) {
  TraceHeader header{geometry, capacity, options.key_interval};
  KVRM_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, PackTraceHeader(header));
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return FileError(path, "the trace cannot be made", errno);
  std::unique_ptr<TraceWriter> writer(new TraceWriter(path, std::move(header), options, file));
  size_t written = 0;
  if (const int code = WriteAll(file, bytes, &written); code != 0) {
    return FileError(path, "the trace cannot be written", code);
  }
  writer->file_bytes_ = bytes.size();
  return writer;
}

TraceWriter::TraceWriter(std::string path, TraceHeader header, const TraceOptions& options,
                         int file)
    : path_(std::move(path)),
      header_(std::move(header)),
      buffer_bytes_(options.buffer_bytes),
      file_(file),
      lengths_(header_.geometry.groups.size() * header_.capacity.max_slots) {}

TraceWriter::~TraceWriter() { (void)Close(); }

Status TraceWriter::Append(const FrameView& frame) {
  if (failed_) return *failed_;
  if (const Status next = CheckNext(frame); !next.ok()) {
    (void)Flush();  // what came before is sound
    return Fail(next.error());
  }
  FollowTables(frame);
  PutRecord(frame, frames_ % header_.key_interval == 0);
  last_epoch_ = frame.head->epoch;
  last_hash_ = frame.head->chain_hash;
  ++frames_;
  return buffer_.size() >= buffer_bytes_ ? Flush() : Ok();
}

Status TraceWriter::CheckNext(const FrameView& frame) const {
  if (file_ < 0) return Unavailable(path_ + ": the trace is closed");
  const FrameCapacity& capacity = header_.capacity;
  if (frame.max_slots != capacity.max_slots || frame.max_pages != capacity.max_pages ||
      frame.head->num_groups != header_.geometry.groups.size()) {
    return InvalidInput(path_ + ": a frame of " + std::to_string(frame.head->num_groups) +
                        " groups, " + std::to_string(frame.max_slots) + " slots and " +
                        std::to_string(frame.max_pages) + " pages, the trace has others");
  }
  if (frame.head->num_rows > capacity.max_rows) {
    return InvalidInput(path_ + ": a frame of " + std::to_string(frame.head->num_rows) +
                        " rows, the trace's limit is " + std::to_string(capacity.max_rows));
  }
  if (frames_ > 0 && frame.head->epoch != last_epoch_ + 1) {
    return InvalidInput(path_ + ": a frame of epoch " + std::to_string(frame.head->epoch) +
                        ", the trace's last is " + std::to_string(last_epoch_));
  }
  return Ok();
}

// Lengths of all tables, those of slots without a head included: their sequences wait.
void TraceWriter::FollowTables(const FrameView& frame) {
  if (frames_ == 0) {
    for (size_t row = 0; row < lengths_.size(); ++row) {
      lengths_[row] = LengthOf(frame.dense + row * frame.max_pages, frame.max_pages);
    }
  } else {
    for (uint32_t d = 0; d < frame.head->num_deltas; ++d) {
      const Delta& delta = frame.deltas[d];
      uint32_t& length = lengths_[size_t{delta.kv_group} * frame.max_slots + delta.slot];
      if (delta.kind == DeltaKind::kTruncate) {
        length = delta.index;
      } else {
        length = std::max(length, delta.index + delta.count);
      }
    }
  }
  for (uint32_t i = 0; i < frame.head->num_slots; ++i) {
    const SlotHead& slot = frame.slots[i];
    for (uint32_t g = 0; g < frame.head->num_groups; ++g) {
      lengths_[size_t{g} * frame.max_slots + slot.slot] = slot.num_pages[g];
    }
  }
}

// `bytes` more bytes of buffer, not yet written.
std::byte* TraceWriter::Grow(size_t bytes) {
  buffer_.resize(buffer_.size() + bytes);
  return buffer_.data() + buffer_.size() - bytes;
}

void TraceWriter::PutRecord(const FrameView& frame, bool key) {
  const size_t begin = buffer_.size();
  Grow(sizeof(TraceRecordHead));
  if (key) {
    MakeKeyTables(header_.geometry, frame, lengths_, &key_tables_);
    TraceKeyHead key_head{};
    key_head.num_tables = static_cast<uint32_t>(key_tables_.size());
    key_head.previous_hash = last_hash_;  // 0 before the first
    // A chain begins at 0: whether it begins here, the frame's own hash tells.
    const uint64_t rest_bytes = frame.bytes() - sizeof(FrameHead);
    if (frames_ > 0 ||
        ChainHash(0, *frame.head, frame.rows, rest_bytes) == frame.head->chain_hash) {
      key_head.flags = kTraceKeyHasPrevious;
    }
    Pack(&key_head, 1, Grow(sizeof key_head));
    Pack(key_tables_.data(), key_tables_.size(), Grow(key_tables_.size() * sizeof(Delta)));
  }
  PackBlock(frame, Grow(frame.bytes()));

  const size_t payload = begin + sizeof(TraceRecordHead);
  TraceRecordHead head{};
  head.payload_bytes = static_cast<uint32_t>(buffer_.size() - payload);
  head.kind = key ? TraceRecordKind::kKey : TraceRecordKind::kStep;
  head.epoch = frame.head->epoch;
  head.payload_checksum = TraceChecksum(std::span(buffer_).subspan(payload));
  head.head_checksum = HeadChecksum(head);
  Pack(&head, 1, buffer_.data() + begin);
  record_ends_.push_back(buffer_.size());
}

Status TraceWriter::Flush() {
  if (failed_) return *failed_;
  size_t written = 0;
  const int code = file_ < 0 ? 0 : WriteAll(file_, buffer_, &written);
  // Of the records, those that went through whole.
  const auto whole = std::upper_bound(record_ends_.begin(), record_ends_.end(), written);
  if (whole != record_ends_.begin()) file_bytes_ += *std::prev(whole);
  buffer_.clear();
  record_ends_.clear();
  return code == 0 ? Ok() : Fail(FileError(path_, "the trace cannot be written", code));
}

// The one place where a trace ends before its engine does.
Status TraceWriter::Fail(Error error) {
  if (file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(file_bytes_)) != 0) {
    error.message += " (its last record may be cut off)";
  }
  failed_ = std::move(error);
  return *failed_;
}

Status TraceWriter::Close() {
  Status flushed = Flush();
  if (file_ < 0) return flushed;
  const int code = ::close(std::exchange(file_, -1)) == 0 ? 0 : errno;
  if (!flushed.ok() || code == 0) return flushed;
  return Fail(FileError(path_, "the trace cannot be closed", code));
}

}  // namespace kvrm
