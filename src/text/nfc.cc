#include "text/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "text/utf8.h"

namespace kvrm {
namespace {

// The library orders a run of combining marks by swapping neighbours, in quadratic time; of longer
// runs than this it is given the order. (Unicode's stream-safe format stops at 30.)
constexpr size_t kMaxUnorderedRun = 64;
constexpr auto kNfc = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

struct Free {
  void operator()(utf8proc_uint8_t* bytes) const { std::free(bytes); }
};

bool IsAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

int CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

struct Decomposition {
  utf8proc_int32_t points[32] = {};  // the longest canonical one has four
  size_t count = 0;
};

Decomposition Decompose(char32_t code_point) {
  Decomposition parts;
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code_point), parts.points, std::size(parts.points),
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
  parts.count = static_cast<size_t>(std::max<utf8proc_ssize_t>(count, 0));
  return parts;
}

// Some are no marks themselves, but decompose into nothing else: U+0F73, U+0F75, U+0F81.
bool IsOfMarks(char32_t code_point) {
  const auto& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point));
  if (property.combining_class != 0) return true;
  const bool decomposes = property.decomp_type == 0 && property.decomp_seqindex != UINT16_MAX;
  return decomposes && CombiningClass(Decompose(code_point).points[0]) != 0;
}

size_t LongestCombiningRun(std::string_view text) {
  size_t run = 0;
  size_t longest = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = NextUtf8(text, at);
    const bool combines = step.status == Utf8Status::kValid && IsOfMarks(step.code_point);
    run = combines ? run + 1 : 0;
    longest = std::max(longest, run);
    at += step.length;
  }
  return longest;
}

// Marks of one class stay in the order in which they are.
void OrderMarks(std::span<utf8proc_int32_t> marks) {
  const std::vector<utf8proc_int32_t> before(marks.begin(), marks.end());
  std::vector<uint64_t> keys(marks.size());  // class and place: a text is shorter than 4 GiB
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = static_cast<uint64_t>(CombiningClass(before[i])) << 32 | i;
  }
  std::ranges::sort(keys);
  for (size_t i = 0; i < keys.size(); ++i) marks[i] = before[static_cast<uint32_t>(keys[i])];
}

// `valid` decomposed, its combining marks in canonical order.
std::vector<utf8proc_int32_t> Ordered(std::string_view valid) {
  std::vector<utf8proc_int32_t> points;
  for (size_t at = 0; at < valid.size();) {
    const Utf8Step step = NextUtf8(valid, at);
    const Decomposition parts = Decompose(step.code_point);
    points.insert(points.end(), parts.points, parts.points + parts.count);
    at += step.length;
  }
  const auto is_starter = [](utf8proc_int32_t point) { return CombiningClass(point) == 0; };
  for (auto begin = points.begin(); begin != points.end();) {
    begin = std::find_if_not(begin, points.end(), is_starter);
    const auto end = std::find_if(begin, points.end(), is_starter);
    OrderMarks({begin, end});
    begin = end;
  }
  return points;
}

// The same result in near linear time for any run of combining marks.
void AppendNfcOrdered(std::string_view valid, std::string& out) {
  std::vector<utf8proc_int32_t> points = Ordered(valid);
  const utf8proc_ssize_t count =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), kNfc);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<char32_t>(points[static_cast<size_t>(i)]), out);
  }
}

void AppendNfc(std::string_view valid, std::string& out) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid.data()),
                   static_cast<utf8proc_ssize_t>(valid.size()), &mapped, kNfc);
  const std::unique_ptr<utf8proc_uint8_t, Free> owned(mapped);
  if (size < 0) {  // out of memory; the text as it stands is still text
    out += valid;
  } else {
    out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  }
}

}  // namespace

bool NormalizeNfc(std::string_view text, std::string& out) {
  if (IsAscii(text)) return false;
  const auto append = LongestCombiningRun(text) > kMaxUnorderedRun ? AppendNfcOrdered : AppendNfc;
  out.clear();
  for (size_t at = 0; at < text.size();) {
    const size_t valid_end = ValidUtf8End(text, at);
    if (valid_end > at) append(text.substr(at, valid_end - at), out);
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
