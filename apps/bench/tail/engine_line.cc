#include "bench/tail/engine_line.h"

#include <boost/json.hpp>
#include <stdexcept>

namespace kvrm::cli {
namespace {

namespace json = boost::json;

// Throws where the line has another form.
EngineLine Read(std::string_view text) {
  EngineLine line;
  const json::value parsed = json::parse({text.data(), text.size()});
  const json::object& root = parsed.as_object();
  if (const json::value* ready = root.if_contains("ready")) {
    line.ready = ready->as_string();
    if (line.ready.empty()) throw std::invalid_argument("no version");
    return line;
  }
  line.us = root.at("us").to_number<int64_t>();
  for (const json::value& entry : root.at("out").as_array()) {
    const json::array& fields = entry.as_array();
    if (fields.size() != 3) throw std::invalid_argument("an entry has three fields");
    line.outputs.push_back({fields[0].to_number<uint64_t>(), fields[1].to_number<uint32_t>(),
                            std::string(fields[2].as_string())});
  }
  return line;
}

}  // namespace

Result<EngineLine> ParseEngineLine(std::string_view line) {
  try {
    return Read(line);
  } catch (const std::exception&) {
    return InvalidInput("no line of an engine: '" + std::string(line.substr(0, 80)) + "'");
  }
}

}  // namespace kvrm::cli
