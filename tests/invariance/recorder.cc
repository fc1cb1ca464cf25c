#include "tests/invariance/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tensor/kv_tile.h"

namespace kvrm::testing {

void ExpectSame(const Recording& a, const Recording& b, const char* what) {
  EXPECT_EQ(a.tokens, b.tokens) << what;
  EXPECT_FALSE(a.logits.empty()) << what;
  ASSERT_EQ(a.logits.size(), b.logits.size()) << what;
  EXPECT_EQ(std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)), 0)
      << "logits, " << what;
  EXPECT_FALSE(a.kv_bytes.empty()) << what;
  ASSERT_EQ(a.kv_bytes.size(), b.kv_bytes.size()) << what;
  EXPECT_EQ(std::memcmp(a.kv_bytes.data(), b.kv_bytes.data(), a.kv_bytes.size()), 0)
      << "page bytes, " << what;
}

namespace {

// K and V of one token of one head, in whatever format its tile is.
void AppendHeadBytes(const KvTile& tile, KvFormat format, uint32_t head_dim, const std::byte* k,
                     uint32_t place, std::vector<std::byte>& out) {
  const bool int8 = format == KvFormat::kInt8;
  const uint32_t run = int8 ? 4 : 1;  // d of a token that lie side by side in K
  for (uint32_t d = 0; d < head_dim; d += run) {
    const std::byte* values = k + (size_t{d} * kKvTileTokens + place * run) * tile.value_bytes;
    out.insert(out.end(), values, values + run * tile.value_bytes);
  }
  for (uint32_t plane = 0; int8 && plane < 2; ++plane) {
    const std::byte* scale = k + tile.scales_begin + (plane * kKvTileTokens + place) * 2;
    out.insert(out.end(), scale, scale + 2);
  }
  const std::byte* v = k + tile.v_begin + size_t{place} * head_dim * tile.value_bytes;
  out.insert(out.end(), v, v + size_t{head_dim} * tile.value_bytes);
}

}  // namespace

void AppendTokenBytes(const ModelConfig& config, const Pager& pager, const FrameView& frame,
                      uint32_t slot, uint32_t token, uint32_t num_tokens,
                      std::vector<std::byte>& out) {
  const KvGeometry& geometry = pager.geometry();
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const uint32_t g = geometry.layer_group[layer];
    const KvGroupGeometry& group = geometry.groups[g];
    // Places that slid out of the window of the next row may have left, or not yet.
    if (group.window_tokens > 0 && token + group.window_tokens < num_tokens) continue;
    const KvTile tile = KvTileOf(group.format, config.head_dim);
    const uint32_t page = frame.SlotPages(g, slot)[token / group.page_tokens];
    const std::byte* part = pager.base(g) + group.PageOffset(PageId{page}) +
                            geometry.layer_part[layer] * group.part_stride_bytes();
    for (uint32_t head = 0; head < config.num_kv_heads; ++head) {
      AppendHeadBytes(tile, group.format, config.head_dim, part + head * tile.head_bytes,
                      token % group.page_tokens, out);
    }
  }
}

void Recorder::OnStep(const StepPlan& plan, const FrameView& frame, const StepResult& result) {
  seen_.most_slots = std::max(seen_.most_slots, frame.head->num_slots);
  seen_.mixed_steps += plan.num_prompt_rows > 0 && plan.num_prompt_rows < plan.num_rows ? 1 : 0;
  seen_.preempted += static_cast<uint32_t>(plan.preempted.size());
  for (uint32_t s = 0; s < frame.head->num_slots; ++s) {
    seen_.most_pages =
        std::max(seen_.most_pages, frame.slots[s].num_pages[0] - frame.slots[s].num_holes[0]);
    if (frame.slots[s].num_segments[0] <= seen_.most_runs) continue;
    seen_.most_runs = frame.slots[s].num_segments[0];
    seen_.pages_of_most_runs = frame.slots[s].num_pages[0];
  }
  uint32_t row = 0;
  for (const PlannedRows& rows : plan.rows) {
    Recording& recording = recordings_[rows.request.value];
    const Row& last = frame.rows[row + rows.count - 1];
    if (rows.want_logits) {
      const float* logits = result.logits + size_t{last.logits_idx} * result.logits_stride;
      recording.logits.insert(recording.logits.end(), logits, logits + config_.vocab);
    }
    const auto final_tokens = final_tokens_.find(rows.request.value);
    if (final_tokens != final_tokens_.end() && rows.first + rows.count == final_tokens->second) {
      recording.kv_bytes.clear();
      const uint32_t num_tokens = rows.first + rows.count;
      for (uint32_t token = 0; token < num_tokens; ++token) {
        AppendTokenBytes(config_, engine_.pager(), frame, last.slot, token, num_tokens,
                         recording.kv_bytes);
      }
    }
    row += rows.count;
  }
}

void Recorder::OnToken(RequestId id, const TokenEvent& event) {
  recordings_[id.value].tokens.push_back(event.token);
}

void Recorder::OnFinish(RequestId id, const FinishEvent& event) {
  Recording& recording = recordings_[id.value];
  recording.finished = true;
  recording.reason = event.reason;
  recording.message = event.message;
}

}  // namespace kvrm::testing
