// Lines of a batch: any bytes are a request, a fault that is told in valid UTF-8, or both; and what
// is written as an answer reads back.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "batch/batch_line.h"
#include "text/text_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvrm;
  using namespace kvrm::cli;
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  const auto read = ReadBatchLine(line);
  std::string written, custom_id;
  if (const auto* fault = std::get_if<BatchFault>(&read)) {
    custom_id = fault->custom_id;
    written = FaultLine(7, *fault);
  } else {
    custom_id = std::get<BatchRequest>(read).custom_id;
    written = AnswerLine(7, custom_id, 200, std::get<BatchRequest>(read).body);
  }
  KVRM_CHECK(IsValidUtf8(written), "answers are valid UTF-8");
  KVRM_CHECK(written.find('\n') == written.size() - 1, "an answer is one line");
  const auto answered = ReadAnswerLine(written);
  KVRM_CHECK(answered.ok() && answered->id == "line-7" && answered->custom_id == custom_id,
             "an answer names its request");
  (void)ReadAnswerLine(line);
  return 0;
}
