// The HTTP server, as the rest of the program sees it: bind, attach an engine, drain, stop.
//
// Binding comes before loading: a port in use is known within a second, and /health says 503 until
// Attach. One I/O thread serves all connections; one more parses, renders and tokenizes; the
// engine's thread is the caller's. Thread-safe but for construction and destruction.
//
// Order of ending: the engine has ended (its Run returned) before Stop or the destructor is called;
// the server is destroyed before engine, tokenizer and template.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/loader.h"
#include "server/openai_types.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvrm {

enum class LogFormat : uint8_t { kText, kJson };

struct ServerConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0 = any free one
  std::string alias;     // --alias: the model's id; empty = from its file
  bool strict_model = false;
  std::string chat_template;  // source, in place of the model's own; empty = the model's
  RequestDefaults defaults;   // of fields that a request leaves out

  // Who may ask.
  std::vector<std::string> api_keys;      // --api-key; none, and no file: everybody
  std::string api_key_file;               // --api-key-file; empty = none
  std::vector<std::string> cors_origins;  // --cors: whose pages may read answers; "*" = all

  // Bounds. Over them: 503, 413, 431, or the stream is cut.
  uint32_t max_connections = 4096;
  uint64_t max_body_bytes = 8u << 20;
  uint32_t max_header_bytes = 32u << 10;
  uint64_t max_outbox_bytes = 1u << 20;          // made for a stream and not yet sent
  uint64_t max_pending_body_bytes = 256u << 20;  // large bodies being read, all together
  uint32_t send_buffer_bytes = 0;                // SO_SNDBUF; 0 = the system's

  // Deadlines; a connection that misses one is closed.
  std::chrono::milliseconds idle_timeout{75'000};    // between requests
  std::chrono::milliseconds header_timeout{15'000};  // first byte to end of header
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds write_timeout{30'000};  // one write, whole: the outbox's greatest age
  std::chrono::milliseconds keep_alive_interval{15'000};  // a silent stream gets a comment
  std::chrono::milliseconds drain_timeout{10'000};        // --drain-seconds
  std::chrono::milliseconds stall_timeout{30'000};        // no progress with work open: 503

  LogFormat log_format = LogFormat::kText;
  std::function<void(std::string_view)> log;             // one line, any thread; empty = stderr
  std::function<void(const std::string&)> on_listening;  // RunServer: bound; gets the URL
  std::function<void(const Runtime&)> on_loaded;         // RunServer: loaded, not yet served
  std::function<void(const std::string&)> on_ready;      // RunServer: serving; gets the URL
};

class Server {
 public:
  // Binds, listens, starts the threads. Errors name host and port: kUnavailable (in use),
  // kInvalidInput (host unknown, no right to the port); or the API key file and its line.
  static Result<std::unique_ptr<Server>> Bind(const ServerConfig& config);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  uint16_t port() const;    // as bound
  std::string url() const;  // "http://127.0.0.1:8080"

  // Ready from now on. `chat_template` null: the model has none, chat is refused. All three outlive
  // the server. Call once.
  void Attach(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate* chat_template,
              const std::string& model_id);

  // /health says 503, new requests get 503, open answers go on until drain_timeout and then end
  // with an error event. `done` is called once, on the I/O thread, when nothing is open.
  void Drain(std::function<void()> done);
  // Closes every connection and ends the threads. Idempotent.
  void Stop();

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// `kvrm serve`: bind, load, serve until SIGTERM or SIGINT, drain. A second signal, and a signal
// while the model loads, end the process at once. Returns the exit code (0). Errors: those of Bind
// and of loading. The calling thread becomes the engine thread; call it before other threads are
// started (it blocks the two signals for all of them).
Result<int> RunServer(const ServerConfig& config, const RuntimeOptions& options);

}  // namespace kvrm
