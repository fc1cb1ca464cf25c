// Typed reading of parsed JSON values with the path of each in the message. Private to the parsers
// of request bodies (the only units that see Boost.JSON). Thread-compatible.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai_types.h"

namespace kvrm {

// Reads values into fields until the first error, which it keeps; later calls then do nothing that
// matters. Numbers: integral doubles (5.0) pass as integers, everything is range-checked before it
// is narrowed, and infinities (1e999) are refused.
class JsonReader {
 public:
  using Value = boost::json::value;

  bool ok() const { return !error_.has_value(); }
  std::optional<ApiError>& error() { return error_; }

  // Each returns whether `out` was set. `out` is unchanged on failure.
  bool Bool(std::string_view path, const Value& v, bool& out);
  bool String(std::string_view path, const Value& v, std::string& out);
  // Whether `text` may be taken: U+0000 is refused, for programs on the way that end texts with it
  // would read another request than the model does.
  bool HoldsNoNul(std::string_view path, std::string_view text);
  bool Int(std::string_view path, const Value& v, int64_t low, int64_t high, int64_t& out);
  // Low bound inclusive or not; high bound inclusive.
  enum class Low : uint8_t { kInclusive, kExclusive };
  bool Number(std::string_view path, const Value& v, double low, Low low_kind, double high,
              float& out);
  bool TokenIds(std::string_view path, const boost::json::array& values, size_t limit,
                std::vector<TokenId>& out);

  // All three return false.
  bool Fail(std::string_view path, std::string_view what, std::string_view code = {});
  bool WrongType(std::string_view path, std::string_view wanted, const Value& got);
  bool NotOffered(std::string_view path, std::string_view what = {});

 private:
  std::optional<ApiError> error_;
};

// "messages[3].content"
std::string PathOf(std::string_view parent, size_t index);
std::string PathOf(std::string_view parent, std::string_view key);
std::string_view KindName(const boost::json::value& v);
// Text of a client, cut to what a message should repeat.
std::string Quoted(std::string_view text);

}  // namespace kvrm
