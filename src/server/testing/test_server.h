// A server over the CopyExecutor with an engine thread of its own, and the tokenizer and template
// that go with it. Test code only.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "pager/pager.h"
#include "server/server.h"
#include "server/testing/byte_tokenizer.h"
#include "server/testing/copy_executor.h"

namespace kvrm::testing {

// Routes.
inline constexpr const char* kChat = "/v1/chat/completions";
inline constexpr const char* kCompletions = "/v1/completions";

struct TestOptions {
  uint32_t slots = 8;
  uint32_t max_seq_tokens = 512;
  uint32_t max_queued = 4096;
  uint32_t pool_tokens = 16'384;
  bool run_engine = true;     // else the test steps it itself, or never
  uint32_t prompt_rows = 16;  // of a step that decodes, too
  bool keep_log = true;
  std::string lossy_view;  // as the engine is told; the copying executor sees no less for it
  bool validate = true;    // all books after each step
  int64_t max_itl_us = 0;  // the gap budget; 0 = none
  bool attach = true;      // else the server stays in its loading phase
  // What runs in place of the copying executor, made from it; empty = itself.
  std::function<std::unique_ptr<Executor>(std::unique_ptr<Executor>)> wrap;
};

std::unique_ptr<Engine> MakeEngineOver(const TestOptions& options,
                                       std::unique_ptr<Executor> executor, Clock& clock);
std::unique_ptr<Engine> MakeCopyEngine(const TestOptions& options, Clock& clock, Gate& gate);

class TestServer {
 public:
  explicit TestServer(ServerConfig config = {}, const TestOptions& options = {});
  ~TestServer() { Stop(); }

  uint16_t port() const { return server_->port(); }
  Server& server() { return *server_; }
  Engine& engine() { return *engine_; }
  Gate& gate() { return gate_; }
  void Attach();
  // Ends engine and server; idempotent.
  void Stop();
  // Pages held by sequences, the null page aside.
  uint64_t pages_in_use() const { return engine_->Metrics().books.in_use - 1; }
  std::vector<std::string> log();

 private:
  SystemClock clock_;
  Gate gate_;
  std::mutex log_mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<const ChatTemplate> chat_template_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
  std::thread engine_thread_;
};

}  // namespace kvrm::testing
