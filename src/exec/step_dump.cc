#include "exec/step_dump.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

namespace kvrm {
namespace {

template <class T>
void Put(std::vector<std::byte>& out, const T* values, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  out.insert(out.end(), bytes, bytes + count * sizeof(T));
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  bool Get(T* values, size_t count) {
    if (count > bytes_.size() / sizeof(T)) return false;
    std::memcpy(values, bytes_.data(), count * sizeof(T));
    bytes_ = bytes_.subspan(count * sizeof(T));
    return true;
  }
  template <class T>
  bool Get(std::vector<T>& values, size_t count) {
    if (count > bytes_.size() / sizeof(T)) return false;
    values.resize(count);
    return Get(values.data(), count);
  }

 private:
  std::span<const std::byte> bytes_;
};

// Calls fn(part address offset) for each part of a page.
template <class Fn>
void ForEachPart(const KvGroupGeometry& group, uint32_t page, Fn&& fn) {
  for (uint32_t part = 0; part < group.num_parts; ++part) {
    fn(group.PageOffset(PageId{page}) + part * group.part_stride_bytes());
  }
}

Error Truncated() { return InvalidInput("step dump: truncated"); }

}  // namespace

std::vector<std::byte> DumpStep(const KvGeometry& geometry, const FrameView& frame,
                                std::byte* const* kv_base) {
  std::vector<std::byte> out;
  Put(out, frame.head, 1);
  Put(out, &frame.max_slots, 1);
  Put(out, &frame.max_pages, 1);
  Put(out, frame.rows, frame.head->num_rows);
  Put(out, frame.slots, frame.head->num_slots);
  const size_t table = size_t{frame.head->num_groups} * frame.max_slots * frame.max_pages;
  Put(out, frame.segments, table);
  Put(out, frame.dense, table);
  std::vector<std::pair<uint32_t, uint32_t>> pages;
  for (uint32_t g = 0; g < frame.head->num_groups; ++g) {
    for (uint32_t s = 0; s < frame.head->num_slots; ++s) {
      const uint32_t* dense = frame.SlotPages(g, frame.slots[s].slot);
      for (uint32_t i = 0; i < frame.slots[s].num_pages[g]; ++i) pages.emplace_back(g, dense[i]);
    }
  }
  std::sort(pages.begin(), pages.end());
  pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
  const uint64_t num_pages = pages.size();
  Put(out, &num_pages, 1);
  for (const auto& [g, page] : pages) {
    Put(out, &g, 1);
    Put(out, &page, 1);
    const KvGroupGeometry& group = geometry.groups[g];
    ForEachPart(group, page,
                [&](uint64_t offset) { Put(out, kv_base[g] + offset, group.part_page_bytes); });
  }
  return out;
}

Result<LoadedStep> LoadedStep::Parse(std::span<const std::byte> bytes, const KvGeometry& geometry) {
  LoadedStep step;
  step.geometry_ = geometry;
  Reader reader(bytes);
  if (!reader.Get(&step.head_, 1) || !reader.Get(&step.max_slots_, 1) ||
      !reader.Get(&step.max_pages_, 1)) {
    return Truncated();
  }
  if (step.head_.magic != kFrameMagic || step.head_.version != kFrameVersion ||
      step.head_.num_groups != geometry.groups.size()) {
    return InvalidInput("step dump: made by another version or for another geometry");
  }
  const size_t table = size_t{step.head_.num_groups} * step.max_slots_ * step.max_pages_;
  uint64_t num_pages = 0;
  if (!reader.Get(step.rows_, step.head_.num_rows) ||
      !reader.Get(step.slots_, step.head_.num_slots) || !reader.Get(step.segments_, table) ||
      !reader.Get(step.dense_, table) || !reader.Get(&num_pages, 1)) {
    return Truncated();
  }
  for (uint64_t i = 0; i < num_pages; ++i) {
    Page page{};
    if (!reader.Get(&page.group, 1) || !reader.Get(&page.page, 1)) return Truncated();
    if (page.group >= geometry.groups.size()) {
      return InvalidInput("step dump: KV group " + std::to_string(page.group) + ", the model has " +
                          std::to_string(geometry.groups.size()));
    }
    const KvGroupGeometry& group = geometry.groups[page.group];
    if (!reader.Get(page.bytes, group.page_bytes())) return Truncated();
    const uint64_t superblocks = page.page / group.pages_per_superblock + 1;
    step.range_bytes_[page.group] =
        std::max(step.range_bytes_[page.group], superblocks * group.superblock_bytes);
    step.pages_.push_back(std::move(page));
  }
  return step;
}

void LoadedStep::RestorePages(std::byte* const* kv_base) const {
  for (const Page& page : pages_) {
    const KvGroupGeometry& group = geometry_.groups[page.group];
    const std::byte* from = page.bytes.data();
    ForEachPart(group, page.page, [&](uint64_t offset) {
      std::memcpy(kv_base[page.group] + offset, from, group.part_page_bytes);
      from += group.part_page_bytes;
    });
  }
}

std::vector<std::byte> LoadedStep::ReadPages(std::byte* const* kv_base) const {
  std::vector<std::byte> out;
  for (const Page& page : pages_) {
    const KvGroupGeometry& group = geometry_.groups[page.group];
    ForEachPart(group, page.page, [&](uint64_t offset) {
      Put(out, kv_base[page.group] + offset, group.part_page_bytes);
    });
  }
  return out;
}

FrameView LoadedStep::View() const {
  FrameView view;
  view.head = &head_;
  view.rows = rows_.data();
  view.slots = slots_.data();
  view.segments = segments_.data();
  view.dense = dense_.data();
  view.max_slots = max_slots_;
  view.max_pages = max_pages_;
  return view;
}

}  // namespace kvrm
