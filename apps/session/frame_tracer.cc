#include "session/frame_tracer.h"

#include "session/output_path.h"

namespace kvrm::cli {

Status FrameTracer::CheckPath(const std::string& path) {
  return CheckOutputPath("--frame-trace", path);
}

Result<std::unique_ptr<FrameTracer>> FrameTracer::Create(const std::string& path, Engine& engine,
                                                         Log log) {
  auto writer = TraceWriter::Create(path, engine.pager().geometry(), engine.frame_capacity());
  if (!writer.ok()) return Error{writer.error().kind, "--frame-trace " + writer.error().message};
  return std::unique_ptr<FrameTracer>(new FrameTracer(std::move(writer).value(), std::move(log)));
}

void FrameTracer::OnStep(const StepPlan&, const FrameView& frame, const StepResult&) {
  if (whole_) Note(writer_->Append(frame));
}

bool FrameTracer::Close() {
  const Status closed = writer_->Close();
  if (whole_) Note(closed);
  return whole_;
}

void FrameTracer::Note(const Status& status) {
  if (status.ok()) return;
  whole_ = false;
  log_("--frame-trace " + status.error().message + "; the trace ends after " +
       std::to_string(writer_->frames()) + " frames or before");
}

}  // namespace kvrm::cli
