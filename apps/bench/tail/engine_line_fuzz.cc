// What a process that runs a rival may print: any line is a step, a version or an error of one
// line.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "bench/tail/engine_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto line = kvrm::cli::ParseEngineLine({reinterpret_cast<const char*>(data), size});
  if (!line.ok()) {
    KVRM_CHECK(line.error().message.size() < 120, "an error shows the line's beginning alone");
  } else {
    KVRM_CHECK(line->ready.empty() || line->outputs.empty(), "a line is one of the two");
  }
  return 0;
}
