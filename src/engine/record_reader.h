// Reads a record that anybody may have written, from its first entry to its last.
//
// Every size is checked against the file before it is believed, and no allocation is larger than
// the file. Errors name the entry, its offset, the step that it belongs to, field, value and limit.
// What comes before a wrong entry has been readable; the file of a process that died ends without
// the entry that closes it, and closed() says so.
//
// What an engine writes has an order, and an entry out of it is an error: docs/record.md.
//
// Thread-compatible. The reader owns its file.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/record_format.h"

namespace kvrm {

// One entry; which fields count tells `kind`.
struct RecordEntry {
  RecordKind kind = RecordKind::kClosed;
  uint64_t offset = 0;  // of its head, in the file
  uint64_t step = 0;    // steps begun before it, its own included
  RecordSubmit submit{};
  GenerateRequest request;          // of kSubmit, without a sink
  RequestId id;                     // of kSubmit and kCancel
  int64_t now_us = 0;               // of kStep
  RecordCommit commit{};            // of kCommit
  std::vector<RecordToken> tokens;  // of kCommit and kPause
  std::vector<RecordEnd> ends;
};

class RecordReader {
 public:
  // Errors: the file cannot be read; a header that is none.
  static Result<std::unique_ptr<RecordReader>> Open(const std::string& path);
  // `bytes` outlive the reader.
  static Result<std::unique_ptr<RecordReader>> FromBytes(std::span<const std::byte> bytes);
  ~RecordReader();
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;

  const RecordHeader& header() const { return header_; }
  uint64_t file_bytes() const { return file_bytes_; }

  // The next entry, valid until the next call; nullptr after the last one.
  Result<const RecordEntry*> Next();
  // After the last one: the file ends as a record does that was closed. False: its process died.
  bool closed() const { return closed_; }

 private:
  RecordReader() = default;
  Status ReadHeader();
  Status Read(std::span<std::byte> bytes);
  Status ReadEntry(uint64_t left);
  Status Parse(const RecordHead& head);
  Status ParseSubmit();
  Status ParseOutcome(size_t at);
  Status CheckOrder();
  Error Wrong(const std::string& what) const;

  std::string path_;
  std::FILE* file_ = nullptr;  // nullptr: `memory_`
  std::span<const std::byte> memory_;
  uint64_t file_bytes_ = 0;
  uint64_t at_ = 0;  // read so far
  RecordHeader header_;

  uint64_t num_entries_ = 0;
  uint64_t checksum_ = 0;  // of the last entry
  uint64_t last_epoch_ = 0;
  uint64_t last_id_ = 0;
  int64_t last_now_us_ = 0;
  bool in_step_ = false;
  bool closed_ = false;
  std::optional<Error> failed_;
  std::vector<std::byte> payload_;
  RecordEntry entry_;
};

}  // namespace kvrm
