// Arbitrary bytes as a script of verbs: pager, frame and executors agree with oracle and shadow
// store, and no check stops the process. `heart_script --text INPUT` prints the script.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "heart_machine.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMostBytes = 1 + 6 * 400;
  const auto script = kvrm::heart::ScriptOfBytes({data, size < kMostBytes ? size : kMostBytes});
  const auto wrong = kvrm::heart::RunScript(
      script, {.fail_after_every_edit = size % 8 == 7, .validate_frame_every = 1});
  if (wrong) {
    std::fprintf(stderr, "%s\n%s", wrong->c_str(), kvrm::heart::ToText(script).c_str());
    std::abort();
  }
  return 0;
}
