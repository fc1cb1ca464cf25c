#include "engine/record_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/record_fields.h"
#include "frame/field_codec.h"

namespace kvrm {
namespace {

// `count` objects from `at` on. Requires: they lie within `bytes`.
template <class T>
void Take(std::span<const std::byte> bytes, size_t* at, size_t count, std::vector<T>* out) {
  out->resize(count);
  Unpack(bytes.data() + *at, count, out->data());
  *at += count * sizeof(T);
}

}  // namespace

Result<std::unique_ptr<RecordReader>> RecordReader::Open(const std::string& path) {
  std::unique_ptr<RecordReader> reader(new RecordReader);
  reader->path_ = path + ": ";
  reader->file_ = std::fopen(path.c_str(), "rbe");
  if (reader->file_ == nullptr) {
    const std::string text = path + ": cannot be read: " + std::strerror(errno);
    return errno == ENOENT ? NotFound(text) : Unavailable(text);
  }
  struct stat info{};
  if (::fstat(::fileno(reader->file_), &info) != 0 || !S_ISREG(info.st_mode)) {
    return InvalidInput(path + ": is not a file");
  }
  reader->file_bytes_ = static_cast<uint64_t>(info.st_size);
  KVRM_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

Result<std::unique_ptr<RecordReader>> RecordReader::FromBytes(std::span<const std::byte> bytes) {
  std::unique_ptr<RecordReader> reader(new RecordReader);
  reader->memory_ = bytes;
  reader->file_bytes_ = bytes.size();
  KVRM_RETURN_IF_ERROR(reader->ReadHeader());
  return reader;
}

RecordReader::~RecordReader() {
  if (file_ != nullptr) std::fclose(file_);
}

// Requires: the bytes lie within the file.
Status RecordReader::Read(std::span<std::byte> bytes) {
  if (file_ == nullptr) {
    std::copy_n(memory_.begin() + static_cast<ptrdiff_t>(at_), bytes.size(), bytes.begin());
  } else if (std::fread(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    return Unavailable(path_ + "cannot be read at offset " + std::to_string(at_));
  }
  at_ += bytes.size();
  return Ok();
}

Status RecordReader::ReadHeader() {
  std::vector<std::byte> bytes(std::min<uint64_t>(file_bytes_, sizeof(RecordFileHead)));
  KVRM_RETURN_IF_ERROR(Read(bytes));
  if (bytes.size() == sizeof(RecordFileHead)) {
    RecordFileHead head;
    Unpack(bytes.data(), 1, &head);
    const uint64_t rest = std::max<uint64_t>(head.header_bytes, bytes.size()) - bytes.size();
    bytes.resize(bytes.size() + std::min(rest, file_bytes_ - at_));
    KVRM_RETURN_IF_ERROR(Read(std::span(bytes).subspan(sizeof head)));
  }
  uint64_t header_bytes = 0;
  auto header = UnpackRecordHeader(bytes, &header_bytes, &checksum_);
  if (!header.ok()) return Error{header.error().kind, path_ + header.error().message};
  header_ = std::move(header).value();
  return Ok();
}

Error RecordReader::Wrong(const std::string& what) const {
  return InvalidInput(path_ + "entry " + std::to_string(num_entries_) + " at offset " +
                      std::to_string(entry_.offset) + ", in step " + std::to_string(entry_.step) +
                      ": " + what);
}

Result<const RecordEntry*> RecordReader::Next() {
  if (failed_) return *failed_;
  const uint64_t left = file_bytes_ - at_;
  if (closed_ && left > 0) {
    failed_ = Wrong(std::to_string(left) + " bytes come after the entry that closes the record");
    return *failed_;
  }
  entry_.offset = at_;
  if (left == 0) return nullptr;
  ++num_entries_;
  if (const Status whole = ReadEntry(left); !whole.ok()) {
    failed_ = whole.error();
    return *failed_;
  }
  return &entry_;
}

// The next entry; `left` bytes of the file are left.
Status RecordReader::ReadEntry(uint64_t left) {
  if (left < sizeof(RecordHead)) {
    return Wrong("the file ends within it: " + std::to_string(left) + " bytes, must be " +
                 std::to_string(sizeof(RecordHead)) + " or more");
  }
  std::byte bytes[sizeof(RecordHead)];
  KVRM_RETURN_IF_ERROR(Read(bytes));
  RecordHead head;
  Unpack(bytes, 1, &head);
  if (head.payload_bytes > file_bytes_ - at_) {
    return Wrong("it says that " + std::to_string(head.payload_bytes) + " bytes follow, but " +
                 std::to_string(file_bytes_ - at_) +
                 " are left in the file: it was cut off, or the entry was changed");
  }
  payload_.resize(head.payload_bytes);
  KVRM_RETURN_IF_ERROR(Read(payload_));
  entry_.kind = head.kind;
  if (head.kind == RecordKind::kStep) ++entry_.step;
  KVRM_RETURN_IF_ERROR(Parse(head));
  return CheckOrder();
}

Status RecordReader::Parse(const RecordHead& head) {
  const uint64_t expected = RecordChecksum(head, payload_, checksum_);
  if (head.checksum != expected) {
    return Wrong("its checksum is not that of its " + std::to_string(payload_.size()) +
                 " bytes and the entries before it");
  }
  checksum_ = expected;
  const auto bytes_are = [&](size_t bytes) -> Status {
    if (payload_.size() == bytes) return Ok();
    return Wrong(std::string(RecordKindName(head.kind)) + " of " + std::to_string(payload_.size()) +
                 " bytes, must be " + std::to_string(bytes));
  };
  switch (head.kind) {
    case RecordKind::kSubmit:
      return ParseSubmit();
    case RecordKind::kCancel: {
      KVRM_RETURN_IF_ERROR(bytes_are(sizeof(RecordId)));
      RecordId id;
      Unpack(payload_.data(), 1, &id);
      entry_.id = RequestId{id.id};
      return Ok();
    }
    case RecordKind::kStep: {
      KVRM_RETURN_IF_ERROR(bytes_are(sizeof(RecordClock)));
      RecordClock clock;
      Unpack(payload_.data(), 1, &clock);
      entry_.now_us = clock.now_us;
      if (clock.now_us < last_now_us_ || clock.now_us > kMaxRecordUs) {
        return Wrong("now_us is " + std::to_string(clock.now_us) + ", must be " +
                     std::to_string(last_now_us_) + " to " + std::to_string(kMaxRecordUs));
      }
      last_now_us_ = clock.now_us;
      return Ok();
    }
    case RecordKind::kCommit:
      if (payload_.size() < sizeof(RecordCommit)) return bytes_are(sizeof(RecordCommit));
      Unpack(payload_.data(), 1, &entry_.commit);
      return ParseOutcome(sizeof(RecordCommit));
    case RecordKind::kPause:
      return ParseOutcome(0);
    case RecordKind::kIdle:
    case RecordKind::kStop:
    case RecordKind::kMaintain:
    case RecordKind::kRollback:
    case RecordKind::kClosed:
      return bytes_are(0);
  }
  return Wrong("kind is " + std::to_string(static_cast<uint32_t>(head.kind)) + ", must be 1 to 10");
}

Status RecordReader::ParseSubmit() {
  RecordSubmit& submit = entry_.submit;
  if (payload_.size() < sizeof submit) {
    return Wrong("submit of " + std::to_string(payload_.size()) + " bytes, must be " +
                 std::to_string(sizeof submit) + " or more");
  }
  Unpack(payload_.data(), 1, &submit);
  const uint64_t ids = uint64_t{submit.prompt_tokens} + submit.num_end_tokens;
  const uint64_t bytes =
      sizeof submit + ids * sizeof(TokenId) + uint64_t{submit.num_biases} * sizeof(RecordBias);
  if (payload_.size() != bytes) {
    return Wrong("submit of " + std::to_string(payload_.size()) + " bytes, must be " +
                 std::to_string(bytes) + " for " + std::to_string(submit.prompt_tokens) +
                 " prompt tokens, " + std::to_string(submit.num_end_tokens) + " end tokens and " +
                 std::to_string(submit.num_biases) + " biases");
  }
  if (const auto reserved = NonzeroReserved(submit)) {
    return Wrong(reserved->name + " is " + reserved->value + ", must be 0");
  }
  if (submit.flags > (kRecordGenerates | kRecordScoresPrompt)) {
    return Wrong("flags is " + std::to_string(submit.flags) + ", must be 0 to 3");
  }
  if (submit.submit_us < 0 || submit.submit_us > kMaxRecordUs) {
    return Wrong("submit_us is " + std::to_string(submit.submit_us) + ", must be 0 to " +
                 std::to_string(kMaxRecordUs));
  }
  size_t at = sizeof submit;
  entry_.request = FromRecordSubmit(submit);
  Take(payload_, &at, submit.prompt_tokens, &entry_.request.prompt);
  Take(payload_, &at, submit.num_end_tokens, &entry_.request.end_tokens);
  std::vector<RecordBias> biases;
  Take(payload_, &at, submit.num_biases, &biases);
  for (const RecordBias& bias : biases) {
    entry_.request.sampling.logit_bias.push_back({bias.token, bias.bias});
  }
  entry_.id = RequestId{submit.id};
  return Ok();
}

Status RecordReader::ParseOutcome(size_t at) {
  RecordOutcome outcome{};
  if (payload_.size() - at >= sizeof outcome) Unpack(payload_.data() + at, 1, &outcome);
  at += sizeof outcome;
  const uint64_t bytes = at + uint64_t{outcome.num_tokens} * sizeof(RecordToken) +
                         uint64_t{outcome.num_ends} * sizeof(RecordEnd);
  if (payload_.size() != bytes) {
    return Wrong("outcome of " + std::to_string(payload_.size()) + " bytes, must be " +
                 std::to_string(bytes) + " for " + std::to_string(outcome.num_tokens) +
                 " tokens and " + std::to_string(outcome.num_ends) + " ends");
  }
  Take(payload_, &at, outcome.num_tokens, &entry_.tokens);
  Take(payload_, &at, outcome.num_ends, &entry_.ends);
  return Ok();
}

// What comes stands before the step or the pause that it is drained by; a step has one end.
Status RecordReader::CheckOrder() {
  const RecordKind kind = entry_.kind;
  const bool ends_step = kind == RecordKind::kCommit || kind == RecordKind::kRollback;
  if (ends_step != in_step_) {
    return Wrong(std::string(RecordKindName(kind)) +
                 (in_step_ ? " within a step, must be commit or rollback" : " outside a step"));
  }
  in_step_ = kind == RecordKind::kStep;
  closed_ = kind == RecordKind::kClosed;
  if (kind == RecordKind::kCommit) {
    // An engine may have made steps of its own before it was recorded.
    if (last_epoch_ > 0 && entry_.commit.epoch != last_epoch_ + 1) {
      return Wrong("epoch is " + std::to_string(entry_.commit.epoch) + ", must be " +
                   std::to_string(last_epoch_ + 1));
    }
    last_epoch_ = entry_.commit.epoch;
  }
  if (kind == RecordKind::kSubmit) {
    if (entry_.id.value <= last_id_) {
      return Wrong("id is " + std::to_string(entry_.id.value) + ", must be above " +
                   std::to_string(last_id_));
    }
    last_id_ = entry_.id.value;
  }
  return Ok();
}

}  // namespace kvrm
