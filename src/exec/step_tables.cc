#include "exec/step_tables.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kvrm {
namespace {

using ops::kChunkTokens;

// Fewer tasks than this times the threads and the work is cut finer.
constexpr uint32_t kTasksPerThread = 4;
constexpr uint32_t kMaxSplitRows = 32;

uint32_t Chunks(uint32_t tokens) { return (tokens + kChunkTokens - 1) / kChunkTokens; }

uint32_t FirstChunk(uint32_t kv_index, uint32_t window) {
  return window != 0 && kv_index + 1 > window ? (kv_index + 1 - window) / kChunkTokens : 0;
}

uint64_t Work(const ops::AttentionTask& task) {
  return uint64_t{task.chunk_end - task.chunk_begin} * task.num_rows *
         (task.kv_head_end - task.kv_head_begin);
}

}  // namespace

StepTables::StepTables(const StepTablesConfig& config) : config_(config) {
  KVRM_CHECK(config.task_rows <= ops::kMaxTaskRows, "ops: kernels have room for a task's rows");
  const uint32_t max_chunks = Chunks(config.max_seq_tokens);
  max_split_rows_ = std::min(kMaxSplitRows, kTasksPerThread * config.num_threads);
  groups_.resize(config.geometry.groups.size());
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    groups_[g].write_offset.resize(config.max_rows);
    groups_[g].num_segments.resize(config.max_slots);
    SizeTasks(groups_[g].all, config.max_rows);
    if (g == config.logits_group) SizeTasks(groups_[g].with_logits, config.max_logits);
  }
  filled_.resize(config.max_rows);
  logits_rows_.resize(config.max_logits);
  row_status_.resize(config.max_rows);
  split_done_ = std::make_unique<std::atomic<uint32_t>[]>(max_split_rows_);
  partials_.resize(size_t{max_split_rows_} * max_chunks * config.num_heads * (config.head_dim + 2));
}

void StepTables::SizeTasks(TaskList& list, uint32_t max_rows) const {
  const uint32_t max_split_tasks =
      max_split_rows_ * Chunks(config_.max_seq_tokens) * config_.num_kv_heads;
  list.tasks.resize(max_rows * config_.num_kv_heads + max_split_tasks);
  list.split_rows.resize(max_split_rows_);
}

void StepTables::Build(const FrameView& frame, RowFill fill) {
  frame_ = frame;
  const FrameHead& head = *frame.head;
  KVRM_CHECK(head.num_rows <= config_.max_rows, "I1: live rows within capacity");
  KVRM_CHECK(head.num_logits <= config_.max_logits, "I1: logits rows within capacity");
  CheckOffered(frame);
  FillUp(fill);
  // Few rows are cut finer, so that all threads have some.
  task_rows_ = std::clamp(num_rows_ / (kTasksPerThread * config_.num_threads),
                          std::min(ops::kFloatTaskRows, config_.task_rows), config_.task_rows);
  std::memset(row_status_.data(), 0, num_rows_);
  for (uint32_t i = 0; i < head.num_rows; ++i) {
    const Row& row = frame.rows[i];
    if (row.logits_idx != kNone32) logits_rows_[row.logits_idx] = i;
  }
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const KvGroupGeometry& geometry = config_.geometry.groups[g];
    for (uint32_t s = 0; s < head.num_slots; ++s) {
      group.num_segments[frame.slots[s].slot] = frame.slots[s].num_segments[g];
    }
    for (uint32_t i = 0; i < num_rows_; ++i) {
      const Row& row = rows_[i];
      const uint32_t page = frame.SlotPages(g, row.slot)[row.kv_index / geometry.page_tokens];
      group.write_offset[i] = geometry.PageOffset(PageId{page});
    }
    group.width = WidthOf(g);
    BuildTasks(g, /*with_logits=*/false);
    if (g == config_.logits_group) BuildTasks(g, /*with_logits=*/true);
  }
}

// Rows and logits past the live ones, where a step computes all that its program holds.
void StepTables::FillUp(RowFill fill) {
  const FrameHead& head = *frame_.head;
  rows_ = frame_.rows;
  num_rows_ = head.num_rows;
  num_logits_ = head.num_logits;
  if (head.num_rows == 0 || fill.rows <= head.num_rows) return;
  KVRM_CHECK(fill.rows <= config_.max_rows && fill.logits <= config_.max_logits,
             "I1: rows that fill up a step are within capacity");
  std::copy(frame_.rows, frame_.rows + head.num_rows, filled_.begin());
  std::fill(filled_.begin() + head.num_rows, filled_.begin() + fill.rows, UnusedRow());
  rows_ = filled_.data();
  num_rows_ = fill.rows;
  for (uint32_t row = head.num_rows; num_logits_ < fill.logits; ++num_logits_) {
    if (row < num_rows_) filled_[row].logits_idx = num_logits_;
    logits_rows_[num_logits_] = row < num_rows_ ? row++ : num_rows_ - 1;
  }
}

// Reads place 0 of a slot that still has it: the cheapest that there is. Where windows have left it
// in all slots, it reads what the first live row reads.
Row StepTables::UnusedRow() const {
  const auto holds_place_0 = [&](const Row& row) {
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      if (frame_.SlotSegments(g, row.slot)[0].first_token != 0) return false;
    }
    return true;
  };
  const Row* const live_end = frame_.rows + frame_.head->num_rows;
  const Row* const found = std::find_if(frame_.rows, live_end, holds_place_0);
  Row unused = found == live_end ? *frame_.rows : *found;
  if (found != live_end) unused.position = unused.kv_index = 0;
  unused.flags = kRowNoWrite;
  unused.logits_idx = kNone32;
  return unused;
}

// A window is what its layers read, live or not, so it needs no further width.
uint32_t StepTables::WidthOf(uint32_t g) const {
  const KvGroupGeometry& geometry = config_.geometry.groups[g];
  if (config_.kv_width == KvWidth::kLive || geometry.window_tokens != 0) return 0;
  uint32_t width = config_.max_seq_tokens;
  if (config_.kv_width == KvWidth::kBucket) {
    uint32_t longest = 0;
    for (uint32_t i = 0; i < frame_.head->num_rows; ++i) {
      longest = std::max(longest, frame_.rows[i].kv_index + 1);
    }
    for (const uint32_t share : {8u, 4u, 2u}) {
      const uint32_t bucket = (config_.max_seq_tokens + share - 1) / share;
      if (bucket < longest) continue;
      width = bucket;
      break;
    }
  }
  for (uint32_t s = 0; s < frame_.head->num_slots; ++s) {
    KVRM_CHECK(frame_.slots[s].num_pages[g] * geometry.page_tokens >= width,
               "exec: a slot's table covers the width that is read");
  }
  return width;
}

// Frames carry what later executors and views will use. This executor must not ignore it silently:
// whoever sends it has a bug.
void StepTables::CheckOffered(const FrameView& frame) const {
  for (uint32_t i = 0; i < frame.head->num_rows; ++i) {
    const Row& row = frame.rows[i];
    KVRM_CHECK(row.token_src == TokenSource::kImmediate, "exec: token_src is immediate (depth 0)");
    KVRM_CHECK((row.flags & kRowWantLse) == 0, "exec: want_lse is not offered");
    KVRM_CHECK(row.token >= 0, "exec: a row's token is an id");
  }
  if constexpr (KVRM_CHECK_TIER < 2) return;
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    for (uint32_t s = 0; s < frame.head->num_slots; ++s) {
      const Segment* segments = frame.SlotSegments(g, frame.slots[s].slot);
      for (uint32_t i = 0; i < frame.slots[s].num_segments[g]; ++i) {
        const Segment& segment = segments[i];
        KVRM_CHECK(segment.position_shift == 0 && segment.score_bias == 0.0f &&
                       segment.head_begin == 0 && segment.head_end == 0xFFFF &&
                       segment.layer_begin == 0 && segment.layer_end == 0xFFFF &&
                       segment.row_mask == ~uint64_t{0},
                   "exec: segments are dense, for all heads, layers and places");
      }
    }
  }
}

StepTables::Tile StepTables::NextTile(uint32_t row, bool with_logits) const {
  const auto counts = [&](uint32_t i) { return !with_logits || rows_[i].logits_idx != kNone32; };
  while (row < num_rows_ && !counts(row)) ++row;
  if (row == num_rows_) return {row, 0, 0};
  const uint32_t num_live = frame_.head->num_rows;
  const uint32_t limit = row < num_live ? num_live : num_rows_;
  uint32_t end = row + 1;
  while (end < limit && end - row < task_rows_ && counts(end) &&
         rows_[end].slot == rows_[row].slot) {
    ++end;
  }
  return {row, end - row, with_logits ? rows_[row].logits_idx : row};
}

void StepTables::BuildTasks(uint32_t g, bool with_logits) {
  Group& group = groups_[g];
  TaskList& list = with_logits ? group.with_logits : group.all;
  list.num_tasks = 0;
  list.num_splits = 0;
  const Reach reach{config_.geometry.groups[g].window_tokens, group.width};
  const auto next = [&](const Tile& tile) { return NextTile(tile.row + tile.count, with_logits); };
  const Tile first = NextTile(0, with_logits);
  uint32_t num_tiles = 0;
  for (Tile tile = first; tile.count != 0; tile = next(tile)) ++num_tiles;
  const uint32_t wanted = kTasksPerThread * config_.num_threads;
  const bool by_head = num_tiles < wanted;
  const bool split = num_tiles * config_.num_kv_heads < wanted;
  for (Tile tile = first; tile.count != 0; tile = next(tile)) {
    const uint32_t kv_index = rows_[tile.row].kv_index;
    const bool several_chunks =
        Chunks(std::max(kv_index + 1, reach.width)) > FirstChunk(kv_index, reach.window) + 1;
    if (split && tile.count == 1 && list.num_splits < max_split_rows_ && several_chunks) {
      AddSplitRow(list, tile, reach);
    } else {
      AddTile(list, tile, reach, by_head ? 1 : config_.num_kv_heads);
    }
  }
  std::sort(
      list.tasks.begin(), list.tasks.begin() + list.num_tasks,
      [](const ops::AttentionTask& a, const ops::AttentionTask& b) { return Work(a) > Work(b); });
}

void StepTables::AddTile(TaskList& list, const Tile& tile, Reach reach, uint32_t head_step) {
  const Row& first = rows_[tile.row];
  const Row& last = rows_[tile.row + tile.count - 1];
  for (uint32_t head = 0; head < config_.num_kv_heads; head += head_step) {
    ops::AttentionTask& task = list.tasks[list.num_tasks++];
    task.row_begin = tile.row;
    task.num_rows = static_cast<uint16_t>(tile.count);
    task.slot = first.slot;
    task.kv_head_begin = static_cast<uint16_t>(head);
    task.kv_head_end = static_cast<uint16_t>(std::min(head + head_step, config_.num_kv_heads));
    task.chunk_begin = FirstChunk(first.kv_index, reach.window);
    task.chunk_end = Chunks(std::max(last.kv_index + 1, reach.width));
    task.split = kNone32;
    task.out_begin = tile.out_row;
  }
}

void StepTables::AddSplitRow(TaskList& list, const Tile& tile, Reach reach) {
  const Row& row = rows_[tile.row];
  const uint32_t first = FirstChunk(row.kv_index, reach.window);
  const uint32_t end = Chunks(std::max(row.kv_index + 1, reach.width));
  const uint32_t split = list.num_splits++;
  ops::SplitRow& split_row = list.split_rows[split];
  split_row.row = tile.row;
  split_row.out_row = tile.out_row;
  split_row.num_chunks = Chunks(row.kv_index + 1);
  split_row.partial_begin = split * Chunks(config_.max_seq_tokens);
  split_row.num_tasks = 0;
  // A chunk's heads lie side by side: where chunks suffice for all threads, one task reads them
  // all, in one ascending stream.
  const uint32_t head_step =
      end - first < kTasksPerThread * config_.num_threads ? 1 : config_.num_kv_heads;
  for (uint32_t chunk = first; chunk < end; ++chunk) {
    for (uint32_t head = 0; head < config_.num_kv_heads; head += head_step) {
      ops::AttentionTask& task = list.tasks[list.num_tasks++];
      task.row_begin = tile.row;
      task.num_rows = 1;
      task.slot = row.slot;
      task.kv_head_begin = static_cast<uint16_t>(head);
      task.kv_head_end = static_cast<uint16_t>(head + head_step);
      task.chunk_begin = chunk;
      task.chunk_end = chunk + 1;
      task.split = split;
      task.out_begin = tile.out_row;
      ++split_row.num_tasks;
    }
  }
}

}  // namespace kvrm
