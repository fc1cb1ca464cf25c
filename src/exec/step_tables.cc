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
  const uint32_t max_chunks = Chunks(config.max_seq_tokens);
  max_split_rows_ = std::min(kMaxSplitRows, kTasksPerThread * config.num_threads);
  const uint32_t max_tasks =
      config.max_rows * config.num_kv_heads + max_split_rows_ * max_chunks * config.num_kv_heads;
  groups_.resize(config.geometry.groups.size());
  for (Group& group : groups_) {
    group.write_offset.resize(config.max_rows);
    group.num_segments.resize(config.max_slots);
    group.tasks.resize(max_tasks);
    group.split_rows.resize(max_split_rows_);
  }
  logits_rows_.resize(config.max_logits);
  row_status_.resize(config.max_rows);
  split_done_ = std::make_unique<std::atomic<uint32_t>[]>(max_split_rows_);
  partials_.resize(size_t{max_split_rows_} * max_chunks * config.num_heads * (config.head_dim + 2));
}

void StepTables::Build(const FrameView& frame) {
  frame_ = frame;
  const FrameHead& head = *frame.head;
  KVRM_CHECK(head.num_rows <= config_.max_rows, "I1: live rows within capacity");
  KVRM_CHECK(head.num_logits <= config_.max_logits, "I1: logits rows within capacity");
  CheckOffered(frame);
  std::memset(row_status_.data(), 0, head.num_rows);
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
    for (uint32_t i = 0; i < head.num_rows; ++i) {
      const Row& row = frame.rows[i];
      const uint32_t page = frame.SlotPages(g, row.slot)[row.kv_index / geometry.page_tokens];
      group.write_offset[i] = geometry.PageOffset(PageId{page});
    }
    BuildTasks(g);
  }
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

void StepTables::BuildTasks(uint32_t g) {
  Group& group = groups_[g];
  group.num_tasks = 0;
  group.num_splits = 0;
  const Row* rows = frame_.rows;
  const uint32_t num_rows = frame_.head->num_rows;
  const uint32_t window = config_.geometry.groups[g].window_tokens;
  const auto tile_end = [&](uint32_t row) {
    uint32_t end = row + 1;
    while (end < num_rows && end - row < ops::kMaxTaskRows && rows[end].slot == rows[row].slot) {
      ++end;
    }
    return end;
  };
  uint32_t num_tiles = 0;
  for (uint32_t row = 0; row < num_rows; row = tile_end(row)) ++num_tiles;
  const uint32_t wanted = kTasksPerThread * config_.num_threads;
  const bool by_head = num_tiles < wanted;
  const bool split = num_tiles * config_.num_kv_heads < wanted;
  for (uint32_t row = 0; row < num_rows;) {
    const uint32_t end = tile_end(row);
    const bool alone = end - row == 1;
    if (split && alone && group.num_splits < max_split_rows_ &&
        Chunks(rows[row].kv_index + 1) > FirstChunk(rows[row].kv_index, window) + 1) {
      AddSplitRow(group, row, window);
    } else {
      AddTile(group, row, end - row, window, by_head ? 1 : config_.num_kv_heads);
    }
    row = end;
  }
  std::sort(
      group.tasks.begin(), group.tasks.begin() + group.num_tasks,
      [](const ops::AttentionTask& a, const ops::AttentionTask& b) { return Work(a) > Work(b); });
}

void StepTables::AddTile(Group& group, uint32_t row, uint32_t count, uint32_t window,
                         uint32_t head_step) {
  const Row* rows = frame_.rows;
  for (uint32_t head = 0; head < config_.num_kv_heads; head += head_step) {
    ops::AttentionTask& task = group.tasks[group.num_tasks++];
    task.row_begin = row;
    task.num_rows = static_cast<uint16_t>(count);
    task.slot = rows[row].slot;
    task.kv_head_begin = static_cast<uint16_t>(head);
    task.kv_head_end = static_cast<uint16_t>(std::min(head + head_step, config_.num_kv_heads));
    task.chunk_begin = FirstChunk(rows[row].kv_index, window);
    task.chunk_end = Chunks(rows[row + count - 1].kv_index + 1);
    task.split = kNone32;
  }
}

void StepTables::AddSplitRow(Group& group, uint32_t row, uint32_t window) {
  const Row& r = frame_.rows[row];
  const uint32_t first = FirstChunk(r.kv_index, window);
  const uint32_t end = Chunks(r.kv_index + 1);
  const uint32_t split = group.num_splits++;
  ops::SplitRow& split_row = group.split_rows[split];
  split_row.row = row;
  split_row.num_chunks = end;
  split_row.partial_begin = split * Chunks(config_.max_seq_tokens);
  split_row.num_tasks = 0;
  for (uint32_t chunk = first; chunk < end; ++chunk) {
    for (uint32_t head = 0; head < config_.num_kv_heads; ++head) {
      ops::AttentionTask& task = group.tasks[group.num_tasks++];
      task.row_begin = row;
      task.num_rows = 1;
      task.slot = r.slot;
      task.kv_head_begin = static_cast<uint16_t>(head);
      task.kv_head_end = static_cast<uint16_t>(head + 1);
      task.chunk_begin = chunk;
      task.chunk_end = chunk + 1;
      task.split = split;
      ++split_row.num_tasks;
    }
  }
}

}  // namespace kvrm
