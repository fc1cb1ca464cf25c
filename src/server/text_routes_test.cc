#include "server/text_routes.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>

#include "server/testing/test_server.h"

namespace kvrm {
namespace {

namespace json = boost::json;
using testing::kFirstByte;
using testing::kTurnBegin;
using testing::kTurnEnd;

class TextRoutes : public ::testing::Test {
 protected:
  json::value Ask(Route route, const std::string& body) {
    const auto answer = Convert(route, body, encoder_);
    const auto* text = std::get_if<std::string>(&answer);
    if (text == nullptr) {
      ADD_FAILURE() << std::get<ApiError>(answer).message;
      return json::object();
    }
    return json::parse(*text);
  }
  ApiError ErrorOf(Route route, const std::string& body) {
    auto answer = Convert(route, body, encoder_);
    EXPECT_TRUE(std::holds_alternative<ApiError>(answer)) << body;
    return std::get<ApiError>(std::move(answer));
  }
  static json::array Ids(std::initializer_list<int64_t> ids) {
    json::array list;
    for (const int64_t id : ids) list.emplace_back(id);
    return list;
  }

  const std::unique_ptr<const Tokenizer> tokenizer_ = testing::MakeByteTokenizer();
  const std::unique_ptr<const ChatTemplate> template_ = testing::MakeChatTemplate();
  const PromptEncoder encoder_{*tokenizer_, template_.get(), 64};
};

TEST_F(TextRoutes, BothNamesOfTheTextGiveTheSameTokensInBothShapes) {
  for (const char* body : {R"({"content":"hi"})", R"({"prompt":"hi","add_special_tokens":false})",
                           R"({"model":"m","prompt":"hi"})"}) {
    const json::value answer = Ask(Route::kTokenize, body);
    EXPECT_EQ(answer.at("tokens").as_array(), Ids({kFirstByte + 'h', kFirstByte + 'i'})) << body;
    EXPECT_EQ(answer.at("count").as_int64(), 2) << body;
    EXPECT_EQ(answer.at("max_model_len").as_int64(), 64) << body;
  }
}

TEST_F(TextRoutes, ControlTokensAreParsedUnlessTheTextIsOnlyText) {
  EXPECT_EQ(Ask(Route::kTokenize, R"({"content":"<|im_end|>"})").at("tokens").as_array(),
            Ids({kTurnEnd}));
  EXPECT_EQ(Ask(Route::kTokenize, R"({"content":"<|im_end|>","parse_special":false})")
                .at("count")
                .as_int64(),
            10);
}

TEST_F(TextRoutes, PiecesShowTextOrTheBytesOfPartsOfCharacters) {
  const json::value answer =
      Ask(Route::kTokenize, R"({"content":"a\u00e9","with_pieces":true,"return_token_strs":true})");
  const auto& tokens = answer.at("tokens").as_array();
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0].at("piece").as_string(), "a");
  EXPECT_EQ(tokens[1].at("piece").as_array(), Ids({0xC3}));
  EXPECT_EQ(tokens[2].at("piece").as_array(), Ids({0xA9}));
  EXPECT_EQ(answer.at("token_strs").as_array().size(), 3u);
}

// The same ids that /v1/chat/completions would compute: user text forges no control token (B052).
TEST_F(TextRoutes, ConversationsAreTokenizedAsChatDoes) {
  const std::string body = R"({"messages":[{"role":"user","content":"<|im_end|>"}]})";
  const auto tokens = Ask(Route::kTokenize, body).at("tokens").as_array();
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), json::value(int64_t{kTurnEnd})), 1);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), json::value(int64_t{kTurnBegin})), 2);
  EXPECT_EQ(Ask(Route::kApplyTemplate, body).at("prompt").as_string(),
            "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n");
}

TEST_F(TextRoutes, DetokenizingTakesTokenizingBack) {
  const json::value ids = Ask(Route::kTokenize, R"({"content":"<|im_start|>h\u00e9"})");
  const json::value text = Ask(Route::kDetokenize, json::serialize(ids));
  EXPECT_EQ(text.at("content").as_string(), "<|im_start|>h\xC3\xA9");
  EXPECT_EQ(text.at("prompt"), text.at("content"));
  EXPECT_EQ(Ask(Route::kDetokenize, R"({"tokens":[]})").at("content").as_string(), "");
  // Half a character is not sent as it is (B039).
  EXPECT_EQ(Ask(Route::kDetokenize, R"({"tokens":[198]})").at("content").as_string(),
            "\xEF\xBF\xBD");
}

TEST_F(TextRoutes, TextsLongerThanTheContextAreTokenized) {
  const std::string body = R"({"prompt":")" + std::string(500, 'x') + "\"}";
  EXPECT_EQ(Ask(Route::kTokenize, body).at("count").as_int64(), 500);
}

TEST_F(TextRoutes, ErrorsNameTheField) {
  EXPECT_EQ(ErrorOf(Route::kTokenize, "{}").param, "prompt");
  EXPECT_EQ(ErrorOf(Route::kTokenize, R"({"prompt":"a","content":"b"})").param, "prompt");
  EXPECT_EQ(ErrorOf(Route::kTokenize, R"({"prompt":["a"]})").param, "prompt");
  EXPECT_EQ(ErrorOf(Route::kTokenize, R"({"content":"a","with_pieces":1})").param, "with_pieces");
  EXPECT_EQ(ErrorOf(Route::kTokenize, R"({"messages":[]})").param, "messages");
  const std::string chat = R"({"messages":[{"role":"user","content":"a"}],)";
  EXPECT_EQ(ErrorOf(Route::kTokenize, chat + R"("with_pieces":1})").param, "with_pieces");
  EXPECT_EQ(ErrorOf(Route::kTokenize, chat + R"("prompt":"a"})").param, "prompt");
  EXPECT_TRUE(Ask(Route::kTokenize, chat + R"("return_token_strs":true,"prompt":null})")
                  .at("token_strs")
                  .is_array());
  EXPECT_EQ(ErrorOf(Route::kTokenize, "[").code, "invalid_json");
  EXPECT_EQ(ErrorOf(Route::kDetokenize, "{}").param, "tokens");
  EXPECT_EQ(ErrorOf(Route::kDetokenize, R"({"tokens":"a"})").code, "invalid_type");
  EXPECT_EQ(ErrorOf(Route::kDetokenize, R"({"tokens":[3,-1]})").param, "tokens[1]");
  EXPECT_EQ(ErrorOf(Route::kDetokenize, R"({"tokens":[3,300]})").param, "tokens[1]");
  EXPECT_EQ(ErrorOf(Route::kApplyTemplate, R"({"messages":[{"role":"x"}]})").param,
            "messages[0].content");
  const PromptEncoder no_template(*tokenizer_, nullptr, 64);
  const auto answer = Convert(Route::kApplyTemplate,
                              R"({"messages":[{"role":"user","content":"a"}]})", no_template);
  EXPECT_EQ(std::get<ApiError>(answer).param, "messages");
}

TEST_F(TextRoutes, TokenizerInfoNamesWhatEvaluationHarnessesRead) {
  const json::value info = json::parse(TokenizerInfoBody(encoder_));
  EXPECT_EQ(info.at("eos_token").as_string(), "<|im_end|>");
  EXPECT_EQ(info.at("bos_token").as_string(), "<|im_start|>");
  EXPECT_TRUE(info.at("pad_token").is_null());
  EXPECT_TRUE(info.at("chat_template").is_null()) << "the tests' vocabulary comes from no file";
  EXPECT_EQ(info.at("vocab_size").as_int64(), testing::kTestVocab);
}

}  // namespace
}  // namespace kvrm
