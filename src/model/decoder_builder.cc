#include "model/decoder_builder.h"

#include <utility>

#include "base/check.h"
#include "model/family.h"
#include "tensor/encoding.h"

namespace kvrm {

DecoderBuilder::DecoderBuilder(const ModelConfig& config, const KvGeometry& geometry,
                               bool integer_activations)
    : config_(config), geometry_(geometry) {
  graph_.integer_activations = integer_activations;
  MakeBuffers();
  const uint32_t heads = config.num_heads + 2 * config.num_kv_heads;
  qkv_ = Floats("qkv", heads * config.head_dim);
}

void DecoderBuilder::MakeBuffers() {
  x_ = residual_ = Floats("x", config_.hidden);
  h_ = Activations("h", config_.hidden);
  attended_ = Activations("attended", config_.num_heads * config_.head_dim);
  inner_ = Activations("inner", config_.ffn);
  update_ = config_.post_norms ? Floats("update", config_.hidden) : kNoValue;
}

void DecoderBuilder::KeepLogitsRows() {
  const ValueIdx all_rows = x_;
  rows_ = RowSet::kLogits;
  MakeBuffers();
  residual_ = all_rows;
}

ValueIdx DecoderBuilder::Floats(const char* name, uint32_t width) {
  graph_.values.push_back({name, ValueKind::kFloatRows, rows_, width, 0, 0});
  return static_cast<ValueIdx>(graph_.values.size() - 1);
}

ValueIdx DecoderBuilder::Activations(const char* name, uint32_t width) {
  graph_.values.push_back({name, ValueKind::kActivationRows, rows_, width, 0, 0});
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

void DecoderBuilder::GateUp() {
  Add(OpKind::kGatedLinear, WeightRole::kGateUp, h_, inner_).gating = config_.gating;
}

void DecoderBuilder::AddFfn() {
  AddToResidual(WeightRole::kDown, inner_, WeightRole::kPostFfnNorm);
}

void DecoderBuilder::AddToResidual(WeightRole linear, ValueIdx in, WeightRole norm) {
  if (!config_.post_norms) {
    Add(OpKind::kLinear, linear, in, x_).add = residual_;
  } else {
    Add(OpKind::kLinear, linear, in, update_);
    Add(OpKind::kNorm, norm, update_, x_).add = residual_;
  }
  residual_ = x_;
}

Graph DecoderBuilder::Finish() {
  KVRM_CHECK(rows_ == RowSet::kLogits, "the head runs over the rows whose logits are wanted");
  layer_ = kNoLayer;
  const ValueIdx logits = Floats("logits", (config_.vocab + kPanel - 1) / kPanel * kPanel);
  Norm(WeightRole::kOutputNorm);
  Add(OpKind::kHead, WeightRole::kHead, h_, logits).soft_cap = config_.logit_soft_cap;
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
    if (layer + 1 == config.num_layers) b.KeepLogitsRows();
    b.Attend();
    b.AddAttention();
    b.Norm(WeightRole::kFfnNorm);
    b.GateUp();
    b.AddFfn();
  }
  return b.Finish();
}

}  // namespace kvrm
