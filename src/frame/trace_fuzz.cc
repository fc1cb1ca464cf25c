// Arbitrary bytes as a frame trace: opening, seeking, replaying and comparing end in values and
// errors, never in a signal.
//
// Checksums would stop nearly every mutation at the door, so the bytes are read a second time with
// checksums that fit what they say.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "frame/field_codec.h"
#include "frame/frame_json.h"
#include "frame/trace_reader.h"
#include "frame/trace_replay.h"

namespace {

using Bytes = std::vector<std::byte>;

// Larger tables only take longer.
constexpr uint64_t kMaxEntries = 1 << 14;

void ReadAll(const Bytes& bytes) {
  const auto reader = kvrm::TraceReader::FromBytes(bytes);
  if (!reader.ok()) return;
  const kvrm::TraceHeader& header = (*reader)->header();
  const uint64_t entries = uint64_t{header.capacity.max_slots} * header.capacity.max_pages *
                           header.geometry.groups.size();
  if (entries > kMaxEntries) return;
  (void)kvrm::ReplayTrace(**reader, 4);
  (void)kvrm::DiffTraces(**reader, **reader);
  kvrm::TraceReplay replay(**reader);
  for (size_t r = (*reader)->records().size(); r-- > 0;) {  // backwards: each seek begins anew
    const auto frame = replay.Seek(r);
    if (!frame.ok()) continue;
    (void)replay.Violations();
    if (!replay.CheckCounts().ok()) continue;
    (void)kvrm::DumpFrame(header.geometry, *frame);
    (void)kvrm::FrameJson(header.geometry, *frame);
  }
}

// Checksums of the header and of each record, made to fit.
void Mend(Bytes& bytes) {
  kvrm::TraceFileHead head;
  if (bytes.size() < sizeof head) return;
  kvrm::Unpack(bytes.data(), 1, &head);
  if (head.header_bytes < sizeof head || head.header_bytes > bytes.size()) return;
  head.checksum = 0;
  kvrm::Pack(&head, 1, bytes.data());
  head.checksum = kvrm::TraceChecksum(std::span(bytes).first(head.header_bytes));
  kvrm::Pack(&head, 1, bytes.data());
  size_t offset = head.header_bytes;
  kvrm::TraceRecordHead record;
  while (bytes.size() - offset >= sizeof record) {
    kvrm::Unpack(bytes.data() + offset, 1, &record);
    const size_t left = bytes.size() - offset - sizeof record;
    if (record.payload_bytes <= left) {
      record.payload_checksum = kvrm::TraceChecksum(
          std::span(bytes).subspan(offset + sizeof record, record.payload_bytes));
    }
    record.head_checksum = kvrm::HeadChecksum(record);
    kvrm::Pack(&record, 1, bytes.data() + offset);
    if (record.payload_bytes > left) return;
    offset += sizeof record + record.payload_bytes;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  Bytes bytes(begin, begin + size);
  ReadAll(bytes);
  Mend(bytes);
  ReadAll(bytes);
  return 0;
}
