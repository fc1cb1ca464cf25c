#include "batch/batch_run.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/retry_memory.h"

namespace kvrm::cli {
namespace {

constexpr int kQueueFull = 429, kStopping = 503;

ServiceConfig ConfigOf(const std::string& model_id, const RequestDefaults& defaults) {
  ServiceConfig config;
  config.model = model_id;
  config.defaults = defaults;
  return config;
}

// A stream has no place in a file of answers.
std::optional<ApiError> CheckForBatch(const ParsedRequest& request) {
  if (!request.stream) return std::nullopt;
  return BadField("stream", "is not offered in a batch");
}

}  // namespace

BatchRun::BatchRun(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                   const std::string& model_id, const RequestDefaults& defaults, uint32_t window)
    : engine_(engine),
      window_(std::max(1u, window)),
      service_(ConfigOf(model_id, defaults), engine, tokenizer, chat_template, [this] {
        const std::lock_guard<std::mutex> lock(mutex_);
        awake_ = true;
        woken_.notify_one();
      }) {}

Result<BatchCounts> BatchRun::Run(BatchInput& input, BatchOutput& output,
                                  const std::function<bool()>& interrupted,
                                  const std::function<void(double)>& progress) {
  std::thread engine_thread([this] { engine_.Run(); });
  Status status = Ok();
  double share = 0;  // it never falls, though lines are not equally long
  while (status.ok() && !interrupted()) {
    status = Fill(input, output);
    if (!status.ok() || (open_.empty() && input_ended_ && !pending_)) break;
    share = std::max(share, ShareAnswered(input));
    if (progress) progress(share);
    AwaitEvents();
    service_.Dispatch();
    service_.Expire(SteadyNowUs());
    status = WriteFinished(output);
  }
  for (auto& [key, open] : open_) service_.Release(*open.generation);
  engine_.Stop();
  engine_thread.join();
  service_.Dispatch();  // the ends of what was given up
  open_.clear();
  if (progress) progress(1);
  KVRM_RETURN_IF_ERROR(status);
  return counts_;
}

// What is read and not answered counts as lines of the length of those that were read.
double BatchRun::ShareAnswered(const BatchInput& input) const {
  const uint64_t answered = counts_.answered + counts_.skipped;
  const uint64_t read = answered + open_.size() + (pending_ ? 1 : 0);
  if (read == 0) return 0;
  return input.share_read() * static_cast<double>(answered) / static_cast<double>(read);
}

// Wakes now and then for deadlines and for Ctrl-C, which no event tells.
void BatchRun::AwaitEvents() {
  std::unique_lock<std::mutex> lock(mutex_);
  woken_.wait_for(lock, std::chrono::milliseconds(100), [this] { return awake_; });
  awake_ = false;
}

// Lines until the window is full. A request that finds the engine's queue full waits its turn.
Status BatchRun::Fill(BatchInput& input, BatchOutput& output) {
  if (pending_) {
    KVRM_RETURN_IF_ERROR(Submit(*std::exchange(pending_, std::nullopt), output));
  }
  while (!pending_ && open_.size() < window_ && !input_ended_) {
    KVRM_ASSIGN_OR_RETURN(const std::optional<BatchInput::Line> line, input.Next());
    if (!line) {
      input_ended_ = true;
      break;
    }
    KVRM_RETURN_IF_ERROR(TakeLine(*line, output));
  }
  return Ok();
}

Status BatchRun::TakeLine(const BatchInput::Line& line, BatchOutput& output) {
  if (line.too_long) {
    if (output.Answered(AnswerId(line.number), "")) return ++counts_.skipped, Ok();
    return Refuse(output, line.number,
                  {"", "line_too_long",
                   "longer than the limit of " + std::to_string(kMaxLineBytes) + " bytes"});
  }
  auto read = ReadBatchLine(line.text);
  const auto* fault = std::get_if<BatchFault>(&read);
  const std::string custom_id =
      fault != nullptr ? fault->custom_id : std::get<BatchRequest>(read).custom_id;
  const bool again = !custom_id.empty() && !seen_.insert(custom_id).second;
  // A custom_id that comes again was answered for its first line, not for this one.
  if (output.Answered(AnswerId(line.number), again ? "" : custom_id)) {
    ++counts_.skipped;
    return Ok();
  }
  if (again) {
    return Refuse(output, line.number,
                  {custom_id, "duplicate_custom_id", "custom_id came in an earlier line"});
  }
  if (fault != nullptr) return Refuse(output, line.number, *fault);
  return Submit({line.number, std::move(std::get<BatchRequest>(read))}, output);
}

Status BatchRun::Submit(Pending pending, BatchOutput& output) {
  const uint64_t number = pending.number;
  const std::string custom_id = pending.request.custom_id;
  const auto fail = [&](const ApiError& error) {
    return Answer(output, number, custom_id, error.status, ErrorBody(error));
  };
  auto parsed = ParseRequest(pending.request.api, pending.request.body, service_.config().defaults);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return fail(*error);
  if (const auto error = CheckForBatch(std::get<ParsedRequest>(parsed))) return fail(*error);
  auto prepared = service_.Prepare(std::move(std::get<ParsedRequest>(parsed)));
  if (const auto* error = std::get_if<ApiError>(&prepared)) return fail(*error);
  auto started =
      service_.Start(std::move(std::get<PreparedRequest>(prepared)), this, SteadyNowUs());
  if (const auto* error = std::get_if<ApiError>(&started)) {
    if (error->status != kQueueFull || open_.empty()) return fail(*error);
    pending_ = std::move(pending);
    return Ok();
  }
  auto& generation = std::get<std::shared_ptr<Generation>>(started);
  open_.emplace(generation.get(), Open{number, custom_id, generation});
  return Ok();
}

void BatchRun::OnOutput(Generation& generation) noexcept {
  if (!generation.complete() || !open_.contains(&generation)) return;
  RetryUntilMemory([&] { finished_.push_back(&generation); });
}

Status BatchRun::WriteFinished(BatchOutput& output) {
  for (const Generation* key : std::exchange(finished_, {})) {
    const auto node = open_.extract(key);
    if (node.empty()) continue;
    Generation& generation = *node.mapped().generation;
    const std::optional<ApiError> error =
        generation.dropped() ? OutOfMemoryError() : generation.error();
    const std::string body = error ? ErrorBody(*error) : generation.TakeOutput();
    service_.Release(generation);
    // The engine was stopped: a later run answers it.
    if (error && error->status == kStopping) continue;
    KVRM_RETURN_IF_ERROR(Answer(output, node.mapped().number, node.mapped().custom_id,
                                error ? error->status : 200, body));
  }
  return Ok();
}

Status BatchRun::Answer(BatchOutput& output, uint64_t number, const std::string& custom_id,
                        int status, std::string_view body) {
  ++counts_.answered;
  counts_.errors += status >= 400 ? 1 : 0;
  return output.Append(AnswerLine(number, custom_id, status, body));
}

Status BatchRun::Refuse(BatchOutput& output, uint64_t number, const BatchFault& fault) {
  ++counts_.answered;
  ++counts_.errors;
  return output.Append(FaultLine(number, fault));
}

}  // namespace kvrm::cli
