// Server-sent events out of a byte stream that arrives in any pieces (WHATWG HTML, section 9.2.6).
//
// Only `data` matters here; `event`, `id` and `retry` are read over. A comment line
// `: sent-us=N` in front of an event is the server's own send stamp for it (docs/load.md); clients
// that know nothing of it read over it as over any comment.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace kvrm::cli {

struct SseEvent {
  std::string_view data;  // lines joined by '\n'; valid during the call
  std::optional<int64_t> sent_us;
};

class SseReader {
 public:
  using Handler = std::function<void(const SseEvent&)>;

  // Calls `handler` for each event that `bytes` complete. False: a line or an event exceeds
  // kMaxEventBytes; nothing more is read from then on.
  bool Feed(std::string_view bytes, const Handler& handler);
  // True when the stream stands inside an event: if it ends here, something is missing.
  bool InsideEvent() const { return !line_.empty() || has_data_; }

  static constexpr size_t kMaxEventBytes = 4u << 20;

 private:
  void EndLine(const Handler& handler);

  std::string line_;  // begun, its end not seen
  std::string data_;  // of the event under way
  bool has_data_ = false;
  bool after_cr_ = false;  // a '\n' now belongs to the line end already taken
  bool failed_ = false;
  std::optional<int64_t> sent_us_;
};

}  // namespace kvrm::cli
