#include "server/json_body.h"

#include <string>

#include "server/json_reader.h"
#include "text/text_stream.h"

namespace kvrm {
namespace {

namespace json = boost::json;

ApiError BadJson(const json::error_code& ec, size_t at) {
  ApiError error;
  error.message = "body: not valid JSON at byte " + std::to_string(at) + ": ";
  if (ec == json::error::too_deep) {
    error.message += "nested deeper than the limit of " + std::to_string(kMaxJsonDepth);
  } else {
    error.message += SanitizeUtf8(ec.message());
  }
  error.code = "invalid_json";
  return error;
}

}  // namespace

std::optional<ApiError> JsonBody::Parse(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::parser parser(json::storage_ptr(), options);
  parser.reset(&memory_);
  json::error_code ec;
  const size_t read = parser.write_some(text.data(), text.size(), ec);
  if (!ec && text.find_first_not_of(" \t\r\n", read) != std::string_view::npos) {
    ec = json::error::extra_data;
  }
  if (ec) return BadJson(ec, read);
  root_ = parser.release();
  if (root_.is_object()) return std::nullopt;
  ApiError error;
  error.message = "body: must be a JSON object, not " + std::string(KindName(root_));
  error.code = "invalid_type";
  return error;
}

}  // namespace kvrm
