// A small runtime for tests of the C ABI: one full group, or a full and a sliding one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kvrm/kvrm.h"

namespace kvrm {

// 2 parts of 512 bytes a page of 16 tokens: token_bytes 32. 15 usable pages a group.
struct RuntimeConfig {
  explicit RuntimeConfig(bool sliding = false, bool windows = false) {
    for (int g = 0; g < 2; ++g) {
      groups[g].size = sizeof groups[g];
      groups[g].num_parts = 2;
      groups[g].part_page_bytes = 512;
      groups[g].superblock_bytes = 16 * 1024;
      groups[g].pages_per_superblock = 16;
    }
    groups[1].kind = KVRM_GROUP_SLIDING;
    groups[1].window_tokens = 24;
    config.size = sizeof config;
    config.num_groups = sliding ? 2 : 1;
    config.groups = groups;
    config.kv_bytes = (sliding ? 2 : 1) * 16 * 1024;
    config.max_slots = 4;
    config.max_seq_tokens = 128;
    config.max_step_tokens = 64;
    config.flags = KVRM_CONFIG_POISON_FREED | (windows ? KVRM_CONFIG_WINDOWS : 0);
  }
  RuntimeConfig(const RuntimeConfig&) = delete;

  kvrm_group_config groups[2] = {};
  kvrm_config config = {};
};

class TestRuntime {
 public:
  explicit TestRuntime(bool sliding = false, bool windows = false) {
    const RuntimeConfig made(sliding, windows);
    Create(made.config);
  }
  explicit TestRuntime(const kvrm_config& config) { Create(config); }
  ~TestRuntime() { kvrm_destroy(runtime_); }
  TestRuntime(const TestRuntime&) = delete;

  operator kvrm_runtime*() const { return runtime_; }  // NOLINT: stands for the handle
  std::string error() const { return kvrm_last_error(runtime_); }
  uint64_t epoch() const { return epoch_; }

  void Begin() { ASSERT_EQ(kvrm_begin_step(runtime_), KVRM_OK) << error(); }
  kvrm_seq Open() {
    kvrm_seq seq = 0;
    EXPECT_EQ(kvrm_open(runtime_, &seq), KVRM_OK) << error();
    return seq;
  }
  kvrm_status Reserve(kvrm_seq seq, uint32_t num_tokens) {
    return kvrm_reserve(runtime_, seq, num_tokens, 0, nullptr);
  }
  kvrm_sequence_info Info(kvrm_seq seq) const {
    kvrm_sequence_info info = {};
    info.size = sizeof info;
    EXPECT_EQ(kvrm_get_sequence(runtime_, seq, &info), KVRM_OK) << error();
    return info;
  }
  // Rows for all new places of `seq`.
  void AddRows(kvrm_seq seq, std::vector<kvrm_row_input>& rows) const {
    const kvrm_sequence_info info = Info(seq);
    for (uint32_t place = info.new_from; place < info.num_tokens; ++place) {
      rows.push_back(Row(seq, place));
    }
  }
  static kvrm_row_input Row(kvrm_seq seq, uint32_t place, uint8_t flags = 0) {
    kvrm_row_input row = {};
    row.seq = seq;
    row.token = static_cast<int32_t>(100 + place);
    row.position = row.kv_index = place;
    row.flags = flags;
    row.mask_id = KVRM_NONE;
    row.lse_target = -1;
    return row;
  }
  kvrm_status Commit(const std::vector<kvrm_row_input>& rows, kvrm_frame* frame = nullptr) {
    const kvrm_status status =
        kvrm_commit(runtime_, epoch_ + 1, rows.data(), static_cast<uint32_t>(rows.size()), frame);
    if (status == KVRM_OK) ++epoch_;
    return status;
  }
  // Page copies of the last epoch, carried out; returns how many.
  uint32_t RunPageCopies() {
    const kvrm_train* trains = nullptr;
    uint32_t num_trains = 0;
    EXPECT_EQ(kvrm_get_page_copies(runtime_, &trains, &num_trains), KVRM_OK) << error();
    EXPECT_EQ(kvrm_run_trains(runtime_, trains, num_trains), KVRM_OK) << error();
    return num_trains;
  }
  // Commits the step with rows for all that `seqs` gained, and completes it.
  void Finish(const std::vector<kvrm_seq>& seqs) {
    std::vector<kvrm_row_input> rows;
    for (const kvrm_seq seq : seqs) AddRows(seq, rows);
    ASSERT_EQ(Commit(rows), KVRM_OK) << error();
    RunPageCopies();
    ASSERT_EQ(kvrm_step_done(runtime_, epoch_), KVRM_OK) << error();
  }
  // A sequence of `num_tokens` places, committed and completed.
  kvrm_seq Grown(uint32_t num_tokens) {
    Begin();
    const kvrm_seq seq = Open();
    EXPECT_EQ(Reserve(seq, num_tokens), KVRM_OK) << error();
    Finish({seq});
    return seq;
  }
  kvrm_books Books(uint32_t group = 0) const {
    kvrm_books books = {};
    books.size = sizeof books;
    EXPECT_EQ(kvrm_get_books(runtime_, group, &books), KVRM_OK) << error();
    return books;
  }
  // All violations, "" when sound.
  std::string Violations() const {
    char text[1024] = "";
    uint32_t violations = 0;
    EXPECT_EQ(kvrm_validate(runtime_, text, sizeof text, nullptr, &violations), KVRM_OK) << error();
    EXPECT_EQ(violations == 0, text[0] == 0);
    return text;
  }

 private:
  void Create(const kvrm_config& config) {
    EXPECT_EQ(kvrm_create(&config, &runtime_), KVRM_OK) << kvrm_last_error(nullptr);
  }

  kvrm_runtime* runtime_ = nullptr;
  uint64_t epoch_ = 0;
};

}  // namespace kvrm
