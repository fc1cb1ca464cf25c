#include "text/chat_json.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "base/test_data.h"
#include "text/test_vocabulary.h"

namespace kvrm {
namespace {

std::filesystem::path Corpus() {
  return std::filesystem::path(KVRM_SOURCE_DIR) / "tests/fuzz/conversation";
}

struct BrokenConversation {
  const char* name;  // of the file, after the check that refuses it
  const char* message;
};

constexpr BrokenConversation kBrokenConversations[] = {
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
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(Corpus() / "broken")) {
    files.insert(entry.path().stem());
  }
  for (const BrokenConversation& broken : kBrokenConversations) {
    EXPECT_EQ(files.erase(broken.name), 1u) << broken.name;
    const auto conversation = ParseConversation(
        testing::ReadFile(Corpus() / "broken" / (std::string(broken.name) + ".json")));
    ASSERT_FALSE(conversation.ok()) << broken.name;
    EXPECT_NE(conversation.error().message.find(broken.message), std::string::npos)
        << broken.name << ": " << conversation.error().message;
  }
  EXPECT_EQ(files, std::set<std::string>{}) << "a file that no row of the table names";
}

TEST(Conversation, FieldsReachTheTemplateAsTheyAre) {
  const auto read = ParseConversation(testing::ReadFile(Corpus() / "tools_and_parts.json"));
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
