// kvrm chat: a conversation, turn by turn, its history kept.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "chat/line_reader.h"
#include "kvrm/commands.h"
#include "session/generation.h"
#include "session/interrupt.h"
#include "session/session.h"

namespace kvrm::cli {
namespace {

class Conversation {
 public:
  Conversation(Session& session, const OptionValues& values)
      : session_(session), values_(values), terminal_(isatty(STDIN_FILENO) != 0) {
    Clear();
  }

  // Until /exit or the end of input. Returns the exit code.
  int Run() {
    LineReader reader(STDIN_FILENO);
    if (terminal_) std::fputs("Ctrl-C stops an answer; /clear forgets; /exit leaves.\n", stderr);
    std::string line;
    while (true) {
      if (terminal_) Show("> ");
      const LineReader::Outcome outcome = reader.Read(line);
      if (outcome == LineReader::Outcome::kEnd) break;
      if (outcome == LineReader::Outcome::kInterrupted) {
        TakeInterrupt();
        Show("\n");
        continue;
      }
      if (line == "/exit" || line == "/quit") return exit_code_;
      if (line == "/clear") {
        Clear();
      } else if (!line.empty()) {
        Turn(line);
      }
      if (!writable_) return OutputFailed(values_);
    }
    if (terminal_) Show("\n");
    return exit_code_;
  }

 private:
  void Clear() {
    messages_.clear();
    if (!values_.Text("system").empty()) messages_.push_back({"system", values_.Text("system")});
  }

  // One question and its answer. What was answered before Ctrl-C stays in the history; a question
  // that could not be asked does not.
  void Turn(const std::string& question) {
    messages_.push_back({"user", question});
    const auto prompt = EncodeChat(session_, messages_);
    if (!prompt.ok()) return Refuse(prompt.error());

    GenerateRequest request;
    request.prompt = *prompt;
    request.sampling =
        SamplingOf(values_, SamplingBy(session_.defaults)).value();  // RunChat has looked at them
    request.max_new_tokens = static_cast<uint32_t>(std::max<int64_t>(0, values_.Int("max-tokens")));
    if (!values_.Flag("ignore-eos")) request.end_tokens = session_.tokenizer->end_tokens();

    std::vector<std::unique_ptr<Generation>> answer;
    answer.push_back(std::make_unique<Generation>(*session_.tokenizer,
                                                  [this](std::string_view text) { Show(text); }));
    Engine& engine = *session_.runtime->engine;
    TakeInterrupt();
    const auto id = Start(engine, std::move(request), *answer[0]);
    if (!id) return Refuse({ErrorKind::kInvalidInput, answer[0]->finish().message});
    RunToEnd(engine, answer, {&*id, 1}, [this] { return writable_; });
    Show("\n");
    if (answer[0]->failed()) return Refuse({ErrorKind::kInvalidInput, answer[0]->finish().message});
    messages_.push_back({"assistant", answer[0]->text()});
  }

  void Refuse(const Error& error) {
    messages_.pop_back();
    const int code = Failed(values_, error);
    // A script's exit code tells that a turn failed; a person has seen it.
    if (!terminal_) exit_code_ = code;
  }

  void Show(std::string_view text) {
    writable_ = writable_ && std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
                std::fflush(stdout) == 0;
  }

  Session& session_;
  const OptionValues& values_;
  const bool terminal_;
  std::vector<ChatMessage> messages_;
  bool writable_ = true;
  int exit_code_ = kExitDone;
};

}  // namespace

int RunChat(const OptionValues& values) {
  if (const auto sampling = SamplingOf(values); !sampling.ok()) {
    return UsageError(values, sampling.error().message);
  }
  auto session = OpenSession(values, ChatUse::kRequired);
  if (!session.ok()) return Failed(values, session.error());
  CatchInterrupts();
  return Conversation(*session, values).Run();
}

}  // namespace kvrm::cli
