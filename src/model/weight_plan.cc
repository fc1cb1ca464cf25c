#include "model/weight_plan.h"

#include <algorithm>

#include "model/model_tensors.h"

namespace kvrm {
namespace {

constexpr uint64_t kAlignment = 64;

Encoding EncodingOf(const std::vector<PlannedPart>& parts, WeightChoice choice) {
  switch (choice) {
    case WeightChoice::kF32:
      return Encoding::kF32;
    case WeightChoice::kQ4:
      return Encoding::kQ4;
    case WeightChoice::kQ8:
      return Encoding::kQ8;
    case WeightChoice::kAuto:
      break;
  }
  const bool all_q4 = std::all_of(parts.begin(), parts.end(), [](const PlannedPart& part) {
    return NearestEncoding(part.tensor->type) == Encoding::kQ4;
  });
  return all_q4 ? Encoding::kQ4 : Encoding::kQ8;
}

class Planner {
 public:
  Planner(const GgufFile& file, const ModelConfig& config, WeightChoice choice)
      : file_(file), config_(config), choice_(choice) {}

  Result<WeightPlan> Run() {
    for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
      KVRM_ASSIGN_OR_RETURN(WeightPlan::Layer planned, PlanLayer(layer));
      plan_.layers.push_back(std::move(planned));
    }
    plan_.output_norm = PlanVector({std::string(kOutputNormTensor)}, config_.norm_offset);
    KVRM_ASSIGN_OR_RETURN(plan_.embedding, PlanOne(std::string(kEmbeddingTensor)));
    if (!config_.tied_head) {
      KVRM_ASSIGN_OR_RETURN(plan_.head, PlanOne(std::string(kOutputTensor)));
    }
    return std::move(plan_);
  }

 private:
  const GgufTensor* Tensor(const std::string& name) const {
    const GgufTensor* tensor = file_.FindTensor(name);
    KVRM_CHECK(tensor != nullptr, "ReadConfig has found every tensor of the family");
    return tensor;
  }

  uint64_t Take(uint64_t bytes) {
    const uint64_t at = plan_.arena_bytes;
    plan_.arena_bytes = (at + bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }

  PlannedVector PlanVector(const std::vector<std::string>& names, float offset) {
    PlannedVector vector;
    vector.offset = offset;
    uint64_t values = 0;
    for (const std::string& name : names) {
      vector.parts.push_back(Tensor(name));
      values += vector.parts.back()->num_values;
    }
    vector.arena_offset = Take(values * sizeof(float));
    return vector;
  }

  Result<WeightPlan::Layer> PlanLayer(uint32_t layer) {
    const auto name = [layer](std::string_view part) { return LayerTensorName(layer, part); };
    WeightPlan::Layer planned;
    const auto norm = [&](std::string_view part) {
      return PlanVector({name(part)}, config_.norm_offset);
    };
    planned.attn_norm = norm("attn_norm");
    KVRM_ASSIGN_OR_RETURN(planned.qkv, PlanRows({name("attn_q"), name("attn_k"), name("attn_v")}));
    if (config_.qkv_bias) {
      const auto bias = [layer](std::string_view part) { return LayerBiasName(layer, part); };
      planned.qkv_bias = PlanVector({bias("attn_q"), bias("attn_k"), bias("attn_v")}, 0);
    }
    if (config_.head_norms) {
      planned.head_norms =
          PlanVector({name("attn_q_norm"), name("attn_k_norm")}, config_.norm_offset);
    }
    KVRM_ASSIGN_OR_RETURN(planned.attn_out, PlanOne(name("attn_output")));
    if (config_.post_norms) planned.post_attn_norm = norm("post_attention_norm");
    planned.ffn_norm = norm("ffn_norm");
    KVRM_ASSIGN_OR_RETURN(planned.gate_up, PlanAlternating(name("ffn_gate"), name("ffn_up")));
    KVRM_ASSIGN_OR_RETURN(planned.down, PlanOne(name("ffn_down")));
    if (config_.post_norms) planned.post_ffn_norm = norm("post_ffw_norm");
    return planned;
  }

  Result<PlannedLinear> PlanOne(const std::string& name) {
    return Finish({{Tensor(name), /*first_panel=*/0, /*panel_step=*/1}});
  }

  // Tensors one below the other: each begins at a panel's first output.
  Result<PlannedLinear> PlanRows(const std::vector<std::string>& names) {
    std::vector<PlannedPart> parts;
    uint32_t first_panel = 0;
    for (const std::string& name : names) {
      parts.push_back({Tensor(name), first_panel, /*panel_step=*/1});
      KVRM_RETURN_IF_ERROR(CheckWholePanels(parts.back()));
      first_panel += parts.back().rows() / kPanel;
    }
    return Finish(std::move(parts));
  }

  // Panel 2i holds outputs 16i.. of the first tensor, panel 2i + 1 the same outputs of the second.
  Result<PlannedLinear> PlanAlternating(const std::string& even, const std::string& odd) {
    std::vector<PlannedPart> parts = {{Tensor(even), /*first_panel=*/0, /*panel_step=*/2},
                                      {Tensor(odd), /*first_panel=*/1, /*panel_step=*/2}};
    for (const PlannedPart& part : parts) KVRM_RETURN_IF_ERROR(CheckWholePanels(part));
    return Finish(std::move(parts));
  }

  Status CheckWholePanels(const PlannedPart& part) const {
    if (part.rows() % kPanel == 0) return Ok();
    return Unsupported(file_.name() + ": tensor '" + part.tensor->name + "' has " +
                       std::to_string(part.rows()) + " outputs, must be a multiple of " +
                       std::to_string(kPanel));
  }

  Result<PlannedLinear> Finish(std::vector<PlannedPart> parts) {
    PlannedLinear linear;
    linear.shape.encoding = EncodingOf(parts, choice_);
    linear.shape.k = static_cast<uint32_t>(parts[0].tensor->dims[0]);
    for (const PlannedPart& part : parts) linear.shape.n_live += part.rows();
    linear.shape.n = (linear.shape.n_live + kPanel - 1) / kPanel * kPanel;
    if (linear.shape.encoding != Encoding::kF32 && linear.shape.k % kGroup != 0) {
      return Unsupported(file_.name() + ": tensor '" + parts[0].tensor->name + "' has row length " +
                         std::to_string(linear.shape.k) + ", must be a multiple of " +
                         std::to_string(kGroup) + " for encoding " +
                         std::string(EncodingName(linear.shape.encoding)) +
                         " (--weights f32 takes it)");
    }
    linear.parts = std::move(parts);
    linear.arena_offset = Take(linear.bytes());
    return linear;
  }

  const GgufFile& file_;
  const ModelConfig& config_;
  const WeightChoice choice_;
  WeightPlan plan_;
};

}  // namespace

Result<WeightPlan> PlanWeights(const GgufFile& file, const ModelConfig& config,
                               WeightChoice choice) {
  return Planner(file, config, choice).Run();
}

std::string EncodingSummary(const WeightPlan& plan) {
  std::string summary;
  for (const Encoding encoding : {Encoding::kQ4, Encoding::kQ8, Encoding::kF32}) {
    size_t linears = 0;
    for (const auto& layer : plan.layers) {
      for (const PlannedLinear* linear :
           {&layer.qkv, &layer.attn_out, &layer.gate_up, &layer.down}) {
        if (linear->shape.encoding == encoding) linears += linear->parts.size();
      }
    }
    std::string what;
    const auto add = [&what](const std::string& item) {
      what += (what.empty() ? "" : ", ") + item;
    };
    if (linears > 0) add(std::to_string(linears) + " linears");
    if (plan.head && plan.embedding.shape.encoding == encoding) add("embedding");
    const PlannedLinear& head = plan.head ? *plan.head : plan.embedding;
    if (head.shape.encoding == encoding) add("head");
    if (what.empty()) continue;
    summary +=
        (summary.empty() ? "" : ", ") + std::string(EncodingName(encoding)) + " (" + what + ")";
  }
  return summary;
}

}  // namespace kvrm
