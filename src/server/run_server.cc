// `kvrm serve`: bind, load, serve, drain. Signals are taken by a thread of their own, so that no
// code of ours runs in a signal handler.
#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "server/server.h"

namespace kvrm {
namespace {

sigset_t EndSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// First signal: drain (or leave, when nothing is served yet). Second: leave at once.
class SignalThread {
 public:
  SignalThread() : set_(EndSignals()) {
    pthread_sigmask(SIG_BLOCK, &set_, &previous_);
    thread_ = std::thread([this] { Run(); });
  }
  ~SignalThread() {
    ended_ = true;
    // Blocked everywhere and taken by sigwait: it wakes the thread, it does not end it.
    pthread_kill(thread_.native_handle(), SIGTERM);  // NOLINT(bugprone-bad-signal-to-kill-thread)
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

  // From now on a signal drains `server` and then stops `engine`.
  void Serve(Server& server, Engine& engine) {
    server_ = &server;
    engine_ = &engine;
  }

 private:
  void Run() {
    int signal = 0;
    bool draining = false;
    while (sigwait(&set_, &signal) == 0 && !ended_) {
      Engine* const engine = engine_;  // set last: then the server is there, too
      Server* const server = server_;
      if (engine == nullptr) std::_Exit(EXIT_SUCCESS);  // still loading: nothing to lose
      if (draining) std::_Exit(EXIT_FAILURE);
      draining = true;
      server->Drain([engine] { engine->Stop(); });
    }
  }

  const sigset_t set_;
  sigset_t previous_{};
  std::atomic<bool> ended_{false};
  std::atomic<Server*> server_{nullptr};
  std::atomic<Engine*> engine_{nullptr};
  std::thread thread_;
};

// Each connection is a file descriptor; many systems hand out 1,024 unless asked.
void RaiseFileLimit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

// The file's name without folder and ending.
std::string ModelIdOf(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

}  // namespace

Result<int> RunServer(const ServerConfig& config, const RuntimeOptions& options) {
  RaiseFileLimit();
  SignalThread signals;
  KVRM_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Bind(config));
  if (config.on_listening) config.on_listening(server->url());

  KVRM_ASSIGN_OR_RETURN(std::unique_ptr<Runtime> runtime, LoadRuntime(options));
  if (config.on_loaded) config.on_loaded(*runtime);
  const TokenizerSpec& spec = runtime->model->tokenizer_spec();
  KVRM_ASSIGN_OR_RETURN(std::unique_ptr<const Tokenizer> tokenizer, Tokenizer::Create(spec));
  std::unique_ptr<const ChatTemplate> chat_template;
  const std::string& source =
      config.chat_template.empty() ? spec.chat_template : config.chat_template;
  if (!source.empty()) {
    KVRM_ASSIGN_OR_RETURN(chat_template, ChatTemplate::Parse(source));
  }

  server->Attach(*runtime->engine, *tokenizer, chat_template.get(), ModelIdOf(options.model_path));
  signals.Serve(*server, *runtime->engine);
  if (config.on_ready) config.on_ready(server->url());
  runtime->engine->Run();
  server->Stop();
  // The server refers to all of these: it goes first.
  server.reset();
  return EXIT_SUCCESS;
}

}  // namespace kvrm
