// The laws PAGER-1..9 on a snapshot. Trusts nothing that can be counted again.
#include <bit>
#include <string>

#include "pager/free_map.h"
#include "pager/pager.h"

namespace kvrm {
namespace {

// Collects the violations of one KV group. One function a law, in the order of their numbers.
class GroupValidator {
 public:
  GroupValidator(const PagerSnapshot& snapshot, uint32_t index, std::vector<std::string>& out)
      : snapshot_(snapshot), group_(snapshot.groups[index]), index_(index), out_(out) {}

  void Run() {
    if (!CountPages()) return;
    CheckBooks();
    CheckReferences();
    CheckNullPage();
    CheckStates();
    CheckTables();
    CheckBins();
    CheckSoftRuns();
    CheckIndexed();
  }

 private:
  void Report(const char* law, const std::string& what) {
    out_.push_back(std::string(law) + " group " + std::to_string(index_) + ": " + what);
  }

  bool IsFree(uint32_t page) const {
    const auto& superblock = group_.superblocks[page / group_.pages_per_superblock];
    return (superblock.free_map >> (page % group_.pages_per_superblock) & 1) != 0;
  }

  bool IsTaken(uint32_t page) const {
    return group_.superblocks[page / group_.pages_per_superblock].taken;
  }

  // Counts each page's table entries and stays in limbo. False when the sizes do not fit together,
  // so that nothing else can be looked at.
  bool CountPages() {
    const size_t pages = group_.superblocks.size() * group_.pages_per_superblock;
    if (group_.pages_per_superblock == 0 || group_.pages_per_superblock > kFreeMapBits ||
        group_.page_tokens == 0 || pages == 0 || group_.reference_counts.size() != pages) {
      Report("PAGER-1", std::to_string(group_.reference_counts.size()) + " reference counts for " +
                            std::to_string(pages) + " pages");
      return false;
    }
    named_.assign(pages, 0);
    soft_.assign(pages, 0);
    in_limbo_.assign(pages, 0);
    in_cache_.assign(pages, 0);
    in_index_.assign(pages, 0);
    for (const auto& sequence : group_.sequences) {
      for (uint32_t page : sequence.pages) {
        if (page == kNullPage.value && sequence.lossy && group_.window_tokens == 0) {
          continue;  // a hole
        }
        if (page < pages) {
          ++named_[page];
        } else {
          Report("PAGER-4", Name(sequence) + " names page " + std::to_string(page) + " of " +
                                std::to_string(pages));
        }
      }
    }
    for (const auto& sequence : group_.sequences) {
      for (uint32_t i = 0; i < sequence.soft_pages; ++i) {
        CountPage("a soft run", sequence.soft_page + i, soft_);
      }
    }
    for (const auto& limbo : group_.limbo) CountPage("limbo", limbo.page, in_limbo_);
    for (const uint32_t page : group_.cached) CountPage("the cache", page, in_cache_);
    for (const auto& entry : group_.indexed) CountPage("the prefix index", entry.page, in_index_);
    return true;
  }

  void CountPage(const char* where, uint32_t page, std::vector<uint32_t>& counts) {
    if (page < counts.size()) {
      ++counts[page];
    } else {
      Report("PAGER-4", std::string(where) + " holds page " + std::to_string(page) + " of " +
                            std::to_string(counts.size()));
    }
  }

  void CheckBooks() {
    uint64_t free = 0, in_use = 0, taken = 0, soft = 0;
    for (const auto& superblock : group_.superblocks) {
      taken += superblock.taken ? 1 : 0;
      free += static_cast<uint64_t>(std::popcount(superblock.free_map));
    }
    for (uint32_t count : group_.reference_counts) in_use += count > 0 ? 1 : 0;
    for (const auto& sequence : group_.sequences) soft += sequence.soft_pages;
    const PagerBooks& books = group_.books;
    CheckCount("total", books.total, taken * group_.pages_per_superblock);
    CheckCount("superblocks", books.superblocks, taken);
    CheckCount("free", books.free, free);
    CheckCount("in use", books.in_use, in_use);
    CheckCount("soft", books.soft, soft);
    CheckCount("limbo", books.limbo, group_.limbo.size());
    CheckCount("cached", books.cached, group_.cached.size());
    const uint64_t sum =
        books.free + books.cached + books.in_use + books.soft + books.limbo + books.in_flight;
    CheckCount("free + cached + in use + soft + limbo + in flight", sum, books.total);
  }

  void CheckCount(const char* name, uint64_t booked, uint64_t counted) {
    if (booked == counted) return;
    Report("PAGER-1", std::string(name) + " is " + std::to_string(booked) + ", counted " +
                          std::to_string(counted));
  }

  void CheckReferences() {
    for (uint32_t page = 0; page < named_.size(); ++page) {
      const uint32_t pins = page == kNullPage.value ? 1 : 0;
      if (page == kNullPage.value && named_[page] > 0) continue;  // PAGER-3 tells
      if (group_.reference_counts[page] == named_[page] + pins) continue;
      Report("PAGER-2", "page " + std::to_string(page) + " has " +
                            std::to_string(group_.reference_counts[page]) + " references, " +
                            std::to_string(named_[page]) + " table entries and " +
                            std::to_string(pins) + " pins");
    }
  }

  void CheckNullPage() {
    if (named_[kNullPage.value] > 0) Report("PAGER-3", "a sequence names the null page");
    if (in_limbo_[kNullPage.value] > 0) Report("PAGER-3", "the null page is in limbo");
    if (IsFree(kNullPage.value)) Report("PAGER-3", "the null page is free");
  }

  void CheckStates() {
    for (uint32_t page = 1; page < named_.size(); ++page) {
      const uint32_t states = (IsFree(page) ? 1 : 0) + (group_.reference_counts[page] > 0 ? 1 : 0) +
                              in_limbo_[page] + in_cache_[page] + soft_[page];
      if (states == (IsTaken(page) ? 1 : 0)) continue;
      Report("PAGER-4", "page " + std::to_string(page) + (IsTaken(page) ? "" : ", not taken,") +
                            " is" + (IsFree(page) ? " free," : "") + " referenced " +
                            std::to_string(group_.reference_counts[page]) + " times, in limbo " +
                            std::to_string(in_limbo_[page]) + " times, cached " +
                            std::to_string(in_cache_[page]) + " times, soft " +
                            std::to_string(soft_[page]) + " times");
    }
    for (size_t s = 0; s < group_.superblocks.size(); ++s) {
      if ((group_.superblocks[s].free_map & ~UsableMask()) == 0) continue;
      Report("PAGER-4", "superblock " + std::to_string(s) + " has free pages past its last");
    }
    for (const auto& limbo : group_.limbo) {
      if (limbo.epoch > snapshot_.completed_epoch && limbo.epoch <= snapshot_.epoch + 1) continue;
      Report("PAGER-4", "page " + std::to_string(limbo.page) + " is in limbo for epoch " +
                            std::to_string(limbo.epoch) + " at epoch " +
                            std::to_string(snapshot_.epoch) + ", completed " +
                            std::to_string(snapshot_.completed_epoch));
    }
  }

  void CheckTables() {
    for (const auto& sequence : group_.sequences) {
      const uint64_t tokens = sequence.num_tokens;
      const uint64_t end = (tokens + group_.page_tokens - 1) / group_.page_tokens;
      if (sequence.first_page + sequence.pages.size() != end) {
        Report("PAGER-6", Name(sequence) + " has " + std::to_string(tokens) + " tokens on " +
                              std::to_string(sequence.pages.size()) + " pages from " +
                              std::to_string(sequence.first_page) + " on");
      }
      if (!sequence.pages.empty() && sequence.pages.back() == kNullPage.value) {
        Report("PAGER-6", Name(sequence) + " ends with a hole");
      }
      const uint64_t window = group_.window_tokens;
      const uint64_t first_seen = window == 0 || tokens < window ? 0 : tokens + 1 - window;
      if (sequence.first_page > first_seen / group_.page_tokens) {
        Report("PAGER-6", Name(sequence) + " begins at page " +
                              std::to_string(sequence.first_page) + ", its next row sees token " +
                              std::to_string(first_seen));
      }
    }
  }

  void CheckBins() {
    for (size_t s = 0; s < group_.superblocks.size(); ++s) {
      const auto& superblock = group_.superblocks[s];
      if (!superblock.taken) continue;
      const uint32_t run = LongestFreeRun(superblock.free_map);
      const auto used = static_cast<uint32_t>(std::popcount(~superblock.free_map & UsableMask()));
      if (superblock.longest_free_run == run && superblock.pages_in_use == used) continue;
      Report("PAGER-7", "superblock " + std::to_string(s) + " is in bin (" +
                            std::to_string(superblock.longest_free_run) + ", " +
                            std::to_string(superblock.pages_in_use) + "), its map says (" +
                            std::to_string(run) + ", " + std::to_string(used) + ")");
    }
  }

  void CheckSoftRuns() {
    const uint32_t per = group_.pages_per_superblock;
    for (const auto& sequence : group_.sequences) {
      if (sequence.soft_pages == 0) continue;
      const uint32_t begin = sequence.soft_page, end = begin + sequence.soft_pages;
      const std::string run = Name(sequence) + "'s soft run of " +
                              std::to_string(sequence.soft_pages) + " pages from " +
                              std::to_string(begin) + " on";
      if (sequence.soft_pages >= kSoftRunPages) Report("PAGER-8", run + " is too long");
      if (begin / per != (end - 1) / per) Report("PAGER-8", run + " leaves its superblock");
      if (snapshot_.in_step) continue;
      const bool follows =
          !sequence.pages.empty() && begin % per != 0 && sequence.pages.back() == begin - 1;
      if (!follows) Report("PAGER-8", run + " does not follow its last page");
    }
  }

  void CheckIndexed() {
    for (const uint32_t page : group_.cached) {
      if (page >= in_index_.size() || in_index_[page] > 0) continue;
      Report("PAGER-9", "page " + std::to_string(page) + " is cached, but not indexed");
    }
    for (const auto& entry : group_.indexed) {
      if (entry.page >= in_index_.size()) continue;
      if (in_index_[entry.page] > 1) {
        Report("PAGER-9", "page " + std::to_string(entry.page) + " is indexed more than once");
      }
      if (IsFree(entry.page) || entry.page == kNullPage.value) {
        Report("PAGER-9", "page " + std::to_string(entry.page) + " is indexed without contents");
      }
      if (entry.node_page == entry.page) continue;
      Report("PAGER-9", "page " + std::to_string(entry.page) + " is indexed by node " +
                            std::to_string(entry.node) + ", which names page " +
                            std::to_string(entry.node_page));
    }
  }

  uint64_t UsableMask() const { return MaskOf({0, group_.pages_per_superblock}); }

  static std::string Name(const PagerSnapshot::Sequence& sequence) {
    return "sequence " + std::to_string(sequence.seq_id);
  }

  const PagerSnapshot& snapshot_;
  const PagerSnapshot::Group& group_;
  const uint32_t index_;
  std::vector<std::string>& out_;
  std::vector<uint32_t> named_;     // [pages] table entries that name it
  std::vector<uint32_t> soft_;      // [pages] and how often it is there
  std::vector<uint32_t> in_limbo_;  // [pages]
  std::vector<uint32_t> in_cache_;  // [pages]
  std::vector<uint32_t> in_index_;  // [pages]
};

}  // namespace

std::vector<std::string> Validate(const PagerSnapshot& snapshot) {
  std::vector<std::string> violations;
  uint64_t superblock_bytes = 0;
  for (uint32_t g = 0; g < snapshot.groups.size(); ++g) {
    GroupValidator(snapshot, g, violations).Run();
    superblock_bytes += snapshot.groups[g].books.superblock_bytes;
  }
  if (snapshot.populated_bytes > snapshot.kv_bytes || superblock_bytes > snapshot.populated_bytes) {
    violations.push_back("PAGER-5: superblocks take " + std::to_string(superblock_bytes) + " of " +
                         std::to_string(snapshot.populated_bytes) +
                         " bytes populated, kv_bytes is " + std::to_string(snapshot.kv_bytes));
  }
  return violations;
}

}  // namespace kvrm
