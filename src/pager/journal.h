// The journal of a step: one entry for each edit, in order. It is read twice: backwards to undo
// (Rollback, RollbackStep), or forwards to publish (Commit turns it into deltas and page copies).
// Plain data.
#pragma once

#include <cstdint>

namespace kvrm {

enum class EditKind : uint8_t {
  kOpen,            // the slot was given to a new sequence
  kClose,           // the sequence ended; its slot is free after Commit
  kLength,          // num_tokens became `index`, and written_tokens changed; old values kept
  kTakeSuperblock,  // superblock `page` was taken for the slot's sequence
  kAppend,          // `count` fresh pages from `page` on became table entries from `index` on
  kShare,           // the same with pages of another sequence
  kDrop,            // table entries from `index` on, the run of `count` pages from `page`, went
  kSlide,        // the run of `count` pages from `page`, entries from `index` on, left its window
  kCold,         // the same by TrimPages; the sequence is lossy from here on
  kReplace,      // entry `index`, the shared page `old_page`, became its copy `page`
  kTakeSoft,     // the free pages from `page` on are kept for the slot's growth
  kReleaseSoft,  // its soft pages from `page` on became free: another took them
  kEvict,        // the cached page `page` became free; `index`: what the prefix index wants to know
  kOrphan,       // a kReplace that was rolled back while others may name the copy
  kUndone,       // rolled back; stands only until the journal is closed up
};

// Of an edit that belongs to no sequence, though it may name one in `old_page`: only the rollback
// of the whole step undoes it.
inline constexpr uint16_t kNoSlot = 0xFFFF;

struct Edit {
  EditKind kind = EditKind::kUndone;
  uint8_t group = 0;
  uint16_t slot = 0;
  bool extends = false;    // kAppend, kShare: the run continues the read run before it
  bool was_lossy = false;  // kCold
  bool decodes = false;    // kAppend: a sequence's next page, and no more are known to come
  bool soft = false;       // kAppend: the pages were the slot's soft ones
  uint32_t index = 0;
  uint32_t page = 0;
  uint32_t count = 0;
  // kReplace: the shared page. kReleaseSoft: the slot. kAppend: how often the slot's soft run had
  // been stolen.
  uint32_t old_page = 0;
  uint32_t old_num_tokens = 0;
  uint32_t old_written_tokens = 0;
};

}  // namespace kvrm
