#include "text/utf8.h"

#include <cstring>

namespace kvrm {
namespace {

// Bounds of the second byte, which is where overlong forms, surrogates and values above U+10FFFF
// show; later bytes are always 80..BF.
struct Lead {
  uint8_t length;  // 0: never a first byte
  uint8_t second_min;
  uint8_t second_max;
};

constexpr Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step NextUtf8(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return {Utf8Status::kValid, 1, first};
  const Lead lead = LeadOf(first);
  if (lead.length == 0) return {Utf8Status::kInvalid, 1, 0};
  char32_t code_point = first & (0x7Fu >> lead.length);
  for (uint8_t i = 1; i < lead.length; ++i) {
    if (at + i >= text.size()) return {Utf8Status::kIncomplete, i, 0};
    const auto byte = static_cast<uint8_t>(text[at + i]);
    const uint8_t min = i == 1 ? lead.second_min : uint8_t{0x80};
    const uint8_t max = i == 1 ? lead.second_max : uint8_t{0xBF};
    if (byte < min || byte > max) return {Utf8Status::kInvalid, i, 0};
    code_point = (code_point << 6) | (byte & 0x3Fu);
  }
  return {Utf8Status::kValid, lead.length, code_point};
}

size_t ValidUtf8End(std::string_view text, size_t at) {
  while (at < text.size()) {
    // Eight ASCII bytes at a time: most text is nothing else.
    uint64_t word = 0;
    while (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) != 0) break;
      at += sizeof(word);
    }
    if (at >= text.size()) break;
    const Utf8Step step = NextUtf8(text, at);
    if (step.status != Utf8Status::kValid) break;
    at += step.length;
  }
  return at;
}

void AppendUtf8(char32_t code_point, std::string& out) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80u | ((code_point >> shift) & 0x3Fu)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0u | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0u | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0u | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string ForMessage(std::string_view text, size_t max_bytes) {
  std::string out;
  size_t at = 0;
  while (at < text.size() && out.size() < max_bytes) {
    const Utf8Step step = NextUtf8(text, at);
    if (step.status != Utf8Status::kValid) {
      out += kReplacementCharacter;
    } else if (step.code_point < 0x20 || (step.code_point >= 0x7F && step.code_point < 0xA0)) {
      out += step.code_point == '\n' ? "\\n" : "?";
    } else {
      out += text.substr(at, step.length);
    }
    at += step.length;
  }
  if (at < text.size()) out += "...";
  return out;
}

}  // namespace kvrm
