// Typed reading of the fields of a parsed JSON object, with the path in each message. Private to
// the readers of the hub's files.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/utf8.h"

namespace kvrm::hub {

inline constexpr char kFile[] = "tokenizer.json: ";

inline Error Invalid(const std::string& what) { return InvalidInput(kFile + what); }
inline Error NotOffered(const std::string& what) {
  return Unsupported(kFile + what + " is not supported");
}

// Null where there is no field of that name, or null itself stands there.
inline const boost::json::value* Find(const boost::json::object& object, std::string_view name) {
  const boost::json::value* found = object.if_contains(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

// "within.name"
inline std::string PathOf(std::string_view within, std::string_view name) {
  return std::string(within) + (within.empty() ? "" : ".") + std::string(name);
}

// `within`: the path of `object`, for messages.
inline Result<bool> Flag(const boost::json::object& object, std::string_view name, bool fallback,
                         std::string_view within = "") {
  const boost::json::value* found = Find(object, name);
  if (found == nullptr) return fallback;
  if (!found->is_bool()) return Invalid(PathOf(within, name) + " is no boolean");
  return found->get_bool();
}

// "" where it is absent.
inline Result<std::string> String(const boost::json::object& object, std::string_view name,
                                  std::string_view within = "") {
  const boost::json::value* found = Find(object, name);
  if (found == nullptr) return std::string();
  if (!found->is_string()) return Invalid(PathOf(within, name) + " is no string");
  return std::string(found->get_string());
}

}  // namespace kvrm::hub
