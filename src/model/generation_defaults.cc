#include "model/generation_defaults.h"

#include <algorithm>
#include <boost/json.hpp>
#include <limits>

namespace kvrm {
namespace {

namespace json = boost::json;

struct FloatField {
  const char* hub;
  const char* gguf;
  std::optional<float> GenerationDefaults::* value;
};
constexpr FloatField kFloats[] = {
    {"temperature", "general.sampling.temp", &GenerationDefaults::temperature},
    {"top_p", "general.sampling.top_p", &GenerationDefaults::top_p},
    {"min_p", "general.sampling.min_p", &GenerationDefaults::min_p},
    {"repetition_penalty", "general.sampling.penalty_repeat",
     &GenerationDefaults::repetition_penalty},
};
constexpr char kTopK[] = "general.sampling.top_k";
constexpr char kEndTokens[] = "general.end_token_ids";  // not one of GGUF's own
constexpr size_t kMaxEndTokens = 64;

Error WrongType(const char* field, const char* wanted) {
  return InvalidInput("field '" + std::string(field) + "' is no " + wanted);
}

// An id, or a list of them.
Result<std::vector<int64_t>> EndTokens(const json::value& value) {
  constexpr const char* kField = "eos_token_id";
  const json::array one{value};
  const json::array& list = value.is_array() ? value.get_array() : one;
  if (list.size() > kMaxEndTokens) return WrongType(kField, "list of at most 64 ids");
  std::vector<int64_t> ids;
  for (const json::value& item : list) {
    json::error_code error;
    const auto id = item.to_number<TokenId>(error);
    if (error || id < 0) return WrongType(kField, "token id, nor a list of them");
    ids.push_back(id);
  }
  return ids;
}

}  // namespace

Result<std::vector<std::pair<std::string, GgufValue>>> ReadHubGeneration(std::string_view text) {
  json::error_code error;
  const json::value config = json::parse({text.data(), text.size()}, error);
  if (error || !config.is_object()) return InvalidInput("is no JSON object");
  const auto find = [&](const char* field) -> const json::value* {
    const json::value* value = config.get_object().if_contains(field);
    return value == nullptr || value->is_null() ? nullptr : value;
  };
  std::vector<std::pair<std::string, GgufValue>> metadata;
  for (const FloatField& field : kFloats) {
    const json::value* value = find(field.hub);
    if (value == nullptr) continue;
    const double number = value->to_number<double>(error);
    if (error) return WrongType(field.hub, "number");
    metadata.emplace_back(field.gguf, GgufValue{number});
  }
  if (const json::value* top_k = find("top_k")) {
    const auto number = top_k->to_number<int64_t>(error);
    if (error) return WrongType("top_k", "whole number");
    metadata.emplace_back(kTopK, GgufValue{number});
  }
  if (const json::value* ids = find("eos_token_id")) {
    KVRM_ASSIGN_OR_RETURN(auto list, EndTokens(*ids));
    metadata.emplace_back(kEndTokens, GgufValue{std::move(list)});
  }
  return metadata;
}

Result<GenerationDefaults> ReadGenerationDefaults(const GgufFile& file) {
  GenerationDefaults defaults;
  for (const FloatField& field : kFloats) {
    if (file.Find(field.gguf) == nullptr) continue;
    KVRM_ASSIGN_OR_RETURN(const double number, file.GetFloat(field.gguf, std::nullopt));
    defaults.*field.value = static_cast<float>(number);
  }
  if (const GgufValue* top_k = file.Find(kTopK)) {
    const auto* signed_k = std::get_if<int64_t>(&top_k->data);
    const auto* unsigned_k = std::get_if<uint64_t>(&top_k->data);
    if (signed_k == nullptr && unsigned_k == nullptr) {
      return InvalidInput(file.name() + ": key '" + kTopK + "' is no whole number");
    }
    constexpr uint64_t kMax = std::numeric_limits<uint32_t>::max();
    const uint64_t k = unsigned_k != nullptr ? *unsigned_k
                       : *signed_k < 0       ? 0  // -1: off
                                             : static_cast<uint64_t>(*signed_k);
    defaults.top_k = static_cast<uint32_t>(std::min(k, kMax));
  }
  if (const GgufValue* ids = file.Find(kEndTokens)) {
    if (const auto* list = std::get_if<IntegerList>(&ids->data)) {
      for (size_t i = 0; i < list->size(); ++i) {
        defaults.end_tokens.push_back(static_cast<TokenId>((*list)[i]));
      }
    }
  }
  return defaults;
}

}  // namespace kvrm
