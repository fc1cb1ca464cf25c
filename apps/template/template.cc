// kvrm template: a conversation, in JSON on standard input, as the model would read it. Reads the
// tokenizer alone; no weights are loaded.
#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "kvrm/commands.h"
#include "options/read_all.h"
#include "session/tokenizer_source.h"
#include "text/chat_json.h"
#include "text/chat_template.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace kvrm::cli {
namespace {

struct Renderer {
  std::unique_ptr<const ChatTemplate> chat_template;
  std::string bos_token, eos_token;
  int64_t now = 0;
};

// Seconds since 1970 at the beginning of the day `text`, "2026-11-30".
Result<int64_t> ParseDate(std::string_view text) {
  int parts[3] = {};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int i = 0; i < 3; ++i) {
    const auto parsed = std::from_chars(at, end, parts[i]);
    const bool ends = i == 2 ? parsed.ptr == end : parsed.ptr != end && *parsed.ptr == '-';
    if (parsed.ec != std::errc() || !ends) parts[1] = 0;
    at = parsed.ptr == end ? end : parsed.ptr + 1;
  }
  const auto day = std::chrono::year{parts[0]} / parts[1] / parts[2];
  if (!day.ok()) {
    return InvalidInput("--date: '" + std::string(text) + "' is no date such as 2026-11-30");
  }
  return std::chrono::sys_seconds(std::chrono::sys_days(day)).time_since_epoch().count();
}

Result<Renderer> OpenRenderer(const OptionValues& values) {
  Renderer renderer;
  renderer.now = std::chrono::duration_cast<std::chrono::seconds>(
                     std::chrono::system_clock::now().time_since_epoch())
                     .count();
  if (!values.Text("date").empty()) {
    KVRM_ASSIGN_OR_RETURN(renderer.now, ParseDate(values.Text("date")));
  }
  TokenizerSpec spec;
  // A template given by name or file needs no model, unless one is named for its tokens.
  if (values.Text("chat-template").empty() || !values.Text("model").empty()) {
    KVRM_ASSIGN_OR_RETURN(spec, TokenizerSpecOf(values));
  }
  KVRM_ASSIGN_OR_RETURN(const std::string source, ChatTemplateSource(values, spec));
  if (source.empty()) return Unsupported("the model has no chat template; give --chat-template");
  KVRM_ASSIGN_OR_RETURN(renderer.chat_template, ChatTemplate::Parse(source));
  if (!spec.tokens.empty()) {
    KVRM_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Create(std::move(spec)));
    const auto text_of = [&](TokenId id) {
      return id < 0 ? std::string() : std::string(tokenizer->TokenBytes(id, /*with_special=*/true));
    };
    renderer.bos_token = text_of(tokenizer->spec().bos);
    renderer.eos_token = text_of(tokenizer->spec().eos);
  }
  return renderer;
}

// `bos_token` and `eos_token` beside the messages stand in for those of the model.
void TakeTokenTexts(RenderOptions& options) {
  for (const auto& [name, value] : options.variables) {
    const auto* text = std::get_if<std::string>(&value.data);
    if (text != nullptr && name == "bos_token") options.bos_token = *text;
    if (text != nullptr && name == "eos_token") options.eos_token = *text;
  }
}

Result<std::string> Render(const Renderer& renderer, std::string_view json) {
  KVRM_ASSIGN_OR_RETURN(Conversation conversation, ParseConversation(json));
  conversation.options.now = renderer.now;
  conversation.options.bos_token = renderer.bos_token;
  conversation.options.eos_token = renderer.eos_token;
  TakeTokenTexts(conversation.options);
  KVRM_ASSIGN_OR_RETURN(const auto pieces, renderer.chat_template->Render(conversation.messages,
                                                                          conversation.options));
  return JoinPieces(pieces);
}

// One line of JSON for each line: {"text": ...} or {"error": ...}.
std::string RenderLines(const Renderer& renderer, std::string_view lines) {
  std::string output;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const auto text = Render(renderer, lines.substr(begin, end - begin));
    boost::json::object line;
    line[text.ok() ? "text" : "error"] = SanitizeUtf8(text.ok() ? *text : text.error().message);
    output += boost::json::serialize(line) + "\n";
    begin = end + 1;
  }
  return output;
}

}  // namespace

int RunTemplate(const OptionValues& values) {
  const auto renderer = OpenRenderer(values);
  if (!renderer.ok()) return Failed(values, renderer.error());
  const auto input = ReadAll("standard input", "-");
  if (!input.ok()) return Failed(values, input.error());
  std::string output;
  if (values.Flag("json-lines")) {
    output = RenderLines(*renderer, *input);
  } else {
    auto text = Render(*renderer, *input);
    if (!text.ok()) return Failed(values, text.error());
    output = std::move(text).value();
  }
  return WriteOutput(values, output);
}

}  // namespace kvrm::cli
