#include "server/json_reader.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "text/text_stream.h"
#include "text/utf8.h"

namespace kvrm {
namespace {

constexpr size_t kMaxQuotedBytes = 64;

// The shortest text that reads back as `value`.
std::string NumberText(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

std::string NumberText(const boost::json::value& v) {
  if (const auto* i = v.if_int64()) return std::to_string(*i);
  if (const auto* u = v.if_uint64()) return std::to_string(*u);
  return NumberText(*v.if_double());
}

// The number as int64 when it is integral and fits.
std::optional<int64_t> Integral(const boost::json::value& v) {
  if (const auto* i = v.if_int64()) return *i;
  if (v.if_uint64() != nullptr) return std::nullopt;  // above int64's range
  const double d = *v.if_double();
  if (!(std::fabs(d) <= 9.0e15) || d != std::floor(d)) return std::nullopt;
  return static_cast<int64_t>(d);
}

}  // namespace

std::string PathOf(std::string_view parent, size_t index) {
  return std::string(parent) + "[" + std::to_string(index) + "]";
}

std::string PathOf(std::string_view parent, std::string_view key) {
  return std::string(parent) + "." + std::string(key);
}

std::string Quoted(std::string_view text) { return "'" + ForMessage(text, kMaxQuotedBytes) + "'"; }

std::string_view KindName(const boost::json::value& v) {
  switch (v.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::bool_:
      return "a boolean";
    case boost::json::kind::string:
      return "a string";
    case boost::json::kind::array:
      return "an array";
    case boost::json::kind::object:
      return "an object";
    default:
      return "a number";
  }
}

bool JsonReader::Fail(std::string_view path, std::string_view what, std::string_view code) {
  if (error_) return false;
  ApiError error;
  error.param = SanitizeUtf8(path);
  error.message = error.param + ": " + SanitizeUtf8(what);
  error.code = code;
  error_ = std::move(error);
  return false;
}

bool JsonReader::WrongType(std::string_view path, std::string_view wanted, const Value& got) {
  return Fail(path, "must be " + std::string(wanted) + ", not " + std::string(KindName(got)),
              "invalid_type");
}

bool JsonReader::NotOffered(std::string_view path, std::string_view what) {
  const std::string detail = what.empty() ? "" : ": " + std::string(what);
  return Fail(path, "not offered by this server" + detail, "unsupported_parameter");
}

bool JsonReader::Bool(std::string_view path, const Value& v, bool& out) {
  if (const bool* b = v.if_bool()) return out = *b, true;
  return WrongType(path, "a boolean", v);
}

bool JsonReader::String(std::string_view path, const Value& v, std::string& out) {
  const auto* s = v.if_string();
  if (s == nullptr) return WrongType(path, "a string", v);
  const std::string_view text(s->data(), s->size());
  return HoldsNoNul(path, text) && (out.assign(text), true);
}

bool JsonReader::HoldsNoNul(std::string_view path, std::string_view text) {
  const size_t at = text.find('\0');
  if (at == std::string_view::npos) return true;
  return Fail(path, "holds U+0000 at byte " + std::to_string(at) + ", which no text may",
              "invalid_text");
}

bool JsonReader::Int(std::string_view path, const Value& v, int64_t low, int64_t high,
                     int64_t& out) {
  if (!v.is_number()) return WrongType(path, "an integer", v);
  // Whatever is too large for int64 is too large for every field: it meets the upper bound.
  const auto* d = v.if_double();
  const bool huge = v.if_uint64() != nullptr || (d != nullptr && *d > 9.0e15);
  const auto value =
      huge ? std::optional<int64_t>(std::numeric_limits<int64_t>::max()) : Integral(v);
  if (!value) return Fail(path, NumberText(v) + " is not an integer");
  if (*value < low || *value > high) {
    const bool bounded = high < std::numeric_limits<int64_t>::max();
    return Fail(path, NumberText(v) + (bounded ? " is not between " + std::to_string(low) +
                                                     " and " + std::to_string(high)
                                               : " is not at least " + std::to_string(low)));
  }
  out = *value;
  return true;
}

bool JsonReader::Number(std::string_view path, const Value& v, double low, Low low_kind,
                        double high, float& out) {
  if (!v.is_number()) return WrongType(path, "a number", v);
  const double value = v.to_number<double>();
  const bool above = low_kind == Low::kInclusive ? value >= low : value > low;
  if (!std::isfinite(value) || !above || !(value <= high)) {
    const bool inclusive = low_kind == Low::kInclusive;
    return Fail(path, NumberText(v) + (inclusive ? " is not between " : " is not above ") +
                          NumberText(low) + (inclusive ? " and " : " and at most ") +
                          NumberText(high));
  }
  const auto narrow = static_cast<float>(value);
  if (low_kind == Low::kExclusive && !(static_cast<double>(narrow) > low)) {
    return Fail(path, NumberText(v) + " is too small to be told from " + NumberText(low));
  }
  out = narrow;
  return true;
}

bool JsonReader::TokenIds(std::string_view path, const boost::json::array& values, size_t limit,
                          std::vector<TokenId>& out) {
  if (values.size() > limit) {
    return Fail(path, std::to_string(values.size()) + " token ids, at most " +
                          std::to_string(limit) + " are taken");
  }
  out.clear();
  out.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t id = 0;
    // The path's text is only made for an entry that looks wrong.
    const auto* plain = values[i].if_int64();
    if (plain != nullptr && *plain >= 0 && *plain <= std::numeric_limits<TokenId>::max()) {
      id = *plain;
    } else if (!Int(PathOf(path, i), values[i], 0, std::numeric_limits<TokenId>::max(), id)) {
      return false;
    }
    out.push_back(static_cast<TokenId>(id));
  }
  return true;
}

}  // namespace kvrm
