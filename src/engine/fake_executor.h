// FakeExecutor: a tiny deterministic language model that lives entirely in the KV pool. Test code
// only.
//
// Each part (layer) writes one 32-byte cell for each row into the page that the dense table names,
// then folds the cells of all visible tokens, read through the frame's segments, into the state of
// the next part. A logit is a pure function of that last state. So a token depends on every byte of
// its sequence's pages: a page in the wrong place, shared by mistake, recycled too early or reached
// by padding rows changes tokens.
//
// Token kFaultToken makes its row non-finite. Rows past the capacity of the widest program, rows of
// dead slots and the like are KVRM_CHECKs: a frame that an executor could not replay.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/kv_view.h"
#include "exec/executor.h"

namespace kvrm::testing {

inline constexpr uint32_t kFakeVocab = 300;  // two panels, the second one partial
inline constexpr uint32_t kFakeCellBytes = 32;
inline constexpr TokenId kFaultToken = 299;

struct FakeShape {
  uint32_t max_slots = 32;
  uint32_t mixed_rows = 64;
  uint32_t prefill_rows = 512;
  bool panel_hints = true;
};

class FakeExecutor final : public Executor {
 public:
  FakeExecutor(const KvGeometry& geometry, std::byte* base, const FakeShape& shape)
      : group_(geometry.groups.at(0)), base_(base), hints_(shape.panel_hints) {
    KVRM_CHECK(group_.part_page_bytes == uint64_t{group_.page_tokens} * kFakeCellBytes,
               "a fake page holds one cell for each token");
    info_.name = "fake";
    info_.invariance = InvarianceClass::kFull;
    info_.vocab = kFakeVocab;
    info_.max_slots = shape.max_slots;
    info_.max_logits = shape.max_slots;
    info_.max_rows[0] = shape.max_slots;
    info_.max_rows[1] = shape.max_slots + shape.mixed_rows;
    info_.max_rows[2] = shape.max_slots + shape.prefill_rows;
    logits_.resize(size_t{info_.max_logits} * kStride);
    panel_max_.resize(size_t{info_.max_logits} * kPanels);
    row_status_.resize(info_.max_rows[2]);
  }

  const ExecutorInfo& info() const override { return info_; }
  void WarmUp() override {}
  const ExecutorCounters& counters() const override { return counters_; }

  StepResult Replay(const FrameView& frame) override {
    const uint32_t num_rows = frame.head->num_rows;
    uint32_t program = 0;
    while (program < kNumPrograms && info_.max_rows[program] < num_rows) ++program;
    KVRM_CHECK(program < kNumPrograms, "a step fits the widest program");
    KVRM_CHECK(frame.head->num_logits <= info_.max_logits, "a step's logits fit their buffer");
    ++counters_.replays[program];
    ++counters_.linear_calls;
    counters_.rows += num_rows;
    for (uint32_t i = 0; i < num_rows; ++i) RunRow(frame, frame.rows[i], &row_status_[i]);
    return {.program = static_cast<ProgramKind>(program),
            .logits = logits_.data(),
            .logits_stride = kStride,
            .panel_max = hints_ ? panel_max_.data() : nullptr,
            .num_panels = kPanels,
            .row_status = row_status_.data()};
  }

 private:
  static constexpr uint32_t kStride = 304;  // padded, as a real head is
  static constexpr uint32_t kPanels = 2;
  using Cell = std::array<uint64_t, kFakeCellBytes / 8>;

  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58'476D'1CE4'E5B9u;
    x = (x ^ (x >> 27)) * 0x94D0'49BB'1331'11EBu;
    return x ^ (x >> 31);
  }

  std::byte* CellAt(uint64_t page_offset, uint32_t part, uint32_t token) const {
    return base_ + page_offset + part * group_.part_stride_bytes() +
           uint64_t{token % group_.page_tokens} * kFakeCellBytes;
  }

  void WriteCell(const FrameView& frame, const Row& row, uint32_t part, uint64_t state) const {
    const uint32_t page = frame.SlotPages(0, row.slot)[row.kv_index / group_.page_tokens];
    KVRM_CHECK(page != kNullPage.value, "FRAME-5: no row writes the null page");
    Cell cell;
    for (uint64_t& word : cell) state = word = Mix(state + row.position);
    std::memcpy(CellAt(group_.PageOffset(PageId{page}), part, row.kv_index), cell.data(),
                kFakeCellBytes);
  }

  // The "attention" of one part: folds the cells of tokens [0, row.kv_index] in order.
  uint64_t ReadCells(const FrameView& frame, const Row& row, uint32_t part) const {
    const SlotHead* slot = frame.by_slot[row.slot];
    KVRM_CHECK(slot != nullptr, "FRAME-1: row slots are live");
    const Segment* segments = frame.SlotSegments(0, row.slot);
    uint64_t fold = part;
    uint32_t token = 0;
    for (uint32_t s = 0; s < slot->num_segments[0] && token <= row.kv_index; ++s) {
      KVRM_CHECK(segments[s].first_token == token, "FRAME-3: segments are gapless");
      for (uint32_t p = 0; p < segments[s].num_pages && token <= row.kv_index; ++p) {
        const uint64_t offset = segments[s].offset_bytes + p * group_.part_page_bytes;
        for (uint32_t i = 0; i < group_.page_tokens && token <= row.kv_index; ++i, ++token) {
          Cell cell;
          std::memcpy(cell.data(), CellAt(offset, part, token), kFakeCellBytes);
          for (const uint64_t word : cell) fold = Mix(fold ^ word);
        }
      }
    }
    KVRM_CHECK(token == row.kv_index + 1, "FRAME-2: segments cover each row");
    return fold;
  }

  void RunRow(const FrameView& frame, const Row& row, uint8_t* status) {
    uint64_t state = Mix(static_cast<uint64_t>(row.token) + 1);
    for (uint32_t part = 0; part < group_.num_parts; ++part) {
      if ((row.flags & kRowNoWrite) == 0) WriteCell(frame, row, part, state);
      state = Mix(state ^ ReadCells(frame, row, part));
    }
    *status = row.token == kFaultToken ? kRowNonFinite : kRowOk;
    counters_.nonfinite_rows += *status == kRowNonFinite ? 1 : 0;
    if ((row.flags & kRowWantLogits) != 0) WriteLogits(row.logits_idx, state);
  }

  void WriteLogits(uint32_t logits_idx, uint64_t state) {
    float* logits = logits_.data() + size_t{logits_idx} * kStride;
    for (uint32_t i = 0; i < kStride; ++i) {
      const uint64_t bits = Mix(state + i * 0x9E37'79B9'7F4A'7C15u) >> 40;
      logits[i] = static_cast<float>(bits) * 0x1p-21f - 4.0f;  // in [-4, 4)
    }
    logits[kFaultToken] = -8.0f;  // only prompts bring it
    float* panels = panel_max_.data() + size_t{logits_idx} * kPanels;
    panels[0] = *std::max_element(logits, logits + 256);
    panels[1] = *std::max_element(logits + 256, logits + kFakeVocab);
  }

  const KvGroupGeometry group_;
  std::byte* const base_;
  const bool hints_;
  ExecutorInfo info_;
  ExecutorCounters counters_;
  std::vector<float> logits_;        // [max_logits, kStride]
  std::vector<float> panel_max_;     // [max_logits, kPanels]
  std::vector<uint8_t> row_status_;  // [max_rows]
};

}  // namespace kvrm::testing
