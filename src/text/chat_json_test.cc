#include "text/chat_json.h"

#include <gtest/gtest.h>

#include <string>

#include "base/broken_corpus.h"
#include "text/test_vocabulary.h"

namespace kvrm {
namespace {

constexpr testing::BrokenFile kBrokenConversations[] = {
    {"no_json", "conversation: no JSON (incomplete"},
    {"text_after_its_end", "conversation: no JSON (text after its end"},
    {"nested_too_deep", "conversation: no JSON (too deep"},
    {"messages_missing", "messages is missing"},
    {"messages_no_list", "messages is no list"},
    {"message_no_object", "messages[0] is no object"},
    {"role_no_string", "messages[0].role is no string"},
    {"role_missing", "messages[0].role is missing"},
    {"generation_prompt_no_boolean", "add_generation_prompt is no boolean"},
};

TEST(Conversation, EachBrokenFileIsRefusedByTheCheckItIsNamedAfter) {
  testing::ExpectEachRefusedByItsCheck(
      "conversation/broken", ".json", kBrokenConversations,
      [](const std::string&, const std::string& text) -> std::string {
        const auto conversation = ParseConversation(text);
        return conversation.ok() ? "" : conversation.error().message;
      });
}

TEST(Conversation, FieldsReachTheTemplateAsTheyAre) {
  const auto read = ParseConversation(testing::ReadFile(
      std::string(KVRM_SOURCE_DIR) + "/tests/fuzz/conversation/tools_and_parts.json"));
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->messages.size(), 2u);
  EXPECT_FALSE(read->messages[0].has_content) << "parts are no text";
  EXPECT_FALSE(read->messages[1].has_content);
  EXPECT_FALSE(read->options.add_generation_prompt);
  ASSERT_EQ(read->options.variables.size(), 2u);
  EXPECT_EQ(read->options.variables[0].name, "deep");
  EXPECT_EQ(read->options.variables[1].name, "n");
  EXPECT_EQ(std::get<double>(read->options.variables[1].value.data), 18446744073709551616.0);
}

}  // namespace
}  // namespace kvrm
