// Server-sent events with names, and fields of JSON answers, for the tests of APIs beside OpenAI's
// completions. Test code only.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "server/testing/http_client.h"

namespace kvrm::testing {

struct Event {
  std::string name;  // "" = none
  boost::json::value data;
};
// The events of a whole stream; every byte must belong to one.
std::vector<Event> EventsOf(const HttpAnswer& answer);

inline std::string Text(const boost::json::value& v) { return std::string(v.as_string()); }
// The field that an error names; "" = none.
std::string ParamOf(const HttpAnswer& answer);

}  // namespace kvrm::testing
