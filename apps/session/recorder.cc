#include "session/recorder.h"

#include <utility>

#include "engine/record_runtime.h"
#include "session/output_path.h"

namespace kvrm::cli {

Result<std::unique_ptr<RecordWriter>> StartRecord(const std::string& path, const Runtime& runtime,
                                                  const RuntimeOptions& options,
                                                  std::function<void(std::string_view)> log) {
  KVRM_ASSIGN_OR_RETURN(const RecordHeader header,
                        RecordHeaderOf(runtime, options, "kvrm " KVRM_VERSION));
  RecordOptions record_options;
  record_options.log = [log = std::move(log)](std::string_view line) {
    log("--record " + std::string(line));
  };
  auto writer = RecordWriter::Create(path, header, record_options);
  if (!writer.ok()) return Error{writer.error().kind, "--record " + writer.error().message};
  runtime.engine->SetRecorder(writer->get());
  return writer;
}

}  // namespace kvrm::cli
