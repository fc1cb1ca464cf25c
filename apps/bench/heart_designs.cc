// The two designs that the churn compares.
#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "bench/heart_churn.h"
#include "pager/pager.h"

namespace kvrm::cli {
namespace {

void SetPage(std::vector<uint64_t>& maps, PageId page) {
  maps[page.value / kHeartSuperblockPages] |= uint64_t{1} << page.value % kHeartSuperblockPages;
}

class PagerDesign : public KvDesign {
 public:
  explicit PagerDesign(const Limits& limits)
      : shares_prefixes_(limits.shares_prefixes), seqs_(limits.max_seqs + 1) {
    PagerConfig config;
    config.prefix_index = limits.shares_prefixes;
    config.geometry.groups = {HeartGroup()};
    // A slot that a step has closed is free at its commit.
    config.max_slots = limits.max_seqs + 1;
    config.max_seq_tokens = limits.max_seq_tokens;
    config.kv_bytes = HeartKvBytes(limits.pages);
    pager_ = std::move(Pager::Create(config)).value();
  }

  std::string name() const override { return shares_prefixes_ ? "kvrm, prefix index" : "kvrm"; }
  void BeginStep() override { pager_->BeginStep(); }

  uint32_t Join(std::span<const TokenId> prompt) override {
    const uint32_t handle = Open();
    const auto num_tokens = static_cast<uint32_t>(prompt.size());
    if (shares_prefixes_) {
      const uint32_t found = pager_->MatchPrefix(kBenchSalt, prompt);
      KVRM_CHECK(pager_->AdoptPrefix(seqs_[handle], kBenchSalt, prompt, found).status ==
                     ReserveStatus::kOk,
                 "bench: what matches can be adopted");
      found_tokens_ += found;
    }
    Reserve(handle, num_tokens, num_tokens);
    return handle;
  }

  uint32_t Fork(uint32_t source) override {
    const uint32_t handle = Open();
    const uint32_t num_tokens = pager_->num_tokens(seqs_[source]);
    KVRM_CHECK(pager_->Alias(seqs_[handle], seqs_[source], num_tokens).status == ReserveStatus::kOk,
               "bench: a fork's source is there");
    return handle;
  }

  void Grow(uint32_t seq, uint32_t num_tokens) override { Reserve(seq, num_tokens, 0); }
  void End(uint32_t seq) override { pager_->Close(seqs_[seq]); }

  void EndStep() override {
    pager_->Commit(++epoch_);
    pager_->StepDone(epoch_);
    pager_->Maintain();
  }

  void Remember(uint32_t seq, std::span<const TokenId> prompt) override {
    if (shares_prefixes_) pager_->IndexPrefix(seqs_[seq], kBenchSalt, prompt);
  }

  uint64_t pages_in_use() const override { return pager_->books(0).in_use - 1; }
  uint64_t copies() const override { return pager_->counters().copy_on_write; }
  uint64_t found_tokens() const override { return found_tokens_; }
  std::span<const PageId> pages(uint32_t seq) const override {
    return pager_->pages(seqs_[seq], 0);
  }
  std::vector<std::string> Violations() const override { return Validate(pager_->Snapshot()); }

  // Soft pages count: they are anybody's who needs them more.
  std::vector<uint64_t> FreeMaps() const override {
    const PagerSnapshot snapshot = pager_->Snapshot();
    const PagerSnapshot::Group& group = snapshot.groups[0];
    std::vector<uint64_t> maps(group.superblocks.size());
    for (size_t i = 0; i < maps.size(); ++i) maps[i] = group.superblocks[i].free_map;
    for (const PagerSnapshot::Sequence& sequence : group.sequences) {
      for (uint32_t i = 0; i < sequence.soft_pages; ++i) {
        SetPage(maps, PageId{sequence.soft_page + i});
      }
    }
    return maps;
  }

 private:
  uint32_t Open() {
    const std::optional<SeqId> seq = pager_->Open();
    KVRM_CHECK(seq.has_value(), "bench: a slot is free");
    const uint32_t handle = pager_->slot(*seq).value;
    seqs_[handle] = *seq;
    return handle;
  }

  void Reserve(uint32_t seq, uint32_t num_tokens, uint32_t hint_tokens) {
    KVRM_CHECK(pager_->Reserve(seqs_[seq], num_tokens, hint_tokens).status == ReserveStatus::kOk,
               "bench: there is room");
  }

  const bool shares_prefixes_;
  std::unique_ptr<Pager> pager_;
  std::vector<SeqId> seqs_;  // by slot
  uint64_t epoch_ = 0;
  uint64_t found_tokens_ = 0;
};

// Pages are 1 .. limits.pages. It has no transaction, no limbo and no rollback, and it believes a
// hash: what it costs is the least that such a design can cost.
class SinglePageDesign : public KvDesign {
 public:
  explicit SinglePageDesign(const Limits& limits)
      : shares_prefixes_(limits.shares_prefixes),
        references_(limits.pages + 1),
        hashes_(limits.pages + 1),
        forgettable_since_(limits.pages + 1),
        tables_(limits.max_seqs) {
    for (uint64_t page = limits.pages; page > 0; --page) {
      free_pages_.push_back(PageId{static_cast<uint32_t>(page)});
    }
    for (uint32_t handle = limits.max_seqs; handle-- > 0;) free_handles_.push_back(handle);
    for (std::vector<PageId>& table : tables_) {
      table.reserve(limits.max_seq_tokens / kHeartPageTokens + 1);
    }
  }

  std::string name() const override {
    return shares_prefixes_ ? "single pages, block hashes" : "single pages";
  }
  void BeginStep() override {}
  void EndStep() override {}

  uint32_t Join(std::span<const TokenId> prompt) override {
    const uint32_t handle = Open();
    if (shares_prefixes_) ShareKnownPages(tables_[handle], prompt);
    while (tables_[handle].size() * kHeartPageTokens < prompt.size()) {
      tables_[handle].push_back(Take());
    }
    return handle;
  }

  uint32_t Fork(uint32_t source) override {
    const uint32_t handle = Open();
    for (PageId page : tables_[source]) {
      ++references_[page.value];
      tables_[handle].push_back(page);
    }
    return handle;
  }

  void Grow(uint32_t seq, uint32_t num_tokens) override {
    std::vector<PageId>& table = tables_[seq];
    if (num_tokens > table.size() * kHeartPageTokens) {
      table.push_back(Take());
    } else if (references_[table.back().value] > 1) {
      --references_[table.back().value];
      table.back() = Take();
      ++copies_;
    }
  }

  // From the end, so that the pages come back in their order.
  void End(uint32_t seq) override {
    std::vector<PageId>& table = tables_[seq];
    for (; !table.empty(); table.pop_back()) {
      if (--references_[table.back().value] == 0) GiveBack(table.back());
    }
    free_handles_.push_back(seq);
  }

  void Remember(uint32_t seq, std::span<const TokenId> prompt) override {
    if (!shares_prefixes_) return;
    uint64_t hash = 0;
    for (size_t i = 0; (i + 1) * kHeartPageTokens <= prompt.size(); ++i) {
      hash = HashOfPage(hash, prompt.subspan(i * kHeartPageTokens, kHeartPageTokens));
      const PageId page = tables_[seq][i];
      if (known_pages_.try_emplace(hash, page).second) hashes_[page.value] = hash;
    }
  }

  uint64_t pages_in_use() const override { return in_use_; }
  uint64_t copies() const override { return copies_; }
  uint64_t found_tokens() const override { return found_tokens_; }
  std::span<const PageId> pages(uint32_t seq) const override { return tables_[seq]; }

  std::vector<uint64_t> FreeMaps() const override {
    std::vector<uint64_t> maps(references_.size() / kHeartSuperblockPages + 1);
    for (PageId page : free_pages_) SetPage(maps, page);
    return maps;
  }

  std::vector<std::string> Violations() const override {
    std::vector<uint32_t> named(references_.size());
    for (const std::vector<PageId>& table : tables_) {
      for (PageId page : table) ++named[page.value];
    }
    std::vector<std::string> violations;
    if (named != references_) violations.push_back("a reference count is not what tables name");
    if (std::any_of(free_pages_.begin(), free_pages_.end(), [&](PageId page) {
          return named[page.value] > 0 || hashes_[page.value] != 0;
        })) {
      violations.push_back("a page is free, and named or known");
    }
    uint64_t in_use = 0, known = 0;
    for (size_t page = 1; page < named.size(); ++page) {
      if (named[page] > 0) {
        ++in_use;
      } else if (hashes_[page] != 0) {
        ++known;
      }
    }
    if (in_use != in_use_ || in_use + known + free_pages_.size() != named.size() - 1) {
      violations.push_back("a page is lost");
    }
    return violations;
  }

 private:
  struct Forgettable {
    PageId page;
    uint64_t since;
  };

  uint32_t Open() {
    KVRM_CHECK(!free_handles_.empty(), "bench: a handle is free");
    const uint32_t handle = free_handles_.back();
    free_handles_.pop_back();
    return handle;
  }

  // Never 0, which says that a page is not known.
  static uint64_t HashOfPage(uint64_t hash, std::span<const TokenId> tokens) {
    for (TokenId token : tokens) {
      hash = (hash ^ static_cast<uint64_t>(token)) * 0x9E37'79B9'7F4A'7C15u;
      hash ^= hash >> 32;
    }
    return hash | 1;
  }

  void ShareKnownPages(std::vector<PageId>& table, std::span<const TokenId> prompt) {
    uint64_t hash = 0;
    for (size_t i = 0; (i + 1) * kHeartPageTokens <= prompt.size(); ++i) {
      hash = HashOfPage(hash, prompt.subspan(i * kHeartPageTokens, kHeartPageTokens));
      const auto known = known_pages_.find(hash);
      if (known == known_pages_.end()) return;
      if (references_[known->second.value]++ == 0) ++in_use_;
      table.push_back(known->second);
      found_tokens_ += kHeartPageTokens;
    }
  }

  void GiveBack(PageId page) {
    --in_use_;
    if (hashes_[page.value] == 0) {
      free_pages_.push_back(page);
      return;
    }
    forgettable_since_[page.value] = ++clock_;
    forgettable_.push_back({page, clock_});
  }

  PageId Take() {
    while (free_pages_.empty()) ForgetOldest();
    const PageId page = free_pages_.back();
    free_pages_.pop_back();
    references_[page.value] = 1;
    ++in_use_;
    return page;
  }

  // Entries whose page was found again since are stale, and are skipped when their turn comes.
  void ForgetOldest() {
    KVRM_CHECK(!forgettable_.empty(), "bench: there is room");
    const auto [page, since] = forgettable_.front();
    forgettable_.pop_front();
    if (references_[page.value] > 0 || forgettable_since_[page.value] != since) return;
    known_pages_.erase(hashes_[page.value]);
    hashes_[page.value] = 0;
    free_pages_.push_back(page);
  }

  const bool shares_prefixes_;
  std::vector<PageId> free_pages_;  // the next to be taken stands last
  std::vector<uint32_t> references_;
  std::vector<uint64_t> hashes_;             // [page] 0: not known
  std::vector<uint64_t> forgettable_since_;  // [page] clock_ when its last reference fell
  std::unordered_map<uint64_t, PageId> known_pages_;
  std::deque<Forgettable> forgettable_;  // known and unreferenced, the oldest first
  uint64_t clock_ = 0;
  std::vector<std::vector<PageId>> tables_;
  std::vector<uint32_t> free_handles_;
  uint64_t in_use_ = 0;
  uint64_t copies_ = 0;
  uint64_t found_tokens_ = 0;
};

}  // namespace

std::unique_ptr<KvDesign> MakePagerDesign(const KvDesign::Limits& limits) {
  return std::make_unique<PagerDesign>(limits);
}

std::unique_ptr<KvDesign> MakeSinglePageDesign(const KvDesign::Limits& limits) {
  return std::make_unique<SinglePageDesign>(limits);
}

}  // namespace kvrm::cli
