// The words in which the graph of a step is written: a decoder's ops one after the other, over the
// buffers that every decoder has. One call, one op, or two where what is added is normed first; its
// order is the forward pass (BuildDecoderGraph, which reads as one).
//
//   x          [hidden] floats: the residual stream
//   h          [hidden] activations: x normed, what linears read
//   qkv        q heads, k heads, v heads; attended: what attention gives
//   inner      gates times what they gate
//   update     [hidden] floats: what attention or ffn adds, where that is normed first
//
// Thread-compatible.
#pragma once

#include "base/kv_view.h"
#include "graph/program.h"
#include "model/config.h"

namespace kvrm {

class DecoderBuilder {
 public:
  // `config` and `geometry` outlive the builder.
  DecoderBuilder(const ModelConfig& config, const KvGeometry& geometry, bool integer_activations);

  void Embed();
  // The ops up to the next call are of this layer.
  void BeginLayer(uint32_t layer) { layer_ = static_cast<uint16_t>(layer); }
  void Norm(WeightRole weight);  // h = norm(x)
  void Qkv();                    // qkv = W h (+ bias, where the model has one)
  void HeadNorms();              // each q and k head of qkv normed
  void Rope();                   // q and k rotated as the layer says; K and V into their page
  // From here on only the rows whose logits are wanted: keys and values are written, and no later
  // layer asks for the others. Called once, in the last layer.
  void KeepLogitsRows();
  void Attend();        // attended = attention(q)
  void AddAttention();  // x += W attended, or norm(W attended)
  void GateUp();        // inner = gating(gate) * up
  void AddFfn();        // x += W inner, or norm(W inner)
  // The output norm and the head. The last call. Requires: KeepLogitsRows was called.
  Graph Finish();

 private:
  ValueIdx Floats(const char* name, uint32_t width);
  ValueIdx Activations(const char* name, uint32_t width);
  // The buffers of what comes behind rope, for the rows at hand.
  void MakeBuffers();
  Op& Add(OpKind kind, WeightRole weight, ValueIdx in, ValueIdx out);
  Op& AddKv(OpKind kind, ValueIdx out);
  // `norm`: of what is added, where the model has such norms.
  void AddToResidual(WeightRole linear, ValueIdx in, WeightRole norm);

  const ModelConfig& config_;
  const KvGeometry& geometry_;
  Graph graph_;
  uint16_t layer_ = kNoLayer;
  RowSet rows_ = RowSet::kLive;
  ValueIdx residual_ = kNoValue;  // x before what is added next: x itself, or x of more rows
  ValueIdx x_, h_, qkv_, attended_, inner_, update_;
};

}  // namespace kvrm
