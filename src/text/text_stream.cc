#include "text/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

// Moves what is decided of `bytes` to `text`: whole characters, and U+FFFD for each maximal invalid
// part. What may still become a character stays, unless `final`.
void DecodeInto(std::string& bytes, bool final, std::string& text) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t valid_end = ValidUtf8End(bytes, at);
    text.append(bytes, at, valid_end - at);
    at = valid_end;
    if (at >= bytes.size()) break;
    const Utf8Step step = NextUtf8(bytes, at);
    if (step.status == Utf8Status::kIncomplete && !final) break;
    text += kReplacementCharacter;
    at += step.length;
  }
  bytes.erase(0, at);
}

// Bytes at the end of `text` that are a proper prefix of `stop`: those must not be sent yet.
size_t PrefixAtEnd(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) KVRM_CHECK(!stop.empty(), "no stop string is empty");
}

std::string TextStream::Push(TokenId id) {
  return PushBytes(tokenizer_.TokenBytes(id, /*with_special=*/false));
}

std::string TextStream::PushBytes(std::string_view bytes) {
  if (stopped_) return {};
  bytes_ += bytes;
  return Release(/*final=*/false);
}

std::string TextStream::Finish() { return stopped_ ? std::string{} : Release(/*final=*/true); }

// The stop that is complete first wins; of several complete at the same byte, the one that began
// first. Any other choice (earliest beginning, say) would have to wait for text that may never
// come, or would depend on where the tokens end.
std::string TextStream::Release(bool final) {
  DecodeInto(bytes_, final, held_);
  size_t best_begin = 0;
  size_t best_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t begin = armed_ ? held_.find(stop) : std::string::npos;
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) {
      best_begin = begin;
      best_end = end;
      matched_stop_ = stop;
    }
  }
  if (best_end != std::string::npos) {
    stopped_ = true;
    std::string text = held_.substr(0, best_begin);
    held_.clear();
    bytes_.clear();
    return text;
  }
  size_t keep = 0;
  if (!final) {
    for (const std::string& stop : stops_) keep = std::max(keep, PrefixAtEnd(held_, stop));
  }
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return text;
}

bool IsValidUtf8(std::string_view text) { return ValidUtf8End(text, 0) == text.size(); }

std::string SanitizeUtf8(std::string_view text) {
  std::string bytes(text);
  std::string out;
  out.reserve(bytes.size());
  DecodeInto(bytes, /*final=*/true, out);
  return out;
}

}  // namespace kvrm
