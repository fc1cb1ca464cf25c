#include "model/model.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "model/available_memory.h"
#include "model/model_tensors.h"
#include "model/weight_plan.h"

namespace kvrm {
namespace {

constexpr uint64_t kHugePageBytes = 2u << 20;
constexpr double kProgressStep = 0.005;

// A private mapping, aligned to 2 MiB so that whole huge pages can back it. Requires: `bytes` is a
// multiple of 2 MiB.
Result<std::byte*> MapArena(uint64_t bytes) {
  const uint64_t mapped_bytes = bytes + kHugePageBytes;
  void* at =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    return NoRoom("cannot map " + std::to_string(mapped_bytes) +
                  " bytes for the weights: " + std::strerror(errno));
  }
  const auto address = reinterpret_cast<uintptr_t>(at);
  const uint64_t before = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
  auto* arena = static_cast<std::byte*>(at) + before;
  if (before > 0) munmap(at, before);
  munmap(arena + bytes, mapped_bytes - before - bytes);
  madvise(arena, bytes, MADV_HUGEPAGE);  // advice: a refusal costs speed only
  return arena;
}

// One panel of one tensor: the piece of work that loading threads claim.
struct EncodeJob {
  const PlannedLinear* linear;
  const PlannedPart* part;
  uint32_t panel;  // within the part
  uint32_t stretch;
};

// Neighbouring bytes of the file, given back when the last job that reads of them is done: a load
// holds the weights and a few of these, not file and weights.
struct Stretch {
  Stretch(std::span<const std::byte> read, uint32_t num_jobs) : bytes(read), jobs_left(num_jobs) {}
  const std::span<const std::byte> bytes;
  std::atomic<uint32_t> jobs_left;
};
constexpr uint64_t kStretchBytes = 256u << 10;

struct EncodeWork {
  std::vector<EncodeJob> jobs;
  std::deque<Stretch> stretches;
};

uint64_t RowBytes(const GgufTensor& tensor) { return tensor.data.size() / tensor.rows(); }

Status RunJob(const EncodeJob& job, std::byte* arena) {
  const GgufTensor& tensor = *job.part->tensor;
  const LinearWeights& shape = job.linear->shape;
  const uint32_t first_row = job.panel * kPanel;
  const uint32_t rows = std::min(kPanel, job.part->rows() - first_row);
  const uint64_t row_bytes = RowBytes(tensor);
  const uint32_t panel = job.part->first_panel + job.panel * job.part->panel_step;
  const Status status =
      EncodeRows(shape.encoding, tensor.type, tensor.data.data() + first_row * row_bytes, rows,
                 shape.k, panel * kPanel, arena + job.linear->arena_offset);
  if (status.ok()) return Ok();
  return Error{status.error().kind, "tensor '" + tensor.name + "', rows from " +
                                        std::to_string(first_row) + ": " + status.error().message};
}

// Runs every job on `num_threads` threads, this one among them. Of several errors the one of the
// first job is returned, whatever the threads do.
class JobRunner {
 public:
  JobRunner(const GgufFile& file, EncodeWork work, std::byte* arena,
            const std::function<void(double)>& progress)
      : file_(file),
        jobs_(std::move(work.jobs)),
        stretches_(std::move(work.stretches)),
        arena_(arena),
        progress_(progress) {}

  Status Run(uint32_t num_threads) {
    std::vector<std::thread> threads;
    try {
      threads.reserve(num_threads);
      for (uint32_t i = 1; i < num_threads; ++i)
        threads.emplace_back([this] { Work(/*report=*/false); });
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory, no more threads
      // Those that there are do the work.
    }
    Work(/*report=*/true);
    for (std::thread& thread : threads) thread.join();
    if (first_error_) return *first_error_;
    if (progress_) progress_(1.0);
    return Ok();
  }

 private:
  void Work(bool report) {
    double reported = 0;
    for (;;) {
      const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= jobs_.size()) return;
      try {
        const Status status = RunJob(jobs_[index], arena_);
        if (!status.ok()) RecordError(index, status.error());
        Stretch& stretch = stretches_[jobs_[index].stretch];
        if (stretch.jobs_left.fetch_sub(1, std::memory_order_relaxed) == 1) {
          file_.Release(stretch.bytes);
        }
      } catch (const std::bad_alloc&) {  // here, because no exception may leave a thread
        RecordError(index, NoRoom("no memory to encode weights"));
      }
      const double share = static_cast<double>(index) / static_cast<double>(jobs_.size());
      if (report && progress_ && share >= reported + kProgressStep) progress_(reported = share);
    }
  }

  void RecordError(size_t index, const Error& error) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (index < error_index_) {
      error_index_ = index;
      first_error_ = error;
    }
    next_.store(jobs_.size(), std::memory_order_relaxed);  // later jobs need not run
  }

  const GgufFile& file_;
  const std::vector<EncodeJob> jobs_;
  std::deque<Stretch> stretches_;
  std::byte* const arena_;
  const std::function<void(double)>& progress_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  size_t error_index_ = std::numeric_limits<size_t>::max();  // guarded by mutex_
  std::optional<Error> first_error_;                         // guarded by mutex_
};

void AddJobs(const PlannedLinear& linear, EncodeWork* work) {
  for (const PlannedPart& part : linear.parts) {
    const uint64_t panel_bytes = RowBytes(*part.tensor) * kPanel;
    const auto panels = static_cast<uint32_t>((part.rows() + kPanel - 1) / kPanel);
    const auto panels_each =
        static_cast<uint32_t>(std::clamp<uint64_t>(kStretchBytes / panel_bytes, 1, panels));
    for (uint32_t first = 0; first < panels; first += panels_each) {
      const uint32_t count = std::min(panels_each, panels - first);
      const auto rest = part.tensor->data.subspan(first * panel_bytes);
      const auto stretch = static_cast<uint32_t>(work->stretches.size());
      work->stretches.emplace_back(rest.first(std::min(rest.size(), count * panel_bytes)), count);
      for (uint32_t i = 0; i < count; ++i)
        work->jobs.push_back({&linear, &part, first + i, stretch});
    }
  }
}

EncodeWork WorkOf(const WeightPlan& plan) {
  EncodeWork work;
  for (const auto& layer : plan.layers) {
    for (const auto* linear : {&layer.qkv, &layer.attn_out, &layer.gate_up, &layer.down}) {
      AddJobs(*linear, &work);
    }
  }
  AddJobs(plan.embedding, &work);
  if (plan.head) AddJobs(*plan.head, &work);
  return work;
}

}  // namespace

class ModelLoader {
 public:
  ModelLoader(const GgufFile& file, const LoadOptions& options) : file_(file), options_(options) {}

  Result<std::unique_ptr<const Model>> Run() {
    KVRM_ASSIGN_OR_RETURN(model_->config_, ReadConfig(file_));
    ApplyView(options_.view, model_->config_);
    if (options_.tokenizer) {
      model_->tokenizer_spec_ = *options_.tokenizer;
    } else if (file_.source() == ModelSource::kGguf) {
      KVRM_ASSIGN_OR_RETURN(model_->tokenizer_spec_, ReadTokenizerSpec(file_));
    }
    KVRM_RETURN_IF_ERROR(FitTokenizer());
    KVRM_ASSIGN_OR_RETURN(const WeightPlan plan,
                          PlanWeights(file_, model_->config_, options_.weights));
    KVRM_RETURN_IF_ERROR(CheckRoom(plan));
    model_->arena_bytes_ =
        (plan.arena_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    KVRM_ASSIGN_OR_RETURN(model_->arena_, MapArena(model_->arena_bytes_));
    const Status encoded =
        JobRunner(file_, WorkOf(plan), model_->arena_, options_.progress).Run(options_.num_threads);
    if (!encoded.ok()) {
      return Error{encoded.error().kind, file_.name() + ": " + encoded.error().message};
    }
    TakeWeights(plan);
    // Nothing writes weights from here on (law I1, frozen).
    const int frozen = mprotect(model_->arena_, model_->arena_bytes_, PROT_READ);
    KVRM_CHECK(frozen == 0, "a mapping of this process can be made read-only");
    return std::unique_ptr<const Model>(std::move(model_));
  }

 private:
  // Hubs pad embeddings: rows behind the last token are unused ones, which a model may still
  // choose.
  Status FitTokenizer() {
    TokenizerSpec& spec = model_->tokenizer_spec_;
    const size_t rows = model_->config_.vocab;
    if (spec.tokens.size() > rows) {
      return InvalidInput(file_.name() + ": the tokenizer has " +
                          std::to_string(spec.tokens.size()) + " tokens, must be at most the " +
                          std::to_string(rows) + " rows of tensor '" +
                          std::string(kEmbeddingTensor) + "'");
    }
    if (spec.tokens.empty()) return Ok();  // a folder that was opened without its tokenizer
    spec.types.resize(spec.tokens.size(), TokenType::kNormal);
    spec.types.resize(rows, TokenType::kUnused);
    if (!spec.scores.empty()) spec.scores.resize(rows, 0);
    spec.tokens.resize(rows);
    return Ok();
  }

  Status CheckRoom(const WeightPlan& plan) const {
    const uint64_t limit =
        options_.memory_limit_bytes > 0 ? options_.memory_limit_bytes : AvailableMemoryBytes();
    if (plan.arena_bytes <= limit) return Ok();
    return NoRoom(file_.name() + ": weights as " + EncodingSummary(plan) + " need " +
                  std::to_string(plan.arena_bytes) + " bytes of memory, available are " +
                  std::to_string(limit));
  }

  const float* TakeVector(const PlannedVector& vector) {
    if (vector.parts.empty()) return nullptr;
    auto* const out = reinterpret_cast<float*>(model_->arena_ + vector.arena_offset);
    float* next = out;
    for (const GgufTensor* tensor : vector.parts) {
      Dequantize(tensor->type, tensor->data.data(), tensor->num_values, next);
      for (uint64_t i = 0; i < tensor->num_values; ++i) next[i] += vector.offset;
      next += tensor->num_values;
      file_.Release(tensor->data);
    }
    return out;
  }

  LinearWeights TakeLinear(const PlannedLinear& linear) const {
    LinearWeights weights = linear.shape;
    weights.panels = model_->arena_ + linear.arena_offset;
    return weights;
  }

  void TakeWeights(const WeightPlan& plan) {
    for (const auto& layer : plan.layers) {
      LayerWeights weights;
      weights.attn_norm = TakeVector(layer.attn_norm);
      weights.head_norms = TakeVector(layer.head_norms);
      weights.qkv_bias = TakeVector(layer.qkv_bias);
      weights.post_attn_norm = TakeVector(layer.post_attn_norm);
      weights.ffn_norm = TakeVector(layer.ffn_norm);
      weights.post_ffn_norm = TakeVector(layer.post_ffn_norm);
      weights.qkv = TakeLinear(layer.qkv);
      weights.attn_out = TakeLinear(layer.attn_out);
      weights.gate_up = TakeLinear(layer.gate_up);
      weights.down = TakeLinear(layer.down);
      model_->layers_.push_back(weights);
    }
    model_->output_norm_ = TakeVector(plan.output_norm);
    model_->embedding_ = TakeLinear(plan.embedding);
    model_->head_ = plan.head ? TakeLinear(*plan.head) : model_->embedding_;
    model_->weight_bytes_ = plan.arena_bytes;
    model_->encoding_summary_ = EncodingSummary(plan);
  }

  const GgufFile& file_;
  const LoadOptions& options_;
  std::unique_ptr<Model> model_{new Model()};
};

Result<std::unique_ptr<const Model>> Model::Load(const GgufFile& file, const LoadOptions& options) {
  return ModelLoader(file, options).Run();
}

Model::~Model() {
  if (arena_ != nullptr) munmap(arena_, arena_bytes_);
}

}  // namespace kvrm
