// Calls that only look: geometry, memory, sequences, room, books, counters, validation, dump.
#include <cstring>
#include <string>

#include "capi/boundary.h"
#include "capi/versioned.h"

using namespace kvrm;

namespace {

template <class T>
kvrm_status Write(const kvrm_runtime& r, T* out, const T& value) {
  const char* refused = WriteVersioned(out, value);
  return refused == nullptr ? KVRM_OK : r.error.Set(KVRM_INVALID, "out.size: %s", refused);
}

// As much of `from` as fits, always ended by 0.
kvrm_status WriteText(const kvrm_runtime& r, const std::string& from, char* text, size_t capacity,
                      size_t* needed) {
  if (text == nullptr && capacity > 0) return NullOutput(r, "text");
  if (needed != nullptr) *needed = from.size() + 1;
  if (capacity == 0) return KVRM_OK;
  const size_t length = std::min(from.size(), capacity - 1);
  std::memcpy(text, from.data(), length);
  text[length] = 0;
  return KVRM_OK;
}

}  // namespace

// ---- geometry and memory

kvrm_status kvrm_get_group(const kvrm_runtime* runtime, uint32_t group, kvrm_group_config* out) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (out == nullptr) return NullOutput(r, "out");
    if (const kvrm_status status = CheckGroupIndex(r, group); status != KVRM_OK) return status;
    return Write(r, out, DescribeGroup(r.geometry().groups[group]));
  });
}

kvrm_status kvrm_get_layer(const kvrm_runtime* runtime, uint32_t layer, uint32_t* group,
                           uint32_t* part) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (group == nullptr || part == nullptr) return NullOutput(r, "an output");
    const KvGeometry& geometry = r.geometry();
    if (layer >= geometry.layer_group.size()) {
      return r.error.Set(KVRM_INVALID, "layer: %u, there are %zu", layer,
                         geometry.layer_group.size());
    }
    *group = geometry.layer_group[layer];
    *part = geometry.layer_part[layer];
    return KVRM_OK;
  });
}

kvrm_status kvrm_get_memory(const kvrm_runtime* runtime, uint32_t group, void** base,
                            uint64_t* bytes) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (base == nullptr || bytes == nullptr) return NullOutput(r, "an output");
    if (const kvrm_status status = CheckGroupIndex(r, group); status != KVRM_OK) return status;
    *base = r.pager->base(group);
    *bytes = r.pager->range_bytes(group);
    return KVRM_OK;
  });
}

kvrm_status kvrm_get_page_offset(const kvrm_runtime* runtime, uint32_t group, uint32_t page,
                                 uint32_t part, uint64_t* offset) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (offset == nullptr) return NullOutput(r, "offset");
    if (const kvrm_status status = CheckGroupIndex(r, group); status != KVRM_OK) return status;
    const KvGroupGeometry& geometry = r.geometry().groups[group];
    const uint64_t pages =
        r.pager->range_bytes(group) / geometry.superblock_bytes * geometry.pages_per_superblock;
    if (page >= pages || part >= geometry.num_parts) {
      return r.error.Set(KVRM_INVALID, "page: %u, part: %u; there are %llu pages of %u parts", page,
                         part, static_cast<unsigned long long>(pages), geometry.num_parts);
    }
    *offset = geometry.PageOffset(PageId{page}) + part * geometry.part_stride_bytes();
    return KVRM_OK;
  });
}

// ---- sequences

kvrm_status kvrm_get_sequence(const kvrm_runtime* runtime, kvrm_seq seq, kvrm_sequence_info* out) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (out == nullptr) return NullOutput(r, "out");
    const auto* sequence = FindOpen(r, "seq", seq);
    if (sequence == nullptr) return KVRM_INVALID;
    kvrm_sequence_info info = {};
    info.slot = r.pager->slot(SeqId{seq}).value;
    info.num_tokens = r.pager->num_tokens(SeqId{seq});
    info.completed_tokens = std::min(r.pager->completed_tokens(SeqId{seq}), sequence->computed);
    info.lossy = r.pager->lossy(SeqId{seq}) ? 1 : 0;
    info.new_from = sequence->new_from;
    return Write(r, out, info);
  });
}

kvrm_status kvrm_get_sequence_pages(const kvrm_runtime* runtime, kvrm_seq seq, uint32_t group,
                                    const uint32_t** pages, uint32_t* num_pages,
                                    uint32_t* first_page) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (pages == nullptr || num_pages == nullptr || first_page == nullptr) {
      return NullOutput(r, "an output");
    }
    if (FindOpen(r, "seq", seq) == nullptr) return KVRM_INVALID;
    if (const kvrm_status status = CheckGroupIndex(r, group); status != KVRM_OK) return status;
    const std::span<const PageId> held = r.pager->pages(SeqId{seq}, group);
    *pages = reinterpret_cast<const uint32_t*>(held.data());
    *num_pages = static_cast<uint32_t>(held.size());
    *first_page = r.pager->first_page(SeqId{seq}, group);
    return KVRM_OK;
  });
}

// ---- room and counts

kvrm_status kvrm_get_room(const kvrm_runtime* runtime, kvrm_room* out) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (out == nullptr) return NullOutput(r, "out");
    kvrm_room room = {};
    room.open_sequences = r.ledger.num_open();
    room.pages_now = r.pager->available_pages(/*with_limbo=*/false);
    room.tokens_now = r.pager->available_tokens(/*with_limbo=*/false);
    room.pages_with_limbo = r.pager->available_pages(/*with_limbo=*/true);
    room.tokens_with_limbo = r.pager->available_tokens(/*with_limbo=*/true);
    room.max_tokens = r.pager->max_tokens();
    return Write(r, out, room);
  });
}

kvrm_status kvrm_get_books(const kvrm_runtime* runtime, uint32_t group, kvrm_books* out) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (out == nullptr) return NullOutput(r, "out");
    if (const kvrm_status status = CheckGroupIndex(r, group); status != KVRM_OK) return status;
    const PagerBooks from = r.pager->books(group);
    kvrm_books books = {};
    books.total = from.total;
    books.free = from.free;
    books.cached = from.cached;
    books.in_use = from.in_use;
    books.soft = from.soft;
    books.limbo = from.limbo;
    books.in_flight = from.in_flight;
    books.superblocks = from.superblocks;
    books.reserved_bytes = from.reserved_bytes;
    books.superblock_bytes = from.superblock_bytes;
    return Write(r, out, books);
  });
}

kvrm_status kvrm_get_counters(const kvrm_runtime* runtime, kvrm_counters* out) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (out == nullptr) return NullOutput(r, "out");
    const PagerCounters& from = r.pager->counters();
    kvrm_counters counters = {};
#define KVRM_COPY_COUNTER(name) counters.name = from.name
    KVRM_COPY_COUNTER(reserves);
    KVRM_COPY_COUNTER(deferred);
    KVRM_COPY_COUNTER(unserviceable);
    KVRM_COPY_COUNTER(trims);
    KVRM_COPY_COUNTER(aliases);
    KVRM_COPY_COUNTER(commits);
    KVRM_COPY_COUNTER(rollbacks);
    KVRM_COPY_COUNTER(savepoint_rollbacks);
    KVRM_COPY_COUNTER(pages_taken);
    KVRM_COPY_COUNTER(pages_returned);
    KVRM_COPY_COUNTER(copy_on_write);
    KVRM_COPY_COUNTER(soft_taken);
    KVRM_COPY_COUNTER(soft_used);
    KVRM_COPY_COUNTER(soft_stolen);
    KVRM_COPY_COUNTER(slid_pages);
    KVRM_COPY_COUNTER(cold_pages);
    KVRM_COPY_COUNTER(superblocks_populated);
    KVRM_COPY_COUNTER(superblocks_given_back);
    KVRM_COPY_COUNTER(superblocks_taken_cold);
    KVRM_COPY_COUNTER(prefix_lookups);
    KVRM_COPY_COUNTER(prefix_hit_tokens);
    KVRM_COPY_COUNTER(prefix_miss_tokens);
    KVRM_COPY_COUNTER(prefix_pages_indexed);
    KVRM_COPY_COUNTER(prefix_pages_evicted);
    KVRM_COPY_COUNTER(prefix_collisions);
    KVRM_COPY_COUNTER(read_runs);
#undef KVRM_COPY_COUNTER
    return Write(r, out, counters);
  });
}

kvrm_status kvrm_get_copy_counters(const kvrm_runtime* runtime, kvrm_copy_counters* out) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (out == nullptr) return NullOutput(r, "out");
    kvrm_copy_counters counters = {};
    const auto add = [&](const CopyCounters& from) {
      for (uint32_t cause = 0; cause < kNumCopyCauses; ++cause) {
        counters.pieces[cause] += from.copy_pieces[cause];
        counters.trains[cause] += from.copies[cause];
        counters.bytes[cause] += from.copy_bytes[cause];
      }
    };
    add(r.page_copies.counters());
    if (r.windows != nullptr) add(r.windows->counters());
    return Write(r, out, counters);
  });
}

// ---- everything, as text

kvrm_status kvrm_validate(const kvrm_runtime* runtime, char* text, size_t capacity, size_t* needed,
                          uint32_t* num_violations) {
  if (runtime == nullptr) return ThreadError().Set(KVRM_INVALID, "runtime is NULL");
  const kvrm_runtime& r = *runtime;
  if (num_violations == nullptr) return NullOutput(r, "num_violations");
  CheckTrap trap;
  try {
    std::vector<std::string> found = Validate(r.pager->Snapshot());
    if (r.view.head != nullptr) {
      const FrameHead* previous = r.epoch > 1 ? &r.previous_head : nullptr;
      for (std::string& each : ValidateFrame(r.geometry(), r.view, previous)) {
        found.push_back(std::move(each));
      }
    }
    std::string all;
    for (const std::string& each : found) all += each + "\n";
    const kvrm_status status = WriteText(r, all, text, capacity, needed);
    if (status == KVRM_OK) *num_violations = static_cast<uint32_t>(found.size());
    return status;
  } catch (...) {  // a broken runtime may name what is not there
    return r.error.Set(KVRM_BROKEN, "the runtime is too broken to be validated");
  }
}

kvrm_status kvrm_dump(const kvrm_runtime* runtime, char* text, size_t capacity, size_t* needed) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (r.view.head == nullptr) return r.error.Set(KVRM_INVALID, "no epoch was committed");
    return WriteText(r, DumpFrame(r.geometry(), r.view), text, capacity, needed);
  });
}
