#include "bench/load/sse_reader.h"

#include <charconv>

namespace kvrm::cli {

bool SseReader::Feed(std::string_view bytes, const Handler& handler) {
  while (!failed_ && !bytes.empty()) {
    if (after_cr_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_cr_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    line_.append(bytes.substr(0, end));
    failed_ = line_.size() + data_.size() > kMaxEventBytes;
    if (end == std::string_view::npos || failed_) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    EndLine(handler);
    line_.clear();
  }
  return !failed_;
}

void SseReader::EndLine(const Handler& handler) {
  std::string_view line = line_;
  if (line.empty()) {
    if (has_data_) handler({data_, sent_us_});
    data_.clear();
    has_data_ = false;
    sent_us_.reset();
    return;
  }
  constexpr std::string_view kStamp = ": sent-us=";
  if (line.starts_with(kStamp)) {
    int64_t stamp = 0;
    const char* end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(line.data() + kStamp.size(), end, stamp);
    if (error == std::errc() && stop == end) sent_us_ = stamp;
    return;
  }
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != "data") return;
  std::string_view value =
      colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

}  // namespace kvrm::cli
