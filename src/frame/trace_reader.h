// Reads a frame trace that anybody may have written.
//
// Every size is checked against the file before it is believed, and no allocation is larger than
// the file. Errors name field, value, limit and the offset of the record. Opening reads the heads
// of all records; a file that ends in mid-record, or goes wrong, is readable up to there, and says
// so.
//
// Thread-compatible. The reader owns its file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "frame/frame_block.h"
#include "frame/trace_format.h"

namespace kvrm {

struct TraceRecord {
  uint64_t offset;  // of its head, in the file
  uint64_t epoch;
  uint64_t payload_checksum;
  uint32_t payload_bytes;
  bool key;
};

// One record, unpacked.
struct TraceFrame {
  FrameBlock block;
  TraceKeyHead key{};         // of a key frame
  std::vector<Delta> tables;  // of a key frame: what builds its tables from nothing
};

class TraceReader {
 public:
  // Errors: the file cannot be read; a header that is none. A trace without records is one.
  static Result<std::unique_ptr<TraceReader>> Open(const std::string& path);
  // `bytes` outlive the reader.
  static Result<std::unique_ptr<TraceReader>> FromBytes(std::span<const std::byte> bytes);
  ~TraceReader();
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  const TraceHeader& header() const { return header_; }
  uint64_t file_bytes() const { return file_bytes_; }
  // Epochs without gaps; the first is a key frame.
  std::span<const TraceRecord> records() const { return records_; }
  // Why the file has no further record; empty when it ends with one.
  const std::string& damage() const { return damage_; }
  // Where a record is lost that was begun: the file ends within it.
  bool cut_off() const { return cut_off_; }

  // The record of `epoch`. Error kNotFound names the epochs that are there.
  Result<size_t> Find(uint64_t epoch) const;
  // The last key frame at or before `record`.
  size_t KeyBefore(size_t record) const;
  // Requires: record < records().size(). Errors: a checksum or content that is wrong, naming the
  // epoch and the record's offset.
  Result<TraceFrame> Read(size_t record) const;

 private:
  TraceReader() = default;
  Status ReadHeader();
  Status IndexRecords();
  Status ReadAt(uint64_t offset, std::span<std::byte> bytes) const;
  std::string WhyNotNext(const TraceRecordHead& head, uint64_t offset) const;

  std::string path_;
  int file_ = -1;  // -1: `memory_`
  std::span<const std::byte> memory_;
  uint64_t file_bytes_ = 0;
  uint64_t header_bytes_ = 0;
  TraceHeader header_;
  std::vector<TraceRecord> records_;
  std::string damage_;
  bool cut_off_ = false;
};

}  // namespace kvrm
