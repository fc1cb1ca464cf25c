#include "exec/dispatch.h"

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "base/check.h"

namespace kvrm {
namespace {

using ops::ActivationKind;

struct Call {
  const BoundOp& op;
  const ExecConstants& constants;
  StepTables& step;
  WorkCursor& cursor;
  ops::Scratch scratch;
  ReplayTrace* trace;

  uint32_t live_rows() const {
    return op.rows == RowSet::kLive ? step.num_rows() : step.num_logits();
  }
  // Where an op over the rows with logits finds them among all rows.
  const uint32_t* index(uint8_t gathers) const {
    return gathers != 0 ? step.logits_rows() : nullptr;
  }
  ActivationKind kind() const {
    return op.integer_activations != 0 ? ActivationKind::kInt8 : ActivationKind::kFloat;
  }
  // Everything that an op passes on but live counts, which are data: its id and capacity, then
  // every address and every extent or stride.
  void Hash(std::initializer_list<const void*> addresses,
            std::initializer_list<uint64_t> extents) const {
    if (trace == nullptr) return;
    trace->Add(static_cast<uint64_t>(op.kind) << 48 | uint64_t{op.layer} << 32 | op.max_rows);
    for (const void* address : addresses) trace->AddPointer(address);
    for (const uint64_t extent : extents) trace->Add(extent);
  }
  template <class Fn>
  void ForEachItem(uint32_t num_items, Fn&& fn) const {
    for (uint32_t i = cursor.Claim(); i < num_items; i = cursor.Claim()) fn(i);
  }
  // Rows are claimed in runs. A page's keys lie token beside token, so neighbouring rows of a
  // prompt write the same cache lines; claimed one by one, each line would go from core to core
  // with every row (512 rows: 1.5 us a row, a tenth of that in runs).
  template <class Fn>
  void ForEachRow(Fn&& fn) const {
    constexpr uint32_t kLongestRun = 16;  // the default page
    const uint32_t num_rows = live_rows();
    const uint32_t run = std::clamp(num_rows / (4 * constants.num_threads), 1u, kLongestRun);
    ForEachItem((num_rows + run - 1) / run, [&](uint32_t item) {
      const uint32_t end = std::min((item + 1) * run, num_rows);
      for (uint32_t row = item * run; row < end; ++row) fn(row);
    });
  }
};

void Embed(const Call& c) {
  ops::EmbedArgs args;
  args.panels = c.op.weights;
  args.encoding = c.op.encoding;
  args.k = c.op.k;
  args.rows = c.step.rows();
  args.num_rows = c.live_rows();
  args.out = reinterpret_cast<float*>(c.op.out);
  args.out_stride = c.op.out_stride / sizeof(float);
  args.scale = c.op.scale;
  c.Hash({args.panels, args.out}, {args.k, args.out_stride, static_cast<uint64_t>(args.encoding),
                                   std::bit_cast<uint32_t>(args.scale)});
  c.ForEachRow([&](uint32_t row) { c.constants.kernels->embed(args, row); });
}

void Norm(const Call& c) {
  ops::NormArgs args;
  args.in = reinterpret_cast<const float*>(c.op.in);
  args.in_stride = c.op.in_stride / sizeof(float);
  args.row_index = c.index(c.op.gathers_in);
  args.weight = reinterpret_cast<const float*>(c.op.weights);
  args.eps = c.constants.norm_eps;
  args.k = c.op.k;
  args.num_rows = c.live_rows();
  args.kind = c.kind();
  args.out = c.op.out;
  args.out_stride = c.op.out_stride;
  args.add = c.op.add;
  args.add_index = c.index(c.op.gathers_add);
  c.Hash({args.in, args.row_index, args.weight, args.add, args.add_index, args.out},
         {args.k, args.in_stride, args.out_stride, static_cast<uint64_t>(args.kind)});
  c.ForEachRow([&](uint32_t row) { c.constants.kernels->norm(args, row); });
}

void HeadNorm(const Call& c) {
  ops::HeadNormArgs args;
  args.qkv = reinterpret_cast<float*>(c.op.out);
  args.stride = c.op.out_stride / sizeof(float);
  args.num_rows = c.live_rows();
  args.num_heads = c.constants.num_heads;
  args.num_kv_heads = c.constants.num_kv_heads;
  args.head_dim = c.constants.head_dim;
  args.weight = reinterpret_cast<const float*>(c.op.weights);
  args.eps = c.constants.norm_eps;
  c.Hash({args.qkv, args.weight}, {args.stride});
  c.ForEachRow([&](uint32_t row) { c.constants.kernels->head_norm(args, row); });
}

// Panels of one claimed item: a few per thread for balance, enough of them for long reads.
uint32_t PanelsPerItem(const BoundOp& op, uint32_t num_rows, uint32_t num_threads) {
  if (op.kind == OpKind::kHead) return kPanel;  // 256 outputs, the unit of panel_max
  if (num_rows > 8) return op.kind == OpKind::kGatedLinear ? ops::kGatedPanels : 2;
  const uint32_t share = op.n / kPanel / (num_threads * 8) / 4 * 4;
  static_assert(4 % ops::kGatedPanels == 0);
  return std::clamp(share, 4u, 32u);
}

ops::LinearArgs LinearOf(const Call& c) {
  ops::LinearArgs args{};
  args.in = c.op.in;
  args.in_stride = c.op.in_stride;
  args.panels = c.op.weights;
  args.encoding = c.op.encoding;
  args.k = c.op.k;
  args.n = c.op.n;
  args.num_rows = c.live_rows();
  args.n_live = c.op.n_live;
  args.bias = c.op.bias;
  if (c.trace != nullptr) c.trace->CountLinear();
  return args;
}

void Linear(const Call& c) {
  ops::LinearArgs args = LinearOf(c);
  args.add = c.op.add;
  args.out = reinterpret_cast<float*>(c.op.out);
  args.out_stride = c.op.out_stride / sizeof(float);
  args.panel_max = c.op.kind == OpKind::kHead ? c.constants.panel_max : nullptr;
  args.panel_max_stride = c.constants.num_panels;
  args.soft_cap = c.op.soft_cap;
  args.add_index = c.index(c.op.gathers_add);
  c.Hash({args.in, args.add, args.add_index, args.bias, args.panels, args.out, args.panel_max},
         {args.k, args.n, args.n_live, args.in_stride, args.out_stride, args.panel_max_stride,
          static_cast<uint64_t>(args.encoding), std::bit_cast<uint32_t>(args.soft_cap)});
  if (args.num_rows == 0) return;
  const uint32_t panels = args.n / kPanel;
  const uint32_t grain = PanelsPerItem(c.op, args.num_rows, c.constants.num_threads);
  c.ForEachItem((panels + grain - 1) / grain, [&](uint32_t item) {
    const uint32_t begin = item * grain;
    c.constants.kernels->linear(args, begin, std::min(grain, panels - begin), c.scratch);
  });
}

void GatedLinear(const Call& c) {
  ops::GatedLinearArgs args{};
  args.linear = LinearOf(c);
  args.function =
      c.op.gating == Gating::kSilu ? ops::GateFunction::kSilu : ops::GateFunction::kGeluTanh;
  args.kind = c.kind();
  args.out = c.op.out;
  args.out_stride = c.op.out_stride;
  const ops::LinearArgs& linear = args.linear;
  c.Hash({linear.in, linear.bias, linear.panels, args.out},
         {linear.k, linear.n, linear.in_stride, args.out_stride,
          static_cast<uint64_t>(linear.encoding), static_cast<uint64_t>(args.function),
          static_cast<uint64_t>(args.kind)});
  if (linear.num_rows == 0) return;
  const uint32_t panels = linear.n / kPanel;
  const uint32_t grain = PanelsPerItem(c.op, linear.num_rows, c.constants.num_threads);
  const uint32_t items = (panels + grain - 1) / grain;
  // Groups that lie side by side in a row share cache lines of codes and scales: items that are
  // claimed one after the other, by different workers, are taken far apart.
  const uint32_t stretch = (items + c.constants.num_threads - 1) / c.constants.num_threads;
  c.ForEachItem(stretch * c.constants.num_threads, [&](uint32_t claim) {
    const uint32_t item =
        claim % c.constants.num_threads * stretch + claim / c.constants.num_threads;
    if (item >= items) return;
    const uint32_t begin = item * grain;
    c.constants.kernels->gated_linear(args, begin, std::min(grain, panels - begin), c.scratch);
  });
}

void RopeWrite(const Call& c) {
  ops::RopeWriteArgs args;
  args.qkv = reinterpret_cast<float*>(c.op.out);
  args.stride = c.op.out_stride / sizeof(float);
  args.rows = c.step.rows();
  args.write_offset = c.step.group(c.op.kv_group).write_offset.data();
  args.num_rows = c.live_rows();
  args.num_heads = c.constants.num_heads;
  args.num_kv_heads = c.constants.num_kv_heads;
  args.head_dim = c.constants.head_dim;
  const auto& tables =
      c.op.rope == RopeKind::kLocal ? c.constants.local_rope : c.constants.global_rope;
  args.rope_dims = c.op.rope == RopeKind::kNone ? 0 : c.constants.rope_dims;
  args.interleaved = c.constants.rope_interleaved;
  args.cos_table = tables.cos;
  args.sin_table = tables.sin;
  args.kv_base = c.op.kv_base;
  args.part_offset = c.op.part_offset;
  args.format = c.constants.geometry.groups[c.op.kv_group].format;
  args.row_status = c.step.row_status();
  c.Hash(
      {args.qkv, args.write_offset, args.cos_table, args.sin_table, args.kv_base, args.row_status},
      {args.stride, args.rope_dims, args.part_offset, static_cast<uint64_t>(args.format)});
  c.ForEachRow([&](uint32_t row) { c.constants.kernels->rope_write(args, row); });
}

void Attention(const Call& c) {
  const StepTables::Group& group = c.step.group(c.op.kv_group);
  const StepTables::TaskList& list = c.op.rows == RowSet::kLogits ? group.with_logits : group.all;
  const FrameView& frame = c.step.frame();
  ops::AttentionArgs args;
  args.q = reinterpret_cast<const float*>(c.op.in);
  args.q_stride = c.op.in_stride / sizeof(float);
  args.rows = c.step.rows();
  args.tasks = list.tasks.data();
  args.split_rows = list.split_rows.data();
  args.split_done = c.step.split_done();
  args.partials = c.step.partials();
  args.segments = frame.SlotSegments(c.op.kv_group, 0);
  args.num_segments = group.num_segments.data();
  args.max_pages = frame.max_pages;
  args.kv_base = c.op.kv_base;
  args.part_offset = c.op.part_offset;
  args.page_bytes = c.op.page_bytes;
  args.format = c.constants.geometry.groups[c.op.kv_group].format;
  args.num_heads = c.constants.num_heads;
  args.num_kv_heads = c.constants.num_kv_heads;
  args.head_dim = c.constants.head_dim;
  args.scale = c.constants.attention_scale;
  args.soft_cap = c.op.soft_cap;
  args.window = c.op.window;
  args.width = group.width;
  args.kind = c.kind();
  args.out = c.op.out;
  args.out_stride = c.op.out_stride;
  // The segments' address is the frame's, and the frame is data.
  c.Hash({args.q, args.tasks, args.split_rows, args.split_done, args.partials, args.num_segments,
          args.kv_base, args.out},
         {args.q_stride, args.part_offset, args.page_bytes, args.window, args.out_stride,
          std::bit_cast<uint32_t>(args.soft_cap), static_cast<uint64_t>(args.format)});
  c.ForEachItem(list.num_tasks,
                [&](uint32_t task) { c.constants.kernels->attention(args, task, c.scratch); });
}

}  // namespace

void Dispatch(const BoundOp& op, const ExecConstants& constants, StepTables& step,
              WorkCursor& cursor, ops::Scratch scratch, ReplayTrace* trace) {
  const Call call{op, constants, step, cursor, scratch, trace};
  switch (op.kind) {
    case OpKind::kEmbed:
      return Embed(call);
    case OpKind::kNorm:
      return Norm(call);
    case OpKind::kHeadNorm:
      return HeadNorm(call);
    case OpKind::kLinear:
    case OpKind::kHead:
      return Linear(call);
    case OpKind::kGatedLinear:
      return GatedLinear(call);
    case OpKind::kRopeWrite:
      return RopeWrite(call);
    case OpKind::kAttention:
      return Attention(call);
  }
  KVRM_CHECK(false, "I1: every op kind is dispatched");
}

}  // namespace kvrm
