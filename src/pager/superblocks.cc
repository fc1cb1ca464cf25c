// The page pool's superblocks: absent, spare or taken, in any order; spare and taken ones with
// their memory, or cold.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "pager/page_pool.h"

namespace kvrm {

SuperblockId PagePool::TakeSuperblock() {
  if (spares_.empty()) {
    MakeSpare();
    ++taken_cold_;
    if (!options_.lazy_memory) cold_.push_back({spares_.back()});
  }
  const SuperblockId id = spares_.back();
  spares_.pop_back();
  const auto cold = FindCold(id);
  if (cold != cold_.end() && std::exchange(cold->ahead, false)) ++taken_cold_;
  is_taken_[id.value] = 1;
  ++num_taken_;
  const uint64_t map = MaskOf({0, geometry_.pages_per_superblock});
  free_maps_[id.value] = map;
  bin_keys_[id.value] = KeyOf(map);
  bins_.Insert(id, bin_keys_[id.value]);
  free_pages_ += geometry_.pages_per_superblock;
  for (uint32_t i = 0; i < geometry_.pages_per_superblock; ++i) {
    if (PageAt(id, i) != kNullPage) PoisonFreed(PageAt(id, i));
  }
  return id;
}

void PagePool::UntakeSuperblock(SuperblockId id) {
  KVRM_CHECK(IsEmpty(id), "PAGER-4: a superblock is returned while its pages are used");
  bins_.Remove(id, bin_keys_[id.value]);
  free_maps_[id.value] = 0;
  free_pages_ -= geometry_.pages_per_superblock;
  is_taken_[id.value] = 0;
  --num_taken_;
  spares_.push_back(id);
}

// Those that there are come first.
SuperblockId PagePool::MakeSpare() {
  KVRM_CHECK(!absent_.empty(), "PAGER-5: the range has no superblock left");
  const SuperblockId id = absent_.back();
  absent_.pop_back();
  spares_.insert(spares_.begin(), id);
  ++populated_;
  return id;
}

void PagePool::PopulateSpare() {
  const SuperblockId id = MakeSpare();
  if (options_.lazy_memory) return;
  cold_.push_back({.id = id, .ahead = true});
  Populate(cold_.end() - 1, kPopulatedAtOnce);
}

bool PagePool::PopulateCold() {
  const auto cold =
      std::find_if(cold_.rbegin(), cold_.rend(), [](const Cold& c) { return !c.ahead; });
  if (cold == cold_.rend()) return false;
  Populate(std::prev(cold.base()), geometry_.superblock_bytes);
  return true;
}

bool PagePool::PopulateMoreOfSpare() {
  const auto cold = std::find_if(cold_.begin(), cold_.end(), [](const Cold& c) { return c.ahead; });
  if (cold == cold_.end()) return false;
  Populate(cold, kPopulatedAtOnce);
  return true;
}

std::vector<PagePool::Cold>::iterator PagePool::FindCold(SuperblockId id) {
  return std::find_if(cold_.begin(), cold_.end(), [&](const Cold& cold) { return cold.id == id; });
}

void PagePool::Populate(std::vector<Cold>::iterator cold, uint64_t most_bytes) {
  const uint64_t bytes = std::min(most_bytes, geometry_.superblock_bytes - cold->ready_bytes);
  range_.Populate(cold->id.value * geometry_.superblock_bytes + cold->ready_bytes, bytes);
  cold->ready_bytes += bytes;
  if (cold->ready_bytes == geometry_.superblock_bytes) cold_.erase(cold);
}

uint64_t PagePool::cold_bytes() const {
  uint64_t bytes = 0;
  for (const Cold& cold : cold_) bytes += geometry_.superblock_bytes - cold.ready_bytes;
  return bytes;
}

bool PagePool::GiveBackSpare() {
  if (spares_.empty()) return false;
  Discard(spares_.front());  // the one that would be used last
  spares_.erase(spares_.begin());
  return true;
}

bool PagePool::GiveBackEmpty() {
  const SuperblockId* empty = bins_.FindEmpty(geometry_.pages_per_superblock);
  if (empty == nullptr) return false;
  UntakeSuperblock(SuperblockId{*empty});
  Discard(spares_.back());
  spares_.pop_back();
  return true;
}

void PagePool::ReturnMemory(PageRun run) {
  const uint64_t offset = geometry_.PageOffset(run.page);
  if (run.count == geometry_.pages_per_superblock) {  // one piece instead of one a part
    return range_.Discard(offset, geometry_.superblock_bytes);
  }
  for (uint32_t part = 0; part < geometry_.num_parts; ++part) {
    range_.Discard(offset + part * geometry_.part_stride_bytes(),
                   run.count * geometry_.part_page_bytes);
  }
}

void PagePool::Discard(SuperblockId id) {
  range_.Discard(id.value * geometry_.superblock_bytes, geometry_.superblock_bytes);
  std::erase_if(cold_, [&](const Cold& cold) { return cold.id == id; });
  absent_.push_back(id);
  ++given_back_;
}

bool PagePool::RunsShort() const {
  const auto is_cold = [&](SuperblockId id) {
    return std::any_of(cold_.begin(), cold_.end(), [&](const Cold& cold) { return cold.id == id; });
  };
  const auto first_cold = std::find_if(spares_.rbegin(), spares_.rend(), is_cold);
  const auto ready = static_cast<uint64_t>(first_cold - spares_.rbegin());
  return free_pages_ + ready * geometry_.pages_per_superblock < pages_taken_ - taken_before_step_;
}

bool PagePool::NeedsSpare(uint64_t pages) const {
  const uint64_t ready = free_pages_ + spares_.size() * geometry_.pages_per_superblock;
  return !absent_.empty() && (ready * 2 < geometry_.pages_per_superblock || ready < pages);
}

}  // namespace kvrm
