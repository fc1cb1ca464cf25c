#include "tests/invariance/recorder.h"

namespace kvrm::testing {

void AppendTokenBytes(const ModelConfig& config, const KvGeometry& geometry, const FrameView& frame,
                      const std::byte* base, uint32_t slot, uint32_t token,
                      std::vector<std::byte>& out) {
  const KvGroupGeometry& group = geometry.groups[0];
  const uint32_t value_bytes = group.format == KvFormat::kF32 ? 4 : 2;
  const uint32_t place = token % group.page_tokens;
  const uint32_t page = frame.SlotPages(0, slot)[token / group.page_tokens];
  const size_t tile_bytes = size_t{config.head_dim} * group.page_tokens * value_bytes;
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    const std::byte* part = base + group.PageOffset(PageId{page}) +
                            geometry.layer_part[layer] * group.part_stride_bytes();
    for (uint32_t head = 0; head < config.num_kv_heads; ++head) {
      const std::byte* k = part + head * 2 * tile_bytes;
      const std::byte* v = k + tile_bytes + size_t{place} * config.head_dim * value_bytes;
      for (uint32_t d = 0; d < config.head_dim; ++d) {
        const std::byte* value = k + (size_t{d} * group.page_tokens + place) * value_bytes;
        out.insert(out.end(), value, value + value_bytes);
      }
      out.insert(out.end(), v, v + size_t{config.head_dim} * value_bytes);
    }
  }
}

void Recorder::OnStep(const StepPlan& plan, const FrameView& frame, const StepResult& result) {
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
      for (uint32_t token = 0; token < rows.first + rows.count; ++token) {
        AppendTokenBytes(config_, engine_.pager().geometry(), frame, engine_.pager().base(0),
                         last.slot, token, recording.kv_bytes);
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
