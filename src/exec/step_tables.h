// What a step's frame means to the kernels: row indices, write offsets, attention tasks. A pure
// function of the frame, made once a step and shared by all layers. All storage is sized at start;
// Build does not allocate.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/kv_view.h"
#include "exec/kv_width.h"
#include "frame/frame.h"
#include "ops/op_args.h"

namespace kvrm {

struct StepTablesConfig {
  KvGeometry geometry;
  uint32_t max_rows = 0;
  uint32_t max_logits = 0;
  uint32_t max_slots = 0;
  uint32_t max_seq_tokens = 0;
  KvWidth kv_width = KvWidth::kLive;
  // The KV group of the layer whose attention the rows with logits alone need: the last.
  uint32_t logits_group = 0;
  uint32_t num_threads = 1;
  uint32_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  uint32_t task_rows = ops::kFloatTaskRows;  // of an attention task at most
};

struct RowFill {
  uint32_t rows = 0, logits = 0;
};

class StepTables {
 public:
  explicit StepTables(const StepTablesConfig& config);

  // Requires: the frame is sound (ValidateFrame) and within the capacities of the config. `fill`:
  // rows and logits that are computed, live or not, once any is live; rows past the live ones read
  // place 0 of a live row's slot, or what the first live row reads, and write nothing; logits past
  // the live ones are theirs, as far as they go round; those beyond are computed of what lies
  // there.
  void Build(const FrameView& frame, RowFill fill = {});

  struct TaskList {
    std::vector<ops::AttentionTask> tasks;  // [num_tasks] in use, largest first
    std::vector<ops::SplitRow> split_rows;
    uint32_t num_tasks = 0;
    uint32_t num_splits = 0;
  };
  struct Group {
    std::vector<uint64_t> write_offset;  // [max_rows] of the page a row writes
    std::vector<uint32_t> num_segments;  // [max_slots]
    TaskList all;                        // of every row
    TaskList with_logits;                // of the rows with logits; of config.logits_group alone
    uint32_t width = 0;                  // token places that its attention reads; 0 = what rows see
  };

  const FrameView& frame() const { return frame_; }
  const Row* rows() const { return rows_; }  // [num_rows] the frame's, then those that fill up
  uint32_t num_rows() const { return num_rows_; }      // computed
  uint32_t num_logits() const { return num_logits_; }  // computed
  const Group& group(uint32_t g) const { return groups_[g]; }
  const uint32_t* logits_rows() const { return logits_rows_.data(); }  // [num_logits] row of each
  uint8_t* row_status() { return row_status_.data(); }                 // [max_rows]
  std::atomic<uint32_t>* split_done() { return split_done_.get(); }
  float* partials() { return partials_.data(); }

 private:
  void CheckOffered(const FrameView& frame) const;
  void FillUp(RowFill fill);
  Row UnusedRow() const;
  uint32_t WidthOf(uint32_t g) const;
  void SizeTasks(TaskList& list, uint32_t max_rows) const;
  // Adjacent rows of one slot, or one row.
  struct Tile {
    uint32_t row, count;
    uint32_t out_row;  // of the first, in what attention writes
  };
  // The next tile at `row` or behind, of any rows or of those with logits; no rows past the last.
  Tile NextTile(uint32_t row, bool with_logits) const;
  void BuildTasks(uint32_t g, bool with_logits);
  struct Reach {
    uint32_t window;  // of the group; 0 = none
    uint32_t width;
  };
  void AddTile(TaskList& list, const Tile& tile, Reach reach, uint32_t head_step);
  void AddSplitRow(TaskList& list, const Tile& tile, Reach reach);

  StepTablesConfig config_;
  uint32_t max_split_rows_ = 0;
  uint32_t task_rows_ = 1;  // of the step at hand
  FrameView frame_;
  const Row* rows_ = nullptr;
  uint32_t num_rows_ = 0, num_logits_ = 0;
  std::vector<Row> filled_;  // [max_rows] where rows are filled up
  std::vector<Group> groups_;
  std::vector<uint32_t> logits_rows_;
  std::vector<uint8_t> row_status_;
  std::unique_ptr<std::atomic<uint32_t>[]> split_done_;
  std::vector<float> partials_;
};

}  // namespace kvrm
