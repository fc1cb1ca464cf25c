// Arguments of the ops: raw pointers, extents, strides. Ops know no engine, pager, frame or model.
//
// Every op is cut into items that workers claim in any order; an item writes only its own part of
// the output, so nothing that happens at run time shows in a result (law I5). Shapes are checked
// once, when a program is bound (exec/cpu_executor.cc), not here.
//
// "Activation rows" are rows of `activation_stride` bytes in one of two encodings: float32 [k], or
// int8 groups of 32 with scales (tensor/encoding.h, ActivationLayout).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/kv_view.h"
#include "tensor/encoding.h"
#include "tensor/kv_tile.h"

namespace kvrm::ops {

enum class ActivationKind : uint8_t { kFloat = 0, kInt8 = 1 };

// What a gated linear makes of the gate: x / (1 + exp(-x)), or GELU in its tanh form.
enum class GateFunction : uint8_t { kSilu = 0, kGeluTanh = 1 };
inline constexpr float kGeluLinear = 1.5957691216057308f;  // 2 sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.07135481627260025f;  // 0.044715 times that

// x[row] = embedding row of the row's token, as float, times `scale`.
struct EmbedArgs {
  const std::byte* panels;  // [vocab / 16] panels of `encoding`, row length k
  Encoding encoding;
  uint32_t k;
  const Row* rows;  // [num_rows]
  uint32_t num_rows;
  float* out;         // [num_rows, out_stride]
  size_t out_stride;  // floats
  float scale = 1.0f;
};

// out[row] = (add ? add[row] : 0) + encode(x * (1 / sqrt(mean(x^2) + eps)) * w). Items are rows.
struct NormArgs {
  const float* in;  // [*, in_stride]
  size_t in_stride;
  const uint32_t* row_index;  // [num_rows] input row of each output row; nullptr = the same
  const float* weight;        // [k]
  float eps;
  uint32_t k;  // a multiple of 16; of 32 for kInt8
  uint32_t num_rows;
  ActivationKind kind;
  std::byte* out;                       // [num_rows] activation rows
  size_t out_stride;                    // bytes
  const float* add = nullptr;           // rows of out_stride bytes, kFloat alone; may be `out`
  const uint32_t* add_index = nullptr;  // [num_rows] row of `add` of each output row, as row_index
};

// Each query head and each key head of a row, normed on its own, in place, as NormArgs does.
// qkv = [q heads | k heads | v heads], head_dim each. Items are rows.
struct HeadNormArgs {
  float* qkv;     // [num_rows, stride]
  size_t stride;  // floats
  uint32_t num_rows;
  uint32_t num_heads, num_kv_heads, head_dim;  // head_dim: a multiple of 16
  const float* weight;                         // [2, head_dim]: of queries, of keys
  float eps;
};

// out[row, n] = (add ? add[row, n] : 0) + (bias[n] + sum_k w[n, k] x[row, k]); `add` may be `out`.
// With a soft cap: cap * tanh(out / cap), of the n_live outputs.
// Items are runs of panels.
struct LinearArgs {
  const std::byte* in;      // [num_rows] activation rows: kFloat for kF32, else kInt8
  size_t in_stride;         // bytes
  const std::byte* panels;  // [n / 16] panels
  Encoding encoding;
  uint32_t k;
  uint32_t n;  // a multiple of 16
  uint32_t num_rows;
  const float* add;         // [*, out_stride] or nullptr
  float* out;               // [num_rows, out_stride]
  size_t out_stride;        // floats
  float* panel_max;         // [num_rows, panel_max_stride] maxima of 256 outputs, or nullptr; then
  size_t panel_max_stride;  // items must begin at multiples of 16 panels
  uint32_t n_live;          // outputs that count in panel_max
  const float* bias = nullptr;          // [n], or none
  float soft_cap = 0.0f;                // 0 = none
  const uint32_t* add_index = nullptr;  // [num_rows] row of `add` of each; nullptr = the same
};

// out[row] = encode(function(gate) * up), where the outputs of `linear` alternate in blocks of 16:
// gate, up. Items are runs of panels, multiples of kGatedPanels but for the last.
struct GatedLinearArgs {
  LinearArgs linear;  // its out, add, panel_max and soft_cap are not used
  GateFunction function = GateFunction::kSilu;
  ActivationKind kind;
  std::byte* out;     // [num_rows] activation rows of width n / 2, a multiple of 32 for kInt8
  size_t out_stride;  // bytes
};
inline constexpr uint32_t kGatedPanels = 4;  // one encoded group of outputs

// Rotates the queries in place; rotates, encodes and writes K and V of each row into its page.
// qkv = [q heads | k heads | v heads], head_dim each. Items are rows.
struct RopeWriteArgs {
  float* qkv;     // [num_rows, stride]
  size_t stride;  // floats
  const Row* rows;
  const uint64_t* write_offset;  // [num_rows] byte offset of the page (part 0) from kv_base
  uint32_t num_rows;
  uint32_t num_heads, num_kv_heads, head_dim;
  uint32_t rope_dims;      // 0 = nothing is rotated, the tables are not read
  bool interleaved;        // pairs (2i, 2i+1), else (i, i + rope_dims / 2)
  const float* cos_table;  // [max positions, rope_dims / 2]
  const float* sin_table;
  std::byte* kv_base;
  uint64_t part_offset;  // part * part stride
  KvFormat format;
  uint8_t* row_status;  // [num_rows]; set to 1 (non-finite) where q, k or v is not finite
};

// One piece of attention work: rows that share a slot, chunks of the KV, a range of KV heads.
// Made once a step by the executor, the same for all layers.
struct AttentionTask {
  uint32_t row_begin;
  uint16_t num_rows;  // 1..kMaxTaskRows, adjacent rows of one slot
  uint16_t slot;
  uint16_t kv_head_begin, kv_head_end;
  uint32_t chunk_begin, chunk_end;  // chunks of kChunkTokens at absolute token indices
  uint32_t split;                   // kNone32: all chunks of its rows. Else index into SplitRow
  uint32_t out_begin;               // row of the output for row_begin; the others follow
};
inline constexpr uint32_t kMaxTaskRows = 16;
inline constexpr uint32_t kFloatTaskRows = 4;  // more gain nothing with float pages

// A row whose chunks are spread over several tasks: partial states are stored, and the task that
// finishes last folds them in index order.
struct SplitRow {
  uint32_t row;
  uint32_t out_row;
  uint32_t num_chunks;
  uint32_t num_tasks;
  uint32_t partial_begin;  // first of num_chunks partials, each [num_heads, head_dim + 2] floats:
                           // o, m, l. Chunks that the row does not see need no task
};

struct AttentionArgs {
  const float* q;  // [num_rows, q_stride], rotated; head h at h * head_dim
  size_t q_stride;
  const Row* rows;
  const AttentionTask* tasks;  // [num_tasks]
  const SplitRow* split_rows;
  std::atomic<uint32_t>* split_done;  // [splits] tasks finished in this op; reset by the last
  float* partials;
  const Segment* segments;       // [slot][max_pages]
  const uint32_t* num_segments;  // [slot]
  uint32_t max_pages;
  const std::byte* kv_base;
  uint64_t part_offset;
  uint64_t page_bytes;  // b: distance of adjacent pages within the part
  KvFormat format;
  uint32_t num_heads, num_kv_heads, head_dim;
  float scale;
  float soft_cap;   // 0 = none
  uint32_t window;  // 0 = none; else tokens seen, the current one included
  // Token places that every row reads, as a backend of fixed width must: those behind what it sees
  // are computed and thrown away, whatever bytes they hold. 0 = none of them. Segments cover them.
  uint32_t width;
  ActivationKind kind;
  std::byte* out;     // activation rows of width num_heads * head_dim
  size_t out_stride;  // bytes
};
inline constexpr uint32_t kPageTokens = kKvTileTokens;
#ifndef KVRM_CHUNK_TOKENS  // defined by bench/ alone, to measure other lengths
#define KVRM_CHUNK_TOKENS 256
#endif
inline constexpr uint32_t kChunkTokens = KVRM_CHUNK_TOKENS;  // num-1, rule 6; docs/decisions/001
inline constexpr size_t kTileQueries = 6;                    // of a KV head, in registers at once

// Scratch of one worker, sized at start. 64-byte aligned.
struct Scratch {
  std::byte* data;
  size_t bytes;
};
struct ScratchNeed {
  uint32_t num_heads;
  uint32_t num_kv_heads;
  uint32_t head_dim;
  uint32_t max_k;  // of all linears
};
// What linear_amx.h keeps there: panels, unpacked, of so many bytes a group.
inline constexpr uint32_t kUnpackedPanels = 4;
inline constexpr size_t kUnpackedGroupBytes = 640;

size_t ScratchBytes(const ScratchNeed& need);

// The ops of one machine. Same names, same argument order, same bits.
struct KernelTable {
  const char* name;  // "amx", "avx512", "avx2", "portable", "reference"
  void (*embed)(const EmbedArgs&, uint32_t row);
  void (*norm)(const NormArgs&, uint32_t row);
  void (*head_norm)(const HeadNormArgs&, uint32_t row);
  void (*linear)(const LinearArgs&, uint32_t panel_begin, uint32_t num_panels, Scratch);
  void (*gated_linear)(const GatedLinearArgs&, uint32_t panel_begin, uint32_t num_panels, Scratch);
  void (*rope_write)(const RopeWriteArgs&, uint32_t row);
  void (*attention)(const AttentionArgs&, uint32_t task, Scratch);
  uint32_t int8_task_rows = kFloatTaskRows;  // of a task over int8 pages, at most
};

// nullptr where this CPU (or this build) does not offer it. The others always exist.
const KernelTable* AmxKernels();
const KernelTable* Avx512Kernels();
const KernelTable* Avx2Kernels();
const KernelTable& PortableKernels();
const KernelTable& ReferenceKernels();  // plain loops: the contract, written down

}  // namespace kvrm::ops
