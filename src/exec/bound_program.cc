#include "exec/bound_program.h"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "base/check.h"
#include "ops/op_args.h"

namespace kvrm {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

uint64_t AlignUp(uint64_t bytes, uint64_t to) { return (bytes + to - 1) / to * to; }

const LinearWeights* LinearOf(const Model& model, const Op& op) {
  switch (op.weight) {
    case WeightRole::kQkv:
      return &model.layers()[op.layer].qkv;
    case WeightRole::kAttnOut:
      return &model.layers()[op.layer].attn_out;
    case WeightRole::kGateUp:
      return &model.layers()[op.layer].gate_up;
    case WeightRole::kDown:
      return &model.layers()[op.layer].down;
    case WeightRole::kHead:
      return &model.head();
    case WeightRole::kEmbedding:
      return &model.embedding();
    default:
      return nullptr;
  }
}

const float* NormOf(const Model& model, const Op& op) {
  switch (op.weight) {
    case WeightRole::kAttnNorm:
      return model.layers()[op.layer].attn_norm;
    case WeightRole::kHeadNorms:
      return model.layers()[op.layer].head_norms;
    case WeightRole::kPostAttnNorm:
      return model.layers()[op.layer].post_attn_norm;
    case WeightRole::kPostFfnNorm:
      return model.layers()[op.layer].post_ffn_norm;
    case WeightRole::kFfnNorm:
      return model.layers()[op.layer].ffn_norm;
    case WeightRole::kOutputNorm:
      return model.output_norm();
    default:
      return nullptr;
  }
}

void BindWeights(const Model& model, const Op& op, BoundOp& bound) {
  if (const LinearWeights* linear = LinearOf(model, op)) {
    bound.encoding = linear->encoding;
    bound.n = linear->n;
    bound.n_live = linear->n_live;
    bound.k = linear->k;
    bound.weights = linear->panels;
    if (op.weight == WeightRole::kQkv) bound.bias = model.layers()[op.layer].qkv_bias;
  } else if (const float* norm = NormOf(model, op)) {
    bound.weights = reinterpret_cast<const std::byte*>(norm);
  }
}

// The one place where an op's buffers meet its weights' shapes.
Status CheckShapes(const Program& program, const Op& op, const BoundOp& bound) {
  const auto width = [&](ValueIdx v) { return v == kNoValue ? 0 : program.values[v].width; };
  const bool gated = op.kind == OpKind::kGatedLinear;
  if (op.kind == OpKind::kLinear || gated || op.kind == OpKind::kHead) {
    KVRM_CHECK(bound.k == width(op.in), "a linear's inputs match its buffer");
    KVRM_CHECK(bound.n == (gated ? 2 : 1) * width(op.out), "a linear's outputs match its buffer");
    if ((bound.encoding == Encoding::kF32) == program.integer_activations) {
      return Unsupported(std::string("weights: encoding ") +
                         std::string(EncodingName(bound.encoding)) +
                         " with activations of the other kind; use one of --weights f32 or an "
                         "integer encoding for all linears");
    }
  }
  if (op.sinks || op.chunk_stats) {
    return Unsupported("attention: layer " + std::to_string(op.layer) + " asks for " +
                       (op.sinks ? "sinks" : "(m, l) of each chunk") +
                       ", which the CPU executor does not offer");
  }
  if (op.kind == OpKind::kNorm || gated || op.kind == OpKind::kAttention) {
    const uint32_t multiple = bound.integer_activations != 0 ? kGroup : kPanel;
    if (width(op.out) % multiple != 0) {
      return Unsupported("model: width " + std::to_string(width(op.out)) + " of op " +
                         OpName(op.kind) + " is not a multiple of " + std::to_string(multiple));
    }
  }
  return Ok();
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::Create(uint64_t bytes) {
  auto arena = std::unique_ptr<Arena>(new Arena);
  arena->bytes_ = AlignUp(bytes, bytes >= kHugePage ? kHugePage : 4096);
  // One huge page more than asked for, so that the start can be aligned.
  const uint64_t mapped = arena->bytes_ + kHugePage;
  void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    return NoRoom("memory: cannot map " + std::to_string(mapped) + " bytes for buffers");
  }
  const uint64_t start = reinterpret_cast<uint64_t>(raw);
  const uint64_t aligned = AlignUp(start, kHugePage);
  if (aligned > start) munmap(raw, aligned - start);
  const uint64_t tail = start + mapped - (aligned + arena->bytes_);
  if (tail > 0) munmap(reinterpret_cast<void*>(aligned + arena->bytes_), tail);
  arena->data_ = reinterpret_cast<std::byte*>(aligned);
  madvise(arena->data_, arena->bytes_, MADV_HUGEPAGE);
  std::memset(arena->data_, 0, arena->bytes_);
  return arena;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void Arena::ProtectReadOnly() {
  KVRM_CHECK(mprotect(data_, bytes_, PROT_READ) == 0, "I1: program memory can be made read-only");
}

Result<std::unique_ptr<BoundProgram>> BoundProgram::Create(const Program& program,
                                                           const Model& model,
                                                           const KvGeometry& geometry,
                                                           std::byte* const* kv_base,
                                                           const Arena& arena) {
  auto bound = std::unique_ptr<BoundProgram>(new BoundProgram);
  KVRM_ASSIGN_OR_RETURN(bound->memory_, Arena::Create(program.ops.size() * sizeof(BoundOp)));
  bound->num_ops_ = static_cast<uint32_t>(program.ops.size());
  KVRM_RETURN_IF_ERROR(bound->Bind(program, model, geometry, kv_base, arena));
  return bound;
}

Status BoundProgram::Bind(const Program& program, const Model& model, const KvGeometry& geometry,
                          std::byte* const* kv_base, const Arena& arena) {
  KVRM_CHECK(arena.bytes() >= program.arena_bytes, "I1: the arena holds the program");
  KVRM_CHECK(program.ops.size() == num_ops_, "I1: a program is bound to plans of one graph");
  capacity_ = program.capacity;
  for (uint32_t i = 0; i < num_ops_; ++i) {
    const Op& op = program.ops[i];
    BoundOp b{};
    b.kind = op.kind;
    b.layer = op.layer;
    b.rows = op.rows;
    b.kv_group = op.kv_group;
    const bool floats_out =
        op.kind == OpKind::kNorm && program.values[op.out].kind == ValueKind::kFloatRows;
    b.integer_activations = program.integer_activations && !floats_out ? 1 : 0;
    b.rope = op.rope;
    b.gating = op.gating;
    b.scale = op.scale;
    b.max_rows = op.rows == RowSet::kLive ? program.capacity.max_rows : program.capacity.max_logits;
    const auto gathers = [&](ValueIdx v) -> uint8_t {
      return v != kNoValue && program.values[v].rows != op.rows ? 1 : 0;
    };
    b.gathers_in = gathers(op.in);
    b.gathers_add = gathers(op.add);
    KVRM_CHECK((b.gathers_in == 0 || op.CanGatherIn()) && (b.gathers_add == 0 || op.CanGatherAdd()),
               "I1: an op runs over the rows of its inputs, or gathers them");
    if (op.in != kNoValue) {
      b.in = arena.data() + program.values[op.in].offset;
      b.in_stride = program.values[op.in].row_bytes;
      b.k = program.values[op.in].width;
    }
    if (op.add != kNoValue) {
      b.add = reinterpret_cast<const float*>(arena.data() + program.values[op.add].offset);
    }
    b.out = arena.data() + program.values[op.out].offset;
    b.out_stride = program.values[op.out].row_bytes;
    b.n = program.values[op.out].width;
    b.n_live = b.n;
    const KvGroupGeometry& group = geometry.groups[op.kv_group];
    b.kv_base = kv_base[op.kv_group];
    b.part_offset = op.kv_part * group.part_stride_bytes();
    b.page_bytes = group.part_page_bytes;
    b.soft_cap = op.soft_cap;
    b.window = op.window;
    BindWeights(model, op, b);
    KVRM_CHECK(op.weight == WeightRole::kNone || b.weights != nullptr,
               "a graph names weights that its model has");
    KVRM_RETURN_IF_ERROR(CheckShapes(program, op, b));
    mutable_ops()[i] = b;
  }
  return Ok();
}

}  // namespace kvrm
