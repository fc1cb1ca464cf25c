#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "text/utf8.h"

namespace kvrm {
namespace {

constexpr size_t kMaxCombiningRun = 1024;

struct Free {
  void operator()(utf8proc_uint8_t* bytes) const { std::free(bytes); }
};

bool IsAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

size_t LongestCombiningRun(std::string_view text) {
  size_t run = 0;
  size_t longest = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text, at);
    const bool combines =
        step.status == Utf8Status::kValid &&
        utf8proc_get_property(static_cast<utf8proc_int32_t>(step.code_point))->combining_class != 0;
    run = combines ? run + 1 : 0;
    longest = std::max(longest, run);
    at += step.length;
  }
  return longest;
}

void AppendNfc(std::string_view valid, std::string& out) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                   static_cast<utf8proc_ssize_t>(valid.size()), &mapped,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, Free> owned(mapped);
  if (size < 0) {  // out of memory; the text as it stands is still text
    out += valid;
  } else {
    out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  }
}

}  // namespace

bool NormalizeNfc(std::string_view text, std::string& out) {
  if (IsAscii(text) || LongestCombiningRun(text) > kMaxCombiningRun) return false;
  out.clear();
  for (size_t at = 0; at < text.size();) {
    const size_t valid_end = ValidUtf8End(text, at);
    if (valid_end > at) AppendNfc(text.substr(at, valid_end - at), out);
    at = valid_end;
    if (at < text.size()) {
      const uint8_t length = NextUtf8(text, at).length;
      out += text.substr(at, length);
      at += length;
    }
  }
  return true;
}

}  // namespace kvrm
