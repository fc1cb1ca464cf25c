// A JSON value of a conversation, as plain data: what chat templates are given beside text (tool
// calls, tool descriptions, content in parts).
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace kvrm {

struct ChatValue;
struct ChatField;
using ChatList = std::vector<ChatValue>;
using ChatFields = std::vector<ChatField>;  // in order, names distinct

struct ChatValue {
  std::variant<std::monostate, bool, int64_t, double, std::string, ChatList, ChatFields> data;

  bool is_null() const { return std::holds_alternative<std::monostate>(data); }
};

struct ChatField {
  std::string name;
  ChatValue value;
};

}  // namespace kvrm
