#include "session/generation.h"

#include <algorithm>
#include <utility>

#include "session/interrupt.h"

namespace kvrm::cli {

void Generation::OnToken(RequestId, const TokenEvent& event) {
  tokens_.push_back(event.token);
  if (event.top != nullptr) top_.push_back(*event.top);
  if (!tokenizer_.IsEnd(event.token)) Append(stream_.Push(event.token));
}

void Generation::OnFinish(RequestId, const FinishEvent& event) {
  finish_ = event;
  finished_ = true;
  Append(stream_.Finish());
}

void Generation::Refuse(const Error& error) {
  finish_.reason = StopReason::kError;
  finish_.message = error.message;
  finished_ = true;
}

void Generation::Append(const std::string& piece) {
  if (piece.empty()) return;
  text_ += piece;
  if (on_text_) on_text_(piece);
}

std::optional<RequestId> Start(Engine& engine, GenerateRequest request, Generation& generation) {
  request.sink = &generation;
  if (const Status checked = engine.Check(request); !checked.ok()) {
    generation.Refuse(checked.error());
    return std::nullopt;
  }
  Result<RequestId> id = engine.Submit(request);
  while (!id.ok() && id.error().kind == ErrorKind::kNoRoom && engine.Step()) {
    id = engine.Submit(request);
  }
  if (!id.ok()) {
    generation.Refuse(id.error());
    return std::nullopt;
  }
  return *id;
}

bool RunToEnd(Engine& engine, std::span<const std::unique_ptr<Generation>> generations,
              std::span<const RequestId> ids, const std::function<bool()>& after_step) {
  const auto all_finished = [&] {
    return std::all_of(generations.begin(), generations.end(),
                       [](const auto& generation) { return generation->finished(); });
  };
  bool interrupted = false, cancelled = false;
  while (!all_finished()) {
    if (TakeInterrupt()) interrupted = true;
    if (interrupted && !cancelled) {
      for (RequestId id : ids) engine.Cancel(id);
      cancelled = true;
    }
    const bool worked = engine.Step();
    KVRM_CHECK(worked || all_finished(), "SCHED-4: with work and room a plan is never empty");
    if (!after_step() && !cancelled) {
      for (RequestId id : ids) engine.Cancel(id);
      cancelled = true;
    }
  }
  return !interrupted;
}

}  // namespace kvrm::cli
