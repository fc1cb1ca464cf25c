// What the tests of pager and frame share: small geometries and a pager that is checked after each
// call. Test code only.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "pager/pager.h"

namespace kvrm::testing {

// Pages of 16 tokens and 3 parts of 64 bytes, 8 in a superblock of 2 KiB.
inline KvGroupGeometry TinyGroup() {
  KvGroupGeometry group;
  group.page_tokens = 16;
  group.num_parts = 3;
  group.part_page_bytes = 64;
  group.pages_per_superblock = 8;
  group.superblock_bytes = 2048;
  return group;
}

// `superblocks` of 8 pages, the null page among them.
inline PagerConfig TinyConfig(uint32_t superblocks) {
  PagerConfig config;
  config.geometry.groups = {TinyGroup()};
  config.kv_bytes = superblocks * TinyGroup().superblock_bytes;
  config.max_slots = 8;
  config.max_seq_tokens = 1024;
  return config;
}

inline std::unique_ptr<Pager> MakePager(const PagerConfig& config) {
  auto pager = Pager::Create(config);
  KVRM_CHECK(pager.ok(), "the test's configuration is sound");
  return std::move(pager).value();
}

// PageId values of group 0.
inline std::vector<uint32_t> PagesOf(const Pager& pager, SeqId seq) {
  std::vector<uint32_t> pages;
  for (PageId page : pager.pages(seq, 0)) pages.push_back(page.value);
  return pages;
}

// Opens a sequence and reserves its first tokens.
inline SeqId OpenWith(Pager& pager, uint32_t num_tokens, uint32_t hint_tokens = 0) {
  const SeqId seq = *pager.Open();
  EXPECT_EQ(pager.Reserve(seq, num_tokens, hint_tokens).status, ReserveStatus::kOk);
  return seq;
}

// Commits the open step and completes it at once, as a synchronous executor does.
inline std::vector<Delta> CommitAndComplete(Pager& pager) {
  const uint64_t epoch = pager.Snapshot().epoch + 1;
  const std::span<const Delta> deltas = pager.Commit(epoch);
  pager.StepDone(epoch);
  return {deltas.begin(), deltas.end()};
}

inline void ExpectSound(const Pager& pager) {
  for (const std::string& violation : Validate(pager.Snapshot())) ADD_FAILURE() << violation;
}

}  // namespace kvrm::testing
