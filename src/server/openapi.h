// /openapi.json: what can be asked, for tools. Made from the table of routes and from the fields
// that the readers of bodies read; a test holds the two to each other. Pure, thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace kvrm {

// OpenAPI 3.1.
std::string OpenApiBody(std::string_view version);

}  // namespace kvrm
