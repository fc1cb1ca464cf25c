#include "model/decoder_builder.h"

#include <utility>

#include "model/family.h"
#include "tensor/encoding.h"

namespace kvrm {

DecoderBuilder::DecoderBuilder(const ModelConfig& config, const KvGeometry& geometry,
                               bool integer_activations)
    : config_(config), geometry_(geometry) {
  graph_.integer_activations = integer_activations;
  const uint32_t heads_width = config.num_heads * config.head_dim;
  const uint32_t kv_width = config.num_kv_heads * config.head_dim;
  x_ = Floats("x", config.hidden);
  h_ = Activations("h", config.hidden);
  qkv_ = Floats("qkv", heads_width + 2 * kv_width);
  attended_ = Activations("attended", heads_width);
  gate_up_ = Floats("gate_up", 2 * config.ffn);
  inner_ = Activations("inner", config.ffn);
  update_ = config.post_norms ? Floats("update", config.hidden) : kNoValue;
  last_ = Activations("last", config.hidden, RowSet::kLogits);
  logits_ = Floats("logits", (config.vocab + kPanel - 1) / kPanel * kPanel, RowSet::kLogits);
}

ValueIdx DecoderBuilder::Floats(const char* name, uint32_t width, RowSet rows) {
  graph_.values.push_back({name, ValueKind::kFloatRows, rows, width, 0, 0});
  return static_cast<ValueIdx>(graph_.values.size() - 1);
}

ValueIdx DecoderBuilder::Activations(const char* name, uint32_t width, RowSet rows) {
  graph_.values.push_back({name, ValueKind::kActivationRows, rows, width, 0, 0});
  return static_cast<ValueIdx>(graph_.values.size() - 1);
}

Op& DecoderBuilder::Add(OpKind kind, WeightRole weight, ValueIdx in, ValueIdx out) {
  Op op;
  op.kind = kind;
  op.layer = layer_;
  op.weight = weight;
  op.in = in;
  op.out = out;
  op.rows = graph_.values[out].rows;
  graph_.ops.push_back(op);
  return graph_.ops.back();
}

Op& DecoderBuilder::AddKv(OpKind kind, ValueIdx out) {
  Op& op = Add(kind, WeightRole::kNone, qkv_, out);
  op.kv_group = geometry_.layer_group[layer_];
  op.kv_part = geometry_.layer_part[layer_];
  op.window = geometry_.groups[op.kv_group].window_tokens;
  return op;
}

void DecoderBuilder::Embed() {
  Add(OpKind::kEmbed, WeightRole::kEmbedding, kNoValue, x_).scale = config_.embedding_scale;
}

void DecoderBuilder::Norm(WeightRole weight) { Add(OpKind::kNorm, weight, x_, h_); }

void DecoderBuilder::Qkv() { Add(OpKind::kLinear, WeightRole::kQkv, h_, qkv_); }

void DecoderBuilder::HeadNorms() { Add(OpKind::kHeadNorm, WeightRole::kHeadNorms, qkv_, qkv_); }

void DecoderBuilder::Rope() { AddKv(OpKind::kRopeWrite, qkv_).rope = config_.layers[layer_].rope; }

void DecoderBuilder::Attend() {
  AddKv(OpKind::kAttention, attended_).soft_cap = config_.attention_soft_cap;
}

void DecoderBuilder::AddAttention() {
  AddToResidual(WeightRole::kAttnOut, attended_, WeightRole::kPostAttnNorm);
}

void DecoderBuilder::GateUp() { Add(OpKind::kLinear, WeightRole::kGateUp, h_, gate_up_); }

void DecoderBuilder::Gate() {
  Add(OpKind::kActivation, WeightRole::kNone, gate_up_, inner_).gating = config_.gating;
}

void DecoderBuilder::AddFfn() {
  AddToResidual(WeightRole::kDown, inner_, WeightRole::kPostFfnNorm);
}

void DecoderBuilder::AddToResidual(WeightRole linear, ValueIdx in, WeightRole norm) {
  if (!config_.post_norms) {
    Add(OpKind::kLinear, linear, in, x_).add = x_;
    return;
  }
  Add(OpKind::kLinear, linear, in, update_);
  Add(OpKind::kNorm, norm, update_, x_).add = x_;
}

Graph DecoderBuilder::Finish() {
  layer_ = kNoLayer;
  Add(OpKind::kNorm, WeightRole::kOutputNorm, x_, last_);
  Add(OpKind::kHead, WeightRole::kHead, last_, logits_).soft_cap = config_.logit_soft_cap;
  return std::move(graph_);
}

Graph BuildDecoderGraph(const ModelConfig& config, const KvGeometry& geometry,
                        bool integer_activations) {
  DecoderBuilder b(config, geometry, integer_activations);
  b.Embed();
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    b.BeginLayer(layer);
    b.Norm(WeightRole::kAttnNorm);
    b.Qkv();
    if (config.head_norms) b.HeadNorms();
    b.Rope();
    b.Attend();
    b.AddAttention();
    b.Norm(WeightRole::kFfnNorm);
    b.GateUp();
    b.Gate();
    b.AddFfn();
  }
  return b.Finish();
}

}  // namespace kvrm
