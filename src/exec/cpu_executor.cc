#include "exec/cpu_executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "exec/bound_program.h"
#include "exec/dispatch.h"
#include "exec/memory_need.h"
#include "exec/step_tables.h"
#include "exec/warm_up_frame.h"
#include "graph/program.h"
#include "model/family.h"
#include "tensor/kv_tile.h"

namespace kvrm {
namespace {

Result<const ops::KernelTable*> ChooseKernels(SimdLevel level) {
  const ops::KernelTable* amx = ops::AmxKernels();
  const ops::KernelTable* avx512 = ops::Avx512Kernels();
  const ops::KernelTable* avx2 = ops::Avx2Kernels();
  switch (level) {
    case SimdLevel::kAmx:
      if (amx == nullptr) return Unsupported("simd: amx (with AVX-512 VNNI) is not on this CPU");
      return amx;
    case SimdLevel::kAvx512:
      if (avx512 == nullptr) return Unsupported("simd: avx512 (with VNNI) is not on this CPU");
      return avx512;
    case SimdLevel::kAvx2:
      if (avx2 == nullptr) return Unsupported("simd: avx2 (with FMA, F16C) is not on this CPU");
      return avx2;
    case SimdLevel::kPortable:
      return &ops::PortableKernels();
    case SimdLevel::kAuto:
      break;
  }
  if (amx != nullptr) return amx;
  if (avx512 != nullptr) return avx512;
  return avx2 != nullptr ? avx2 : &ops::PortableKernels();
}

uint64_t NowNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const Model& model, const CpuExecutorConfig& config, WorkerPool& pool)
      : model_(model), config_(config), pool_(pool) {}

  Status Init();
  const ExecutorInfo& info() const override { return info_; }
  void WarmUp() override;
  StepResult Replay(const FrameView& frame) override;
  const ExecutorCounters& counters() const override { return counters_; }

 private:
  struct Region {
    CpuExecutor* self;
    const BoundProgram* program;
    ReplayTrace trace;
  };

  Status BuildPrograms();
  Status BuildConstants();
  ExecConstants::RopeTables MakeRopeTables(const RopeConfig& rope, float* out) const;
  void TakeStepSamples();
  ProgramKind Choose(uint32_t num_rows) const;
  StepResult Run(ProgramKind kind, const FrameView& frame, ReplayTrace* trace);
  StepResult Run(const BoundProgram& program, const FrameView& frame, ReplayTrace* trace);
  void PlanExactly(const FrameHead& head);
  // Token places that a slot's table covers at least.
  uint32_t TableTokens() const {
    return config_.kv_width == KvWidth::kLive ? 0 : config_.max_seq_tokens;
  }
  static void RunRegion(void* arg, uint32_t worker);
  void DispatchMutant(BoundOp op, uint32_t index, ops::Scratch scratch, ReplayTrace* trace);

  const Model& model_;
  const CpuExecutorConfig config_;
  WorkerPool& pool_;
  ExecutorInfo info_;
  ExecutorCounters counters_;
  ExecConstants constants_;
  std::unique_ptr<Arena> arena_;    // activations and logits of all programs
  std::unique_ptr<Arena> tables_;   // cos, sin, panel maxima
  std::unique_ptr<Arena> scratch_;  // [threads] of scratch_bytes_
  uint64_t scratch_bytes_ = 0;
  std::unique_ptr<BoundProgram> programs_[kNumPrograms];
  Graph graph_;                          // exact_shapes: what each replay plans anew
  std::unique_ptr<BoundProgram> exact_;  // exact_shapes: of the step at hand
  uint64_t warm_hash_[kNumPrograms] = {};
  std::unique_ptr<StepTables> step_;
  std::unique_ptr<WorkCursor[]> cursors_;
  uint32_t num_cursors_ = 0;
  bool warm_ = false;
};

Status CpuExecutor::Init() {
  const ModelConfig& m = model_.config();
  KVRM_ASSIGN_OR_RETURN(constants_.kernels, ChooseKernels(config_.simd));
  info_.name = std::string("cpu-") + constants_.kernels->name;
  info_.invariance = InvarianceClass::kFull;
  info_.vocab = m.vocab;
  info_.max_slots = config_.max_slots;
  info_.max_rows[0] = config_.max_slots;
  info_.max_rows[1] = config_.max_slots + config_.mixed_rows;
  info_.max_rows[2] = config_.max_slots + config_.prefill_rows;
  info_.max_logits = config_.max_slots;
  if (m.head_dim % kPanel != 0 || m.rope_dims % 2 != 0 || m.rope_dims > m.head_dim) {
    return Unsupported("model: head_dim " + std::to_string(m.head_dim) + " with rope dimensions " +
                       std::to_string(m.rope_dims) +
                       "; head_dim must be a multiple of 16, rope dimensions even and no more");
  }
  const uint32_t group_width = m.num_heads / m.num_kv_heads * m.head_dim;
  if (model_.head().encoding != Encoding::kF32 && group_width % kGroup != 0) {
    return Unsupported("model: query heads of a KV head span " + std::to_string(group_width) +
                       " values; integer encodings need a multiple of " + std::to_string(kGroup) +
                       ", use --weights f32");
  }
  for (const KvGroupGeometry& group : config_.geometry.groups) {
    const uint64_t bytes = m.num_kv_heads * KvTileOf(group.format, m.head_dim).head_bytes;
    if (group.page_tokens != ops::kPageTokens || group.part_page_bytes != bytes) {
      return Unsupported("kv: pages of " + std::to_string(group.page_tokens) + " tokens, " +
                         std::to_string(group.part_page_bytes) +
                         " bytes a layer; kernels are built for 16 tokens, here " +
                         std::to_string(bytes) + " bytes");
    }
  }
  KVRM_RETURN_IF_ERROR(BuildConstants());
  KVRM_RETURN_IF_ERROR(BuildPrograms());
  StepTablesConfig step;
  step.geometry = config_.geometry;
  step.max_rows = info_.max_rows[2];
  step.max_logits = info_.max_logits;
  step.max_slots = config_.max_slots;
  step.max_seq_tokens = config_.max_seq_tokens;
  step.kv_width = config_.kv_width;
  step.logits_group = config_.geometry.layer_group.back();
  step.num_threads = pool_.num_threads();
  step.num_heads = m.num_heads;
  step.num_kv_heads = m.num_kv_heads;
  step.head_dim = m.head_dim;
  const bool int8_pages = config_.geometry.groups[0].format == KvFormat::kInt8;
  step.task_rows = int8_pages ? constants_.kernels->int8_task_rows : ops::kFloatTaskRows;
  step_ = std::make_unique<StepTables>(step);
  return Ok();
}

// Writes the tables of all positions, cos then sin, from `out` on.
ExecConstants::RopeTables CpuExecutor::MakeRopeTables(const RopeConfig& rope, float* out) const {
  const uint32_t dims = model_.config().rope_dims;
  const uint32_t half = dims / 2;
  float* const cos_table = out;
  float* const sin_table = out + uint64_t{config_.max_seq_tokens} * half;
  for (uint32_t i = 0; i < half; ++i) {
    double frequency = std::pow(rope.base, -2.0 * i / dims);
    if (!rope.factors.empty()) frequency /= rope.factors[i];
    for (uint32_t position = 0; position < config_.max_seq_tokens; ++position) {
      const double angle = position * frequency;
      const uint64_t at = uint64_t{position} * half + i;
      cos_table[at] = static_cast<float>(rope.amplitude * std::cos(angle));
      sin_table[at] = static_cast<float>(rope.amplitude * std::sin(angle));
    }
  }
  return {cos_table, sin_table};
}

Status CpuExecutor::BuildConstants() {
  const ModelConfig& m = model_.config();
  const uint32_t half = m.rope_dims / 2;
  const uint64_t table_floats = uint64_t{config_.max_seq_tokens} * half;
  constants_.num_panels = (m.vocab + 255) / 256;
  const uint64_t max_floats = uint64_t{info_.max_logits} * constants_.num_panels;
  const uint64_t num_tables = m.UsesLocalRope() ? 4 : 2;
  KVRM_ASSIGN_OR_RETURN(tables_,
                        Arena::Create((num_tables * table_floats + max_floats) * sizeof(float)));
  float* next = reinterpret_cast<float*>(tables_->data());
  constants_.global_rope = MakeRopeTables(m.rope, next);
  next += 2 * table_floats;
  if (m.UsesLocalRope()) {
    constants_.local_rope = MakeRopeTables(m.local_rope, next);
    next += 2 * table_floats;
  }
  constants_.panel_max = next;
  constants_.num_heads = m.num_heads;
  constants_.num_kv_heads = m.num_kv_heads;
  constants_.head_dim = m.head_dim;
  constants_.rope_dims = m.rope_dims;
  constants_.rope_interleaved = m.rope_layout == RopeLayout::kInterleaved;
  constants_.norm_eps = m.norm_eps;
  constants_.attention_scale = m.attention_scale;
  constants_.geometry = config_.geometry;
  constants_.num_threads = pool_.num_threads();
  scratch_bytes_ = ops::ScratchBytes(ScratchNeedOf(m));
  KVRM_ASSIGN_OR_RETURN(scratch_, Arena::Create(scratch_bytes_ * pool_.num_threads()));
  return Ok();
}

Status CpuExecutor::BuildPrograms() {
  const bool integer = model_.head().encoding != Encoding::kF32;
  graph_ = BuildGraph(model_.config(), config_.geometry, integer);
  Program programs[kNumPrograms];
  uint64_t arena_bytes = 0;
  for (uint32_t i = 0; i < kNumPrograms; ++i) {
    programs[i] = PlanProgram(graph_, {info_.max_rows[i], info_.max_logits});
    arena_bytes = std::max(arena_bytes, programs[i].arena_bytes);
  }
  KVRM_ASSIGN_OR_RETURN(arena_, Arena::Create(arena_bytes));
  for (uint32_t i = 0; i < kNumPrograms; ++i) {
    KVRM_ASSIGN_OR_RETURN(programs_[i], BoundProgram::Create(programs[i], model_, config_.geometry,
                                                             config_.kv_base, *arena_));
  }
  if (config_.exact_shapes) {
    KVRM_ASSIGN_OR_RETURN(exact_, BoundProgram::Create(programs[0], model_, config_.geometry,
                                                       config_.kv_base, *arena_));
  }
  num_cursors_ = programs_[0]->num_ops();
  cursors_ = std::make_unique<WorkCursor[]>(num_cursors_);
  if (config_.op_times != nullptr) {
    config_.op_times->clear();
    for (uint32_t i = 0; i < num_cursors_; ++i) {
      const BoundOp& op = programs_[0]->ops()[i];
      config_.op_times->push_back({op.kind, op.layer, op.rows, op.encoding, op.n, op.k, 0});
    }
  }
  return Ok();
}

void CpuExecutor::WarmUp() {
  KVRM_CHECK(!warm_, "I1: warm-up runs once");
  WarmUpFrame frame(config_.geometry, info_.max_rows[kNumPrograms - 1], info_.max_logits,
                    /*max_position=*/0, TableTokens());
  for (uint32_t i = 0; i < kNumPrograms; ++i) {
    // Not all rows: the buffers are in memory since they were made, and the widest program alone
    // would take as long as all the rest of a start.
    for (const uint32_t rows : {0u, 1u}) {
      ReplayTrace trace;
      Run(static_cast<ProgramKind>(i), frame.View(rows), &trace);
      KVRM_CHECK(rows == 0 || trace.hash() == warm_hash_[i],
                 "I1: the replay hash does not depend on live rows");
      warm_hash_[i] = trace.hash();
    }
    if (config_.protect_program) programs_[i]->ProtectReadOnly();
  }
  TakeStepSamples();
  counters_ = ExecutorCounters{};
  std::copy(std::begin(warm_hash_), std::end(warm_hash_), std::begin(counters_.replay_hash));
  warm_ = true;
}

// A few steps, each timed at its best of two, for the scheduler's cost model: row counts at place
// 0, then a lone row and a piece of a prompt far out. Slow weights are not waited for: a step that
// is going to take more than kLongestSample gets fewer rows or is left out, one over kLongSample is
// taken once. There are two row counts in any case: from one nobody could tell what a row more
// costs. The lone row is taken twice whatever it took, because the others follow from it.
void CpuExecutor::TakeStepSamples() {
  constexpr int64_t kLongestSampleUs = 100'000, kLongSampleUs = 15'000;
  constexpr uint32_t kFar = 2048, kPieceRows = 32;
  const uint32_t widest = info_.max_rows[kNumPrograms - 1];
  const uint32_t far = std::min(kFar, config_.max_seq_tokens - 1);
  WarmUpFrame frame(config_.geometry, widest, info_.max_logits, far, TableTokens());
  SystemClock clock;
  const auto take = [&](uint32_t rows, uint32_t position) {
    int64_t best_us = std::numeric_limits<int64_t>::max();
    const int64_t again_below_us = rows == 1 ? kLongestSampleUs : kLongSampleUs;
    for (int i = 0; i < 2 && (i == 0 || best_us < again_below_us); ++i) {
      const FrameView view = position == 0 ? frame.View(rows) : frame.View(rows, position);
      const int64_t begin_us = clock.NowUs();
      ReplayTrace trace;
      Run(Choose(rows), view, &trace);
      best_us = std::min(best_us, clock.NowUs() - begin_us);
    }
    info_.step_samples.push_back({rows, position, std::max<int64_t>(best_us, 1)});
    return best_us;
  };
  int64_t row_us = 0;
  for (const uint32_t wanted : {1u, info_.max_slots, 4 * kPieceRows}) {
    const int64_t affordable = row_us == 0 ? 1 : std::max<int64_t>(kLongestSampleUs / row_us, 2);
    const auto rows = static_cast<uint32_t>(std::min<int64_t>({wanted, widest, affordable}));
    if (!info_.step_samples.empty() && info_.step_samples.back().rows >= rows) continue;
    row_us = std::max<int64_t>(take(rows, 0) / rows, 1);
  }
  for (const uint32_t rows : {1u, kPieceRows}) {
    if (rows <= widest && far >= 2 * rows && 2 * rows * row_us <= kLongestSampleUs) take(rows, far);
  }
}

ProgramKind CpuExecutor::Choose(uint32_t num_rows) const {
  for (uint32_t i = 0; i + 1 < kNumPrograms; ++i) {
    if (num_rows <= info_.max_rows[i]) return static_cast<ProgramKind>(i);
  }
  return ProgramKind::kPrefill;
}

void CpuExecutor::RunRegion(void* arg, uint32_t worker) {
  Region& region = *static_cast<Region*>(arg);
  CpuExecutor& self = *region.self;
  KVRM_DCHECK(2, FloatEnvironmentIsSet(), "num-1 rule 9: MXCSR is equal on all workers");
  const ops::Scratch scratch{self.scratch_->data() + worker * self.scratch_bytes_,
                             self.scratch_bytes_};
  const BoundOp* ops = region.program->ops();
  OpTimes* const times = worker == 0 ? self.config_.op_times : nullptr;
  uint64_t began_ns = times != nullptr ? NowNs() : 0;
  for (uint32_t i = 0; i < region.program->num_ops(); ++i) {
    ReplayTrace* const trace = worker == 0 ? &region.trace : nullptr;
    if (self.warm_ && self.config_.mutant != ReplayMutant::kNone && i == self.config_.mutant_op)
        [[unlikely]] {
      self.DispatchMutant(ops[i], i, scratch, trace);
    } else {
      Dispatch(ops[i], self.constants_, *self.step_, self.cursors_[i], scratch, trace);
    }
    self.pool_.Barrier();
    if (times != nullptr) [[unlikely]] {
      const uint64_t now_ns = NowNs();
      (*times)[i].ns += now_ns - began_ns;
      began_ns = now_ns;
    }
  }
}

// A moved address is hashed but not used: the op runs on no rows, so that a test may move anything.
void CpuExecutor::DispatchMutant(BoundOp op, uint32_t index, ops::Scratch scratch,
                                 ReplayTrace* trace) {
  switch (config_.mutant) {
    case ReplayMutant::kNone:
      return;
    case ReplayMutant::kDropOp:
      return;
    case ReplayMutant::kMoveInput:
      op.in += 64;
      break;
    case ReplayMutant::kMoveOutput:
      op.out += 64;
      break;
    case ReplayMutant::kMoveWeights:
      op.weights += 64;
      break;
    case ReplayMutant::kMovePart:
      op.part_offset += 64;
      break;
    case ReplayMutant::kAllocate: {
      void* const heap = std::malloc(4096);
      static_cast<volatile char*>(heap)[0] = 1;  // so that it is not optimised away
      std::free(heap);
      break;
    }
  }
  if (config_.mutant != ReplayMutant::kAllocate) {
    cursors_[index].next.store(0x7FFF'FFFF, std::memory_order_relaxed);  // nothing left to claim
  }
  Dispatch(op, constants_, *step_, cursors_[index], scratch, trace);
}

StepResult CpuExecutor::Run(ProgramKind kind, const FrameView& frame, ReplayTrace* trace) {
  StepResult result = Run(*programs_[static_cast<uint32_t>(kind)], frame, trace);
  result.program = kind;
  return result;
}

StepResult CpuExecutor::Run(const BoundProgram& program, const FrameView& frame,
                            ReplayTrace* trace) {
  RowFill fill;
  if (config_.strict_shape) {
    fill = {program.capacity().max_rows, program.capacity().max_logits};
  }
  step_->Build(frame, fill);
  for (uint32_t i = 0; i < num_cursors_; ++i) {
    cursors_[i].next.store(0, std::memory_order_relaxed);
  }
  Region region{this, &program, {}};
  pool_.Run(&CpuExecutor::RunRegion, &region);
  *trace = region.trace;
  const BoundOp& head = program.ops()[program.num_ops() - 1];
  StepResult result;
  result.logits = reinterpret_cast<const float*>(head.out);
  result.logits_stride = static_cast<uint32_t>(head.out_stride / sizeof(float));
  result.panel_max = constants_.panel_max;
  result.num_panels = constants_.num_panels;
  result.row_status = step_->row_status();
  return result;
}

// What an executor without fixed shapes does before each step: buffers planned for these rows, ops
// bound to them.
void CpuExecutor::PlanExactly(const FrameHead& head) {
  const Program program =
      PlanProgram(graph_, {std::max(head.num_rows, 1u), std::max(head.num_logits, 1u)});
  const Status bound = exact_->Bind(program, model_, config_.geometry, config_.kv_base, *arena_);
  KVRM_CHECK(bound.ok(), "a graph that was bound once can be bound for fewer rows");
  ++counters_.programs_planned;
}

StepResult CpuExecutor::Replay(const FrameView& frame) {
  KVRM_CHECK(warm_, "I1: programs are warmed before the first replay");
  const ProgramKind kind = Choose(frame.head->num_rows);
  const uint32_t index = static_cast<uint32_t>(kind);
  ReplayTrace trace;
  if (config_.exact_shapes) PlanExactly(*frame.head);
  const BoundProgram& program = config_.exact_shapes ? *exact_ : *programs_[index];
  StepResult result = Run(program, frame, &trace);
  result.program = kind;
  ++counters_.replays[index];
  counters_.rows += frame.head->num_rows;
  counters_.rows_computed += step_->num_rows();
  counters_.linear_calls += trace.linear_calls();
  counters_.replay_hash[index] = trace.hash();
  if (!config_.exact_shapes) {
    counters_.hash_mismatches += trace.hash() != warm_hash_[index] ? 1 : 0;
  }
  for (uint32_t i = 0; i < frame.head->num_rows; ++i) {
    counters_.nonfinite_rows += result.row_status[i] != kRowOk ? 1 : 0;
  }
  return result;
}

}  // namespace

Result<std::unique_ptr<Executor>> CreateCpuExecutor(const Model& model,
                                                    const CpuExecutorConfig& config,
                                                    WorkerPool& pool) {
  auto executor = std::make_unique<CpuExecutor>(model, config, pool);
  KVRM_RETURN_IF_ERROR(executor->Init());
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace kvrm
