// Writes a frame trace: every published frame, in order, to a file of its own.
//
// Opt-in, for finding out what happened: unlike the step it makes system calls and may allocate (a
// record that is larger than all before it). A trace must never cost its engine a step, so whatever
// goes wrong with the file is a Status: the file is cut back to its last whole record, and every
// later call returns the same error and does nothing.
//
// Thread-compatible; called where the frame is valid (StepObserver::OnStep). Up to buffer_bytes of
// the last records are lost when the process dies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "frame/trace_format.h"

namespace kvrm {

struct TraceOptions {
  uint32_t key_interval = kTraceKeyInterval;
  size_t buffer_bytes = 64 * 1024;  // written at once
};

class TraceWriter {
 public:
  // Makes or empties the file `path` and writes the header. Errors: the file cannot be made or
  // written; a geometry or capacity that no trace may have (CheckTraceHeader).
  static Result<std::unique_ptr<TraceWriter>> Create(const std::string& path,
                                                     const KvGeometry& geometry,
                                                     const FrameCapacity& capacity,
                                                     const TraceOptions& options = {});
  // Closes; what goes wrong then is not told. Call Close() to know.
  ~TraceWriter();
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // The frame after the last one. It may be the first in mid-life: then its record is a key frame
  // whose previous hash is unknown. Errors: see above; an epoch that is not the next.
  Status Append(const FrameView& frame);
  // Writes what is buffered.
  Status Flush();
  // Flushes and closes the file; nothing may be appended after it. Calling it again is harmless.
  Status Close();

  uint64_t frames() const { return frames_; }  // appended

 private:
  TraceWriter(std::string path, TraceHeader header, const TraceOptions& options, int file);

  Status CheckNext(const FrameView& frame) const;
  void FollowTables(const FrameView& frame);
  std::byte* Grow(size_t bytes);
  void PutRecord(const FrameView& frame, bool key);
  Status Fail(Error error);

  const std::string path_;
  const TraceHeader header_;
  const size_t buffer_bytes_;
  int file_;  // -1 = closed
  std::optional<Error> failed_;

  std::vector<std::byte> buffer_;    // whole records
  std::vector<size_t> record_ends_;  // in buffer_
  uint64_t file_bytes_ = 0;          // written: header and whole records

  uint64_t frames_ = 0;
  uint64_t last_epoch_ = 0;
  uint64_t last_hash_ = 0;
  TableLengths lengths_;
  std::vector<Delta> key_tables_;  // scratch
};

}  // namespace kvrm
