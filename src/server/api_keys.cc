#include "server/api_keys.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "text/utf8.h"

namespace kvrm {
namespace {

constexpr size_t kMaxSecretBytes = 256;
constexpr size_t kMaxKeys = 10'000;
constexpr std::string_view kBlanks = " \t\r";

bool IsSecret(std::string_view text) {
  return !text.empty() && text.size() <= kMaxSecretBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

// The next word of `line`, which loses it; "" at the end.
std::string_view TakeWord(std::string_view& line) {
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(kBlanks)));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

template <class T>
bool ReadNumber(std::string_view text, T low, T high, T& out) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (value < low || value > high) return false;
  out = value;
  return true;
}

// One `name=value`; false when it is none that is known.
bool ReadSetting(std::string_view word, ApiKey& key) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
  if (name == "name") {
    key.name = ForMessage(value);
    return !value.empty();
  }
  constexpr uint32_t kMaxRequests = 1'000'000;
  constexpr int32_t kMaxPriority = 1'000'000;
  if (name == "max-requests") return ReadNumber(value, 1u, kMaxRequests, key.max_requests);
  return name == "max-priority" && ReadNumber(value, -kMaxPriority, kMaxPriority, key.max_priority);
}

}  // namespace

bool EqualInConstantTime(std::string_view secret, std::string_view presented) {
  if (secret.empty()) return false;
  // volatile: nothing may be concluded, and left out, before the last character.
  volatile uint32_t difference = secret.size() == presented.size() ? 0 : 1;
  for (size_t i = 0; i < presented.size(); ++i) {
    const auto a = static_cast<unsigned char>(secret[i % secret.size()]);
    const auto b = static_cast<unsigned char>(presented[i]);
    difference = difference | static_cast<uint32_t>(a ^ b);
  }
  return difference == 0;
}

std::optional<uint32_t> ApiKeys::Find(std::string_view presented) const {
  // Comparing with each of many keys takes a while, and a header may be long.
  if (presented.size() > kMaxSecretBytes) return std::nullopt;
  uint32_t found = 0;  // index + 1
  for (uint32_t i = 0; i < keys_.size(); ++i) {
    const auto equal = static_cast<uint32_t>(EqualInConstantTime(keys_[i].secret, presented));
    found |= (0 - equal) & (i + 1);
  }
  if (found == 0) return std::nullopt;
  return found - 1;
}

Status ApiKeys::ParseFile(std::string_view text, const std::string& name,
                          std::vector<ApiKey>& keys) {
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::string where = name + ":" + std::to_string(number) + ": ";
    const std::string_view secret = TakeWord(line);
    if (secret.empty() || secret.starts_with('#')) continue;
    if (!IsSecret(secret)) {
      return InvalidInput(where + "a key has 1 to " + std::to_string(kMaxSecretBytes) +
                          " visible ASCII characters");
    }
    ApiKey key;
    key.secret = secret;
    for (std::string_view word = TakeWord(line); !word.empty(); word = TakeWord(line)) {
      if (ReadSetting(word, key)) continue;
      return InvalidInput(where + "'" + ForMessage(word) +
                          "' is not name=NAME, max-requests=N (1 to 1000000) or max-priority=N "
                          "(-1000000 to 1000000)");
    }
    keys.push_back(std::move(key));
    if (keys.size() > kMaxKeys) {
      return InvalidInput(where + "more than " + std::to_string(kMaxKeys) + " keys");
    }
  }
  return Ok();
}

Result<ApiKeys> ApiKeys::Load(const std::vector<std::string>& secrets, const std::string& file) {
  ApiKeys out;
  for (const std::string& secret : secrets) {
    if (!IsSecret(secret)) {
      return InvalidInput("--api-key: a key has 1 to " + std::to_string(kMaxSecretBytes) +
                          " visible ASCII characters");
    }
    out.keys_.push_back({.secret = secret, .name = {}});
  }
  if (!file.empty()) {
    std::ifstream in(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (!in.is_open() || in.bad()) {
      return NotFound("--api-key-file '" + file + "': " + std::strerror(errno));
    }
    const size_t before = out.keys_.size();
    KVRM_RETURN_IF_ERROR(ParseFile(text, file, out.keys_));
    // An empty file must not open the server to everybody.
    if (out.keys_.size() == before) return InvalidInput("--api-key-file '" + file + "': no key");
  }
  for (size_t i = 0; i < out.keys_.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (out.keys_[i].secret != out.keys_[j].secret) continue;
      return InvalidInput("API keys " + std::to_string(j + 1) + " and " + std::to_string(i + 1) +
                          " are the same");
    }
    if (out.keys_[i].name.empty()) out.keys_[i].name = "key-" + std::to_string(i + 1);
  }
  return out;
}

}  // namespace kvrm
