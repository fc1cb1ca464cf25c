// Request fields that this server does not read: which pass and which are refused. A field that is
// known and not offered is refused unless its value asks for nothing (null, penalties of 0, an
// empty tool list ...): never silently ignored. Private to the parser of request bodies.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string_view>
#include <vector>

#include "server/openai_types.h"

namespace kvrm {

// Which bodies a field belongs to: one bit an Api.
inline constexpr uint8_t kChatOnly = 1, kCompletionsOnly = 2, kNativeOnly = 4, kResponsesOnly = 8,
                         kMessagesOnly = 16;
inline constexpr uint8_t kBoth = kChatOnly | kCompletionsOnly;  // OpenAI's two
inline constexpr uint8_t kRaw = kCompletionsOnly | kNativeOnly;
inline constexpr uint8_t kAll = 31;
inline uint8_t ApiBit(Api api) { return static_cast<uint8_t>(1u << static_cast<uint32_t>(api)); }

// The fields that requests of `api` read, in the order of their table.
std::vector<std::string_view> ReadFieldNames(Api api);

enum class FieldVerdict : uint8_t { kNoEffect, kNotOffered, kUnknown };
FieldVerdict JudgeField(Api api, std::string_view name, const boost::json::value& v);

// "", [] or {}.
bool IsEmptyValue(const boost::json::value& v);

}  // namespace kvrm
