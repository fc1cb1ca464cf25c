#include "engine/record_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/last_words.h"
#include "engine/record_fields.h"
#include "frame/field_codec.h"

namespace kvrm {
namespace {

// What a step in its stride stays below; beyond it vectors grow.
constexpr size_t kUsualOutcomes = 1024, kUsualRecordBytes = 64 * 1024;

Error FileError(const std::string& path, const char* what, int code) {
  const std::string text = path + ": " + what + ": " + std::strerror(code);
  return code == ENOSPC || code == EDQUOT ? NoRoom(text) : Unavailable(text);
}

// How many of `bytes` went through; fewer than all: errno tells why.
size_t WriteAll(int file, std::span<const std::byte> bytes) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = ::write(file, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = ENOSPC;
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  return written;
}

// Of the first `bytes` of `chunk`, those of whole records.
size_t WholeRecords(std::span<const std::byte> chunk, size_t bytes) {
  size_t end = 0;
  while (end + sizeof(RecordHead) <= bytes) {
    RecordHead head;
    Unpack(chunk.data() + end, 1, &head);
    const size_t next = end + sizeof head + head.payload_bytes;
    if (next > bytes) break;
    end = next;
  }
  return end;
}

template <class T>
std::byte* Append(const T* objects, size_t count, std::byte* to) {
  Pack(objects, count, to);
  return to + count * sizeof(T);
}

}  // namespace

Result<std::unique_ptr<RecordWriter>> RecordWriter::Create(const std::string& path,
                                                           const RecordHeader& header,
                                                           const RecordOptions& options) {
  const std::vector<std::byte> bytes = PackRecordHeader(header);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return FileError(path, "the record cannot be made", errno);
  // A file that was there keeps its mode when it is opened; what it will hold is its owner's alone.
  struct stat info{};
  if (::fstat(file, &info) == 0 && S_ISREG(info.st_mode)) (void)::fchmod(file, 0600);
  RecordFileHead head;
  Unpack(bytes.data(), 1, &head);
  std::unique_ptr<RecordWriter> writer(
      new RecordWriter(path, file, bytes.size(), head.checksum, options));
  if (WriteAll(file, bytes) < bytes.size()) {
    return FileError(path, "the record cannot be written", errno);
  }
  writer->thread_ = std::thread([w = writer.get()] { w->Loop(); });
  SetLastWords([](void* w) { static_cast<RecordWriter*>(w)->Flush(); }, writer.get());
  return writer;
}

RecordWriter::RecordWriter(std::string path, int file, uint64_t header_bytes, uint64_t checksum,
                           const RecordOptions& options)
    : path_(std::move(path)),
      buffer_bytes_(options.buffer_bytes),
      log_(options.log),
      checksum_(checksum),
      file_(file),
      file_bytes_(header_bytes) {
  active_.reserve(buffer_bytes_);
  writing_.reserve(buffer_bytes_);
  record_.reserve(kUsualRecordBytes);
  tokens_.reserve(kUsualOutcomes);
  ends_.reserve(kUsualOutcomes);
}

RecordWriter::~RecordWriter() { (void)Close(); }

// ---- the engine's side

std::byte* RecordWriter::Begin(RecordKind kind, size_t payload_bytes) {
  record_.resize(sizeof(RecordHead) + payload_bytes);
  const RecordHead head{static_cast<uint32_t>(payload_bytes), kind, 0, 0};
  return Append(&head, 1, record_.data());
}

void RecordWriter::Seal() {
  if (ended_.load(std::memory_order_relaxed)) return;
  RecordHead head;
  Unpack(record_.data(), 1, &head);
  head.checksum = RecordChecksum(head, std::span(record_).subspan(sizeof head), checksum_);
  checksum_ = head.checksum;
  Pack(&head, 1, record_.data());
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    const size_t before = active_.size(), after = before + record_.size();
    if (after > buffer_bytes_) {
      ended_ = true;  // the writer's thread tells why when it comes round
      return;
    }
    active_.insert(active_.end(), record_.begin(), record_.end());
    wake = before == 0 || (before < buffer_bytes_ / 2 && after >= buffer_bytes_ / 2);
  }
  if (wake) wake_.notify_one();
}

void RecordWriter::Put(RecordKind kind) {
  Begin(kind, 0);
  Seal();
}

void RecordWriter::Submit(RequestId id, int64_t submit_us, const GenerateRequest& request) {
  told_ = true;
  const RecordSubmit submit = ToRecordSubmit(id, submit_us, request);
  const std::span<const TokenId> prompt = request.prompt, end_tokens = request.end_tokens;
  const std::vector<LogitBias>& biases = request.sampling.logit_bias;
  std::byte* to =
      Begin(RecordKind::kSubmit, sizeof submit + prompt.size_bytes() + end_tokens.size_bytes() +
                                     biases.size() * sizeof(RecordBias));
  to = Append(&submit, 1, to);
  to = Append(prompt.data(), prompt.size(), to);
  to = Append(end_tokens.data(), end_tokens.size(), to);
  for (const LogitBias& entry : biases) {
    const RecordBias bias{entry.id, entry.bias};
    to = Append(&bias, 1, to);
  }
  Seal();
}

void RecordWriter::Cancel(RequestId id) {
  told_ = true;
  const RecordId record{id.value};
  std::byte* const to = Begin(RecordKind::kCancel, sizeof record);
  Append(&record, 1, to);
  Seal();
}

void RecordWriter::Idle() {
  told_ = true;
  Put(RecordKind::kIdle);
}

void RecordWriter::Stop() {
  told_ = true;
  Put(RecordKind::kStop);
}

void RecordWriter::Maintained() { Put(RecordKind::kMaintain); }

void RecordWriter::Step(int64_t now_us) {
  told_ = false;
  const RecordClock clock{now_us};
  std::byte* const to = Begin(RecordKind::kStep, sizeof clock);
  Append(&clock, 1, to);
  Seal();
}

void RecordWriter::Rollback() { Put(RecordKind::kRollback); }

void RecordWriter::Token(RequestId id, TokenId token) { tokens_.push_back({id.value, token, 0}); }

void RecordWriter::End(RequestId id, StopReason reason) {
  ends_.push_back({id.value, static_cast<uint32_t>(reason), 0});
}

size_t RecordWriter::OutcomeBytes() const {
  return sizeof(RecordOutcome) + tokens_.size() * sizeof(RecordToken) +
         ends_.size() * sizeof(RecordEnd);
}

void RecordWriter::PutOutcome(std::byte* to) {
  const RecordOutcome outcome{static_cast<uint32_t>(tokens_.size()),
                              static_cast<uint32_t>(ends_.size())};
  to = Append(&outcome, 1, to);
  to = Append(tokens_.data(), tokens_.size(), to);
  Append(ends_.data(), ends_.size(), to);
  tokens_.clear();
  ends_.clear();
}

void RecordWriter::Commit(const FrameHead& frame, const StepPlan& plan) {
  const RecordCommit commit{.epoch = frame.epoch,
                            .chain_hash = frame.chain_hash,
                            .num_rows = plan.num_rows,
                            .num_prompt_rows = plan.num_prompt_rows,
                            .num_admitted = static_cast<uint32_t>(plan.admitted.size()),
                            .num_preempted = static_cast<uint32_t>(plan.preempted.size()),
                            .num_deferred = plan.deferred,
                            .reserved = 0};
  std::byte* const to = Begin(RecordKind::kCommit, sizeof commit + OutcomeBytes());
  PutOutcome(Append(&commit, 1, to));
  Seal();
}

void RecordWriter::Pause(bool worked) {
  if (!worked && !std::exchange(told_, false)) return;
  told_ = false;
  std::byte* const to = Begin(RecordKind::kPause, OutcomeBytes());
  PutOutcome(to);
  Seal();
}

void RecordWriter::Flush() {
  std::unique_lock lock(mutex_);
  hurry_ = true;
  wake_.notify_one();
  written_.wait(lock, [this] { return ended_ || (active_.empty() && !writing_now_); });
}

Status RecordWriter::Close() {
  if (!thread_.joinable()) return status_;
  SetLastWords(nullptr, nullptr);
  Put(RecordKind::kClosed);
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  thread_.join();
  ended_ = true;
  const int code = ::close(std::exchange(file_, -1)) == 0 ? 0 : errno;
  if (status_.ok() && code != 0) Fail(FileError(path_, "the record cannot be closed", code));
  return status_;
}

// ---- the writer's thread

void RecordWriter::Loop() {
  std::unique_lock lock(mutex_);
  while (status_.ok()) {
    wake_.wait(lock, [this] { return closing_ || ended_ || hurry_ || !active_.empty(); });
    wake_.wait_for(lock, kFlushEvery, [this] {
      return closing_ || ended_ || hurry_ || active_.size() >= buffer_bytes_ / 2;
    });
    const bool closing = closing_;
    hurry_ = false;
    writing_now_ = true;
    active_.swap(writing_);
    lock.unlock();
    Write(writing_);
    writing_.clear();
    if (ended_ && status_.ok()) {
      Fail(NoRoom(path_ + ": the disk takes less than the engine does; " +
                  std::to_string(buffer_bytes_) + " bytes wait for it, and no more may"));
    }
    lock.lock();
    writing_now_ = false;
    written_.notify_all();
    if (closing) return;
  }
}

void RecordWriter::Write(std::span<const std::byte> chunk) {
  const size_t written = WriteAll(file_, chunk);
  const int code = errno;
  file_bytes_ += WholeRecords(chunk, written);
  if (written == chunk.size()) return;
  Error error = FileError(path_, "the record cannot be written", code);
  if (::ftruncate(file_, static_cast<off_t>(file_bytes_)) != 0) {
    error.message += " (its last record may be cut off)";
  }
  Fail(std::move(error));
}

// The one place where a record ends before its engine does.
void RecordWriter::Fail(Error error) {
  ended_ = true;
  status_ = std::move(error);
  if (log_) log_(status_.error().message + "; the record ends here, the engine goes on");
}

}  // namespace kvrm
