#include "server/testing/named_events.h"

#include <gtest/gtest.h>

#include <string_view>
#include <utility>

namespace kvrm::testing {

std::vector<Event> EventsOf(const HttpAnswer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(answer.complete);
  std::vector<Event> events;
  std::string_view rest = answer.body;
  while (!rest.empty()) {
    const size_t end = rest.find("\n\n");
    if (end == std::string_view::npos) {
      ADD_FAILURE() << "no event: " << rest;
      break;
    }
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    Event event;
    if (text.starts_with("event: ")) {
      event.name = text.substr(7, text.find('\n') - 7);
      text.remove_prefix(text.find('\n') + 1);
    }
    EXPECT_TRUE(text.starts_with("data: ")) << text;
    event.data = boost::json::parse(text.substr(6));
    events.push_back(std::move(event));
  }
  return events;
}

std::string ParamOf(const HttpAnswer& answer) {
  const boost::json::value body = answer.json();
  const auto& param = body.at("error").at("param");
  return param.is_string() ? Text(param) : "";
}

}  // namespace kvrm::testing
