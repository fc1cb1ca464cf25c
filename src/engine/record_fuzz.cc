// Arbitrary bytes as a record: reading and replaying them end in values and errors, never in a
// signal. Checksums would stop nearly every mutation at the door, so the bytes are read a second
// time with checksums that fit what they say.
//
// What is replayed is what an engine may be asked for from outside: its own checks have to hold.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/record_fields.h"
#include "engine/record_testing.h"
#include "frame/field_codec.h"

namespace {

using Bytes = std::vector<std::byte>;

void Mend(Bytes& bytes) {
  kvrm::RecordFileHead file_head;
  if (bytes.size() < sizeof file_head) return;
  kvrm::Unpack(bytes.data(), 1, &file_head);
  if (file_head.header_bytes < sizeof file_head || file_head.header_bytes > bytes.size()) return;
  file_head.checksum = kvrm::RecordHeaderChecksum(std::span(bytes).first(file_head.header_bytes));
  kvrm::Pack(&file_head, 1, bytes.data());
  uint64_t checksum = file_head.checksum;
  size_t at = file_head.header_bytes;
  while (bytes.size() - at >= sizeof(kvrm::RecordHead)) {
    kvrm::RecordHead head;
    kvrm::Unpack(bytes.data() + at, 1, &head);
    const size_t left = bytes.size() - at - sizeof head;
    if (head.payload_bytes > left) return;
    head.checksum = checksum = kvrm::RecordChecksum(
        head, std::span(bytes).subspan(at + sizeof head, head.payload_bytes), checksum);
    kvrm::Pack(&head, 1, bytes.data() + at);
    at += sizeof head + head.payload_bytes;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 64 * 1024) return 0;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  Bytes bytes(begin, begin + size);
  (void)kvrm::testing::ReplayBytes(bytes);
  Mend(bytes);
  (void)kvrm::testing::ReplayBytes(bytes);
  return 0;
}
