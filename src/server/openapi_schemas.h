// JSON schemas of what bodies hold and answers have. Constant data; thread-safe. Private to
// /openapi.json and its tests.
#pragma once

#include <span>
#include <string_view>

#include "server/openai_types.h"
#include "server/routes.h"

namespace kvrm {

// The schema of a field that requests of `api` read, as JSON; "" = none is known.
std::string_view FieldSchema(Api api, std::string_view name);

struct ConvertField {
  Route route;
  std::string_view name;
  std::string_view schema;
};
// The fields of all routes of kind kConvert.
std::span<const ConvertField> ConvertFields();

// What a body must have; "" = one of several.
std::string_view RequiredField(Route route);

// Of the answer with status 200 (not streamed).
std::string_view AnswerSchema(Route route);

}  // namespace kvrm
