// --frame-trace: an observer that writes each published frame to a trace.
//
// Engine-thread-only once it observes. What goes wrong with the file while the engine runs is one
// line of log and the end of the trace, never of a step.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"
#include "frame/trace_writer.h"

namespace kvrm::cli {

class FrameTracer final : public StepObserver {
 public:
  using Log = std::function<void(std::string_view line)>;

  // Whether a trace can be made at `path`, before a model is loaded for it; "" is no trace and
  // fine.
  static Status CheckPath(const std::string& path);
  // Errors: TraceWriter's.
  static Result<std::unique_ptr<FrameTracer>> Create(const std::string& path, Engine& engine,
                                                     Log log);

  void OnStep(const StepPlan& plan, const FrameView& frame, const StepResult& result) override;
  // Writes what is buffered. False when the file is not whole; the log has said why.
  bool Close();

 private:
  FrameTracer(std::unique_ptr<TraceWriter> writer, Log log)
      : writer_(std::move(writer)), log_(std::move(log)) {}
  void Note(const Status& status);

  std::unique_ptr<TraceWriter> writer_;
  Log log_;
  bool whole_ = true;
};

}  // namespace kvrm::cli
