// Request fields that this server does not read: which pass and which are refused. A field that is
// known and not offered is refused unless its value asks for nothing (null, penalties of 0, an
// empty tool list ...): never silently ignored. Private to the parser of request bodies.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string_view>

#include "server/openai_types.h"

namespace kvrm {

// Which of the two bodies a field belongs to.
inline constexpr uint8_t kChatOnly = 1, kCompletionsOnly = 2, kBoth = 3;
inline uint8_t ApiBit(Api api) { return api == Api::kChat ? kChatOnly : kCompletionsOnly; }

enum class FieldVerdict : uint8_t { kNoEffect, kNotOffered, kUnknown };
FieldVerdict JudgeField(Api api, std::string_view name, const boost::json::value& v);

// "", [] or {}.
bool IsEmptyValue(const boost::json::value& v);

}  // namespace kvrm
