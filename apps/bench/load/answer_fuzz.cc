// What a server may send as an event stream: any bytes in any pieces give events or an error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "bench/load/answer_event.h"
#include "bench/load/sse_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvrm::cli;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> whole, cut;
  SseReader reader;
  reader.Feed(bytes, [&](const SseEvent& event) {
    whole.emplace_back(event.data);
    const auto parsed = ParseAnswerEvent(event.data);
    const std::string message = parsed.ok() ? parsed->error : parsed.error().message;
    KVRM_CHECK(message.find('\n') == std::string::npos, "a message is one line");
  });
  (void)ErrorMessage(bytes);
  SseReader by_byte;
  for (char byte : bytes) {
    by_byte.Feed({&byte, 1}, [&](const SseEvent& event) { cut.emplace_back(event.data); });
  }
  KVRM_CHECK(whole == cut, "how a stream is cut does not change its events");
  return 0;
}
