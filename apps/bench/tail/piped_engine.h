// The load generator's other end for rivals that are libraries: a process of its own runs one and
// is asked over its standard input, a JSON object a line: {"add": ID, "tokens": [...], "max_new":
// N, "ignore_eos": true} or {"stop": ID}. What it answers: engine_line.h.
//
// Tokens have the time at which the engine's step was done, by its own process: there is no HTTP in
// them, no tokenizer, and no wait for this process. A step that gives a request several tokens is
// one event.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "bench/load/exchange.h"
#include "bench/tail/engine_line.h"
#include "bench/tail/server_process.h"

namespace kvrm::cli {

class PipedExchange;

class PipedEngine final : public LoadBackend {
 public:
  // The tokens of a text.
  using Encode = std::function<std::vector<TokenId>(const std::string&)>;

  // Starts `command` and waits until it is ready; what it prints besides goes to the file `log`.
  // Errors: it cannot be started, ended, or `timeout_s` passed.
  static Result<std::unique_ptr<PipedEngine>> Start(std::vector<std::string> command,
                                                    const std::string& log, double timeout_s,
                                                    uint32_t context_tokens, Encode encode);
  // Ends the process. Requires: no exchange is open.
  ~PipedEngine() override;

  // Completions only; a chat's question ends as malformed.
  std::shared_ptr<Exchange> Ask(boost::asio::io_context& io, const Question& question,
                                RequestRecord record, Exchange::OnText on_text,
                                Exchange::OnEnd on_end) override;
  uint32_t context_tokens() const override { return context_tokens_; }
  int64_t pid() const { return process_.pid(); }
  const std::string& version() const { return version_; }

 private:
  friend class PipedExchange;
  PipedEngine(ServerProcess process, int fd, uint32_t context_tokens, Encode encode);
  Status AwaitReady(double timeout_s);

  // On the reader's thread.
  void ReadLines();
  bool TakeLine(std::string_view line);
  void LoseAll(const std::string& why);

  // False: it has ended.
  bool Say(const std::string& line);
  // From now on what the engine says of the exchange goes to it. nullopt: the engine has ended.
  std::optional<uint64_t> Enter(std::shared_ptr<PipedExchange> exchange);
  // Nothing more of it is posted, and the engine is told to stop it.
  void Leave(uint64_t id);
  // Until the reader has done what it was doing: an exchange that has been told its end waits
  // before it lets the io_context go, into which the reader may still be posting, and which has to
  // outlive the reader's hold on the exchange.
  void AwaitReader();

  ServerProcess process_;
  const int fd_;  // its standard input and output, a socket
  const uint32_t context_tokens_;
  const Encode encode_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string version_;   // guarded; constant once it is set
  std::string lost_;      // guarded; why it has ended, "" while it runs
  uint64_t next_id_ = 1;  // guarded
  std::map<uint64_t, std::shared_ptr<PipedExchange>> open_;  // guarded
  std::thread reader_;
};

}  // namespace kvrm::cli
