#include "model/llama_graph.h"

#include <utility>

#include "tensor/encoding.h"

namespace kvrm {
namespace {

class Builder {
 public:
  explicit Builder(bool integer_activations) { graph_.integer_activations = integer_activations; }

  ValueIdx Floats(const char* name, uint32_t width, RowSet rows = RowSet::kLive) {
    graph_.values.push_back({name, ValueKind::kFloatRows, rows, width, 0, 0});
    return static_cast<ValueIdx>(graph_.values.size() - 1);
  }
  ValueIdx Activations(const char* name, uint32_t width, RowSet rows = RowSet::kLive) {
    graph_.values.push_back({name, ValueKind::kActivationRows, rows, width, 0, 0});
    return static_cast<ValueIdx>(graph_.values.size() - 1);
  }
  // Ops of layer `layer_` unless said otherwise.
  Op& Add(OpKind kind, WeightRole weight, ValueIdx in, ValueIdx out) {
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
  void SetLayer(uint16_t layer) { layer_ = layer; }
  Graph Take() { return std::move(graph_); }

 private:
  Graph graph_;
  uint16_t layer_ = kNoLayer;
};

}  // namespace

Graph BuildLlamaGraph(const ModelConfig& config, const KvGeometry& geometry,
                      bool integer_activations) {
  Builder b(integer_activations);
  const uint32_t heads_width = config.num_heads * config.head_dim;
  const uint32_t kv_width = config.num_kv_heads * config.head_dim;
  const uint32_t padded_vocab = (config.vocab + kPanel - 1) / kPanel * kPanel;
  const ValueIdx x = b.Floats("x", config.hidden);
  const ValueIdx h = b.Activations("h", config.hidden);
  const ValueIdx qkv = b.Floats("qkv", heads_width + 2 * kv_width);
  const ValueIdx attended = b.Activations("attended", heads_width);
  const ValueIdx gate_up = b.Floats("gate_up", 2 * config.ffn);
  const ValueIdx inner = b.Activations("inner", config.ffn);
  const ValueIdx last = b.Activations("last", config.hidden, RowSet::kLogits);
  const ValueIdx logits = b.Floats("logits", padded_vocab, RowSet::kLogits);

  b.Add(OpKind::kEmbed, WeightRole::kEmbedding, kNoValue, x);
  for (uint16_t layer = 0; layer < config.num_layers; ++layer) {
    b.SetLayer(layer);
    b.Add(OpKind::kNorm, WeightRole::kAttnNorm, x, h);
    b.Add(OpKind::kLinear, WeightRole::kQkv, h, qkv);
    for (const OpKind kind : {OpKind::kRopeWrite, OpKind::kAttention}) {
      Op& op = b.Add(kind, WeightRole::kNone, qkv, kind == OpKind::kAttention ? attended : qkv);
      op.kv_group = geometry.layer_group[layer];
      op.kv_part = geometry.layer_part[layer];
      op.window = geometry.groups[op.kv_group].window_tokens;
    }
    b.Add(OpKind::kLinear, WeightRole::kAttnOut, attended, x).add = x;
    b.Add(OpKind::kNorm, WeightRole::kFfnNorm, x, h);
    b.Add(OpKind::kLinear, WeightRole::kGateUp, h, gate_up);
    b.Add(OpKind::kActivation, WeightRole::kNone, gate_up, inner);
    b.Add(OpKind::kLinear, WeightRole::kDown, inner, x).add = x;
  }
  b.SetLayer(kNoLayer);
  b.Add(OpKind::kNorm, WeightRole::kOutputNorm, x, last);
  b.Add(OpKind::kHead, WeightRole::kHead, last, logits);
  return b.Take();
}

}  // namespace kvrm
