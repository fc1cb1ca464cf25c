// Writes a record: what the engine is told and what it does, to a file of its own.
//
// The engine thread appends to a buffer whose memory is there from the start; a thread of the
// writer's own hands it to the system every kFlushEvery, and sooner when half of it is full. So the
// step allocates nothing for its record, waits for no disk, and makes at most one system call (to
// wake the thread) in that time. A record must never cost its engine anything: whatever goes wrong
// with the file (a full disk, one that is too slow) is one call of `log` and the end of the record;
// the file is cut back to its last whole record, and every later call does nothing.
//
// The file can be read by its owner only: it holds what users wrote, as token ids. What came in the
// last kFlushEvery is lost when the process dies at once; a failed KVRM_CHECK of the engine thread
// flushes first.
//
// Thread class: engine-thread-only, in the order in which things happen; Create, Close and Flush
// while the engine does nothing. `log` is called on the writer's thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/result.h"
#include "engine/record_format.h"

namespace kvrm {

struct RecordOptions {
  size_t buffer_bytes = size_t{8} << 20;      // of each of two buffers; the largest record fits
  std::function<void(std::string_view)> log;  // one line, once; may be empty
};

class RecordWriter {
 public:
  static constexpr std::chrono::milliseconds kFlushEvery{100};

  // Makes or empties the file `path` and writes the header. Errors: the file cannot be made or
  // written.
  static Result<std::unique_ptr<RecordWriter>> Create(const std::string& path,
                                                      const RecordHeader& header,
                                                      const RecordOptions& options = {});
  // Closes; what goes wrong then is not told. Call Close() to know.
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  // ---- what came
  void Submit(RequestId id, int64_t submit_us, const GenerateRequest& request);
  void Cancel(RequestId id);
  void Idle();
  void Stop();
  void Maintained();
  // ---- what was made of it: a step, or none
  void Step(int64_t now_us);
  void Rollback();
  void Token(RequestId id, TokenId token);
  void End(RequestId id, StopReason reason);
  void Commit(const FrameHead& frame, const StepPlan& plan);
  // `worked`: the last turn was a step. A turn that neither came after one nor was told anything
  // leaves no trace.
  void Pause(bool worked);

  // Returns when the system has all that was recorded, or the record has ended.
  void Flush();
  // Writes what is buffered and closes the file; nothing is recorded after it. Returns why the
  // record is not whole, if it is not. Calling it again is harmless.
  Status Close();

 private:
  RecordWriter(std::string path, int file, uint64_t header_bytes, uint64_t checksum,
               const RecordOptions& options);

  // A record's payload, to be filled in before Seal.
  std::byte* Begin(RecordKind kind, size_t payload_bytes);
  void Seal();
  void Put(RecordKind kind);
  size_t OutcomeBytes() const;
  void PutOutcome(std::byte* to);

  void Loop();
  void Write(std::span<const std::byte> chunk);
  void Fail(Error error);

  // ---- constant after construction
  const std::string path_;
  const size_t buffer_bytes_;
  const std::function<void(std::string_view)> log_;

  // ---- the engine thread's
  std::vector<std::byte> record_;    // the one that is being made
  uint64_t checksum_;                // of the last one
  std::vector<RecordToken> tokens_;  // since the last outcome
  std::vector<RecordEnd> ends_;
  bool told_ = false;  // something came since the last turn

  std::mutex mutex_;
  std::condition_variable wake_, written_;
  // ---- guarded by mutex_
  std::vector<std::byte> active_;  // whole records
  bool writing_now_ = false;       // the thread has others in hand
  bool hurry_ = false, closing_ = false;

  // ---- the writer's thread's; Close's once that has ended
  int file_;
  std::vector<std::byte> writing_;
  uint64_t file_bytes_;  // written: header and whole records
  Status status_ = Ok();

  std::atomic<bool> ended_{false};  // takes nothing any more
  std::thread thread_;
};

}  // namespace kvrm
