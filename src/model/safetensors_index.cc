#include "model/safetensors_index.h"

#include <boost/json.hpp>

#include "model/gguf.h"

namespace kvrm {
namespace {

namespace json = boost::json;

bool IsFileName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> ParseSafetensorsIndex(
    std::string_view text) {
  json::error_code error;
  const json::value index = json::parse({text.data(), text.size()}, error);
  if (error || !index.is_object()) return InvalidInput("is no JSON object");
  const json::value* map = index.get_object().if_contains("weight_map");
  if (map == nullptr || !map->is_object()) return InvalidInput("has no weight_map");
  std::vector<std::pair<std::string, std::string>> tensors;
  for (const auto& [tensor, value] : map->get_object()) {
    const std::string file = value.is_string() ? std::string(value.get_string()) : "";
    if (!IsFileName(file)) {
      return InvalidInput("tensor '" + PrintableName(tensor) + "' lies in '" + PrintableName(file) +
                          "', must be a file of the folder");
    }
    tensors.emplace_back(std::string(tensor), file);
  }
  return tensors;
}

}  // namespace kvrm
