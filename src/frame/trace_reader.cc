#include "frame/trace_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "frame/field_codec.h"

namespace kvrm {
namespace {

std::string Place(const std::string& path, const TraceRecord& record) {
  return path + ": epoch " + std::to_string(record.epoch) + ", record at byte " +
         std::to_string(record.offset) + ": ";
}

}  // namespace

Result<std::unique_ptr<TraceReader>> TraceReader::Open(const std::string& path) {
  std::unique_ptr<TraceReader> reader(new TraceReader);
  reader->path_ = path;
  reader->file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (reader->file_ < 0) {
    const std::string text = path + ": cannot be opened: " + std::strerror(errno);
    return errno == ENOENT ? NotFound(text) : Unavailable(text);
  }
  struct stat status{};
  if (::fstat(reader->file_, &status) != 0) {
    return Unavailable(path + ": cannot be read: " + std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return InvalidInput(path + ": is not a regular file");
  reader->file_bytes_ = static_cast<uint64_t>(status.st_size);
  KVRM_RETURN_IF_ERROR(reader->ReadHeader());
  KVRM_RETURN_IF_ERROR(reader->IndexRecords());
  return reader;
}

Result<std::unique_ptr<TraceReader>> TraceReader::FromBytes(std::span<const std::byte> bytes) {
  std::unique_ptr<TraceReader> reader(new TraceReader);
  reader->path_ = "trace";
  reader->memory_ = bytes;
  reader->file_bytes_ = bytes.size();
  KVRM_RETURN_IF_ERROR(reader->ReadHeader());
  KVRM_RETURN_IF_ERROR(reader->IndexRecords());
  return reader;
}

TraceReader::~TraceReader() {
  if (file_ >= 0) ::close(file_);
}

// Requires: the bytes lie within the file as it was opened. It may have shrunk since.
Status TraceReader::ReadAt(uint64_t offset, std::span<std::byte> bytes) const {
  if (file_ < 0) {
    if (!bytes.empty()) std::memcpy(bytes.data(), memory_.data() + offset, bytes.size());
    return Ok();
  }
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        ::pread(file_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return Unavailable(path_ + ": byte " + std::to_string(offset + done) + " cannot be read: " +
                         (count < 0 ? std::strerror(errno) : "the file has become shorter"));
    }
    done += static_cast<size_t>(count);
  }
  return Ok();
}

Status TraceReader::ReadHeader() {
  std::vector<std::byte> bytes(std::min<uint64_t>(file_bytes_, sizeof(TraceFileHead)));
  KVRM_RETURN_IF_ERROR(ReadAt(0, bytes));
  if (bytes.size() == sizeof(TraceFileHead)) {
    TraceFileHead head;
    Unpack(bytes.data(), 1, &head);
    const bool plausible = head.magic == kTraceMagic && head.header_bytes > bytes.size();
    if (plausible) bytes.resize(std::min<uint64_t>(file_bytes_, head.header_bytes));
    KVRM_RETURN_IF_ERROR(ReadAt(0, bytes));
  }
  auto header = UnpackTraceHeader(bytes, &header_bytes_);
  if (!header.ok()) return Error{header.error().kind, path_ + ": " + header.error().message};
  header_ = std::move(header).value();
  return Ok();
}

Status TraceReader::IndexRecords() {
  uint64_t offset = header_bytes_;
  while (offset < file_bytes_) {
    std::byte bytes[sizeof(TraceRecordHead)];
    TraceRecordHead head{};
    const uint64_t left = file_bytes_ - offset;
    if (left >= sizeof head) {
      KVRM_RETURN_IF_ERROR(ReadAt(offset, bytes));
      Unpack(bytes, 1, &head);
      damage_ = WhyNotNext(head, offset);
      if (!damage_.empty()) return Ok();
    }
    if (left < sizeof head || left - sizeof head < head.payload_bytes) {
      cut_off_ = true;
      damage_ =
          "the record at byte " + std::to_string(offset) + " is cut off: " +
          (left < sizeof head
               ? "its head has " + std::to_string(sizeof head) + " bytes, "
               : "epoch " + std::to_string(head.epoch) + " has " +
                     std::to_string(sizeof head + uint64_t{head.payload_bytes}) + " bytes, ") +
          std::to_string(left) + " are there";
      return Ok();
    }
    records_.push_back({.offset = offset,
                        .epoch = head.epoch,
                        .payload_checksum = head.payload_checksum,
                        .payload_bytes = head.payload_bytes,
                        .key = head.kind == TraceRecordKind::kKey});
    offset += sizeof head + head.payload_bytes;
  }
  return Ok();
}

// Empty when `head` can follow the records so far.
std::string TraceReader::WhyNotNext(const TraceRecordHead& head, uint64_t offset) const {
  const bool first = records_.empty();
  const uint64_t next = first ? head.epoch : records_.back().epoch + 1;
  const std::string place =
      (first ? "first record" : "epoch " + std::to_string(next) + ", record") + " at byte " +
      std::to_string(offset) + ": ";
  if (HeadChecksum(head) != head.head_checksum) return place + "its head's checksum is wrong";
  if (head.kind != TraceRecordKind::kStep && head.kind != TraceRecordKind::kKey) {
    return place + "kind is " + std::to_string(static_cast<uint32_t>(head.kind)) +
           ", must be 1 or 2";
  }
  if (first && head.kind != TraceRecordKind::kKey) {
    return place + "is no key frame, so that no table is known";
  }
  if (head.epoch != next) {
    return place + "epoch is " + std::to_string(head.epoch) + ", must be " + std::to_string(next);
  }
  return {};
}

Result<size_t> TraceReader::Find(uint64_t epoch) const {
  if (records_.empty()) return NotFound(path_ + ": has no record");
  const uint64_t first = records_.front().epoch;
  if (epoch < first || epoch - first >= records_.size()) {
    return NotFound(path_ + ": epoch " + std::to_string(epoch) + " is not there, only " +
                    std::to_string(first) + " to " + std::to_string(records_.back().epoch));
  }
  return static_cast<size_t>(epoch - first);
}

size_t TraceReader::KeyBefore(size_t record) const {
  while (!records_[record].key) --record;  // the first is one
  return record;
}

Result<TraceFrame> TraceReader::Read(size_t index) const {
  const TraceRecord& record = records_[index];
  const auto wrong = [&](const std::string& what) {
    return InvalidInput(Place(path_, record) + what);
  };
  std::vector<std::byte> payload(record.payload_bytes);
  KVRM_RETURN_IF_ERROR(ReadAt(record.offset + sizeof(TraceRecordHead), payload));
  if (TraceChecksum(payload) != record.payload_checksum) {
    return wrong("its payload's checksum is wrong");
  }
  std::span<const std::byte> rest = payload;
  TraceKeyHead key{};
  std::vector<Delta> tables;
  if (record.key) {
    if (rest.size() < sizeof key) return wrong("payload_bytes is too small for a key frame");
    Unpack(rest.data(), 1, &key);
    rest = rest.subspan(sizeof key);
    if (key.num_tables > rest.size() / sizeof(Delta)) {
      return wrong("num_tables is " + std::to_string(key.num_tables) + ", at most " +
                   std::to_string(rest.size() / sizeof(Delta)) + " fit");
    }
    tables.resize(key.num_tables);
    Unpack(rest.data(), tables.size(), tables.data());
    rest = rest.subspan(tables.size() * sizeof(Delta));
  }
  auto block = FrameBlock::Unpack(rest);
  if (!block.ok()) return wrong(block.error().message);
  if (block->head().epoch != record.epoch) {
    return wrong("the frame's epoch is " + std::to_string(block->head().epoch));
  }
  if (block->head().num_rows > header_.capacity.max_rows) {
    return wrong("num_rows is " + std::to_string(block->head().num_rows) + ", at most " +
                 std::to_string(header_.capacity.max_rows));
  }
  return TraceFrame{std::move(block).value(), key, std::move(tables)};
}

}  // namespace kvrm
