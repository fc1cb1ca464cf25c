// The body of a request as parsed JSON: one object, nested no deeper than kMaxJsonDepth. Private to
// the parsers of request bodies (it shows Boost.JSON). Thread-compatible.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string_view>

#include "server/openai_types.h"

namespace kvrm {

// Owns the values; they live in growing blocks that are dropped whole: no call per value to free.
class JsonBody {
 public:
  // Nothing when `text` is one JSON object. Call once.
  std::optional<ApiError> Parse(std::string_view text);
  // Requires: Parse gave no error.
  const boost::json::object& object() const { return root_.get_object(); }

 private:
  boost::json::monotonic_resource memory_;
  boost::json::value root_;
};

}  // namespace kvrm
