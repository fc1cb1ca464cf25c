// One copy as data: where from, where to, how many bytes, why, and how long it may wait. Transport
// plans descriptors, merges neighbours into trains, and a copy engine carries trains out. Plain
// data.
//
// Words (docs/glossary.md): a *descriptor* is one piece before merging; a *train* is a maximal
// piece after it, contiguous at both ends. Counters never mix reads in place with copies.
#pragma once

#include <cstdint>
#include <type_traits>

namespace kvrm {

// Frozen enumerators: they stand in the C ABI and in counters.
enum class CopyCause : uint8_t {
  kCopyOnWrite = 0,  // a shared page that is about to be written
  kStage = 1,        // pool -> window: what a gathered executor must find in its window
  kPublish = 2,      // window -> pool: rows that the executor wrote in its window
  kPark = 3,         // to a lower tier
  kResume = 4,       // from a lower tier
  kCompact = 5,      // within the pool, to lengthen runs
};
inline constexpr uint32_t kNumCopyCauses = 6;

// An address space that a copy engine knows the base of. Offsets are bytes from that base.
enum class CopySpaceKind : uint8_t { kPool = 0, kWindow = 1, kTier = 2 };
struct CopySpace {
  CopySpaceKind kind = CopySpaceKind::kPool;
  uint8_t kv_group = 0;
  bool operator==(const CopySpace&) const = default;
};

struct CopyDescriptor {
  uint64_t source_offset = 0;
  uint64_t destination_offset = 0;
  uint64_t bytes = 0;
  CopySpace source;
  CopySpace destination;
  CopyCause cause = CopyCause::kStage;
  uint8_t max_age_steps =
      0;  // delta: steps that it may wait for neighbours; 0 = this step needs it
  uint16_t reserved = 0;
  bool operator==(const CopyDescriptor&) const = default;
};
static_assert(sizeof(CopyDescriptor) == 32 && std::is_trivially_copyable_v<CopyDescriptor>);

// A copy to be issued: one contiguous piece at both ends, merged from `pieces` descriptors.
struct Train {
  uint64_t source_offset = 0;
  uint64_t destination_offset = 0;
  uint64_t bytes = 0;
  CopySpace source;
  CopySpace destination;
  CopyCause cause = CopyCause::kStage;
  uint8_t reserved0[3] = {};
  uint32_t pieces = 0;
  uint32_t reserved1 = 0;
  bool operator==(const Train&) const = default;
};
static_assert(sizeof(Train) == 40 && std::is_trivially_copyable_v<Train>);

// Copies so far, by cause (docs/architecture.md, section 7).
struct CopyCounters {
  uint64_t copy_pieces[kNumCopyCauses] = {};  // before merging
  uint64_t copies[kNumCopyCauses] = {};       // trains issued
  uint64_t copy_bytes[kNumCopyCauses] = {};
  bool operator==(const CopyCounters&) const = default;
};

}  // namespace kvrm
