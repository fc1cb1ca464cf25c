// Listening socket, I/O thread, connections: everything that sessions share. Private to the folder
// (it shows Asio). All methods but those marked are called on the I/O thread alone.
//
// Memory that is refused ends what the handler at hand was doing (http_session.h); the I/O thread
// goes on, and takes up again what must always be pending: accepting and the tick.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "server/api_keys.h"
#include "server/head_check.h"
#include "server/metrics_text.h"
#include "server/read_routes.h"
#include "server/request_log.h"
#include "server/routes.h"
#include "server/server.h"
#include "server/service.h"

namespace kvrm {

class HttpSession;

class HttpServer {
 public:
  using Tcp = boost::asio::ip::tcp;
  using Prepared = std::variant<PreparedRequest, ApiError>;
  using Converted = std::variant<std::string, ApiError>;

  HttpServer(const ServerConfig& config, ApiKeys keys);
  ~HttpServer();

  // ---- the owner's thread
  Status Listen();
  void StartThreads();
  uint16_t port() const { return port_; }
  void Attach(std::function<std::unique_ptr<Service>(std::function<void()> wake)> make);
  void Drain(std::function<void()> done);
  void Stop();

  // ---- sessions
  const ServerConfig& config() const { return config_; }
  ServerPhase phase() const { return phase_; }
  const HeadPolicy& head_policy() const { return head_policy_; }
  const ApiKeys& keys() const { return keys_; }
  Service* service() { return service_.get(); }  // null while loading
  HttpCounters& counters() { return counters_; }
  ReadContext read_context() { return {phase_, service_.get(), counters_}; }
  void LogRequest(const RequestRecord& record) const;
  std::string NextRequestId();  // for requests that bring none
  // Parses and tokenizes on the other thread, then calls `done` on this one.
  void Prepare(Api api, std::optional<uint32_t> key, std::string body,
               std::function<void(Prepared)> done);
  // The same for a route of kind kConvert.
  void Convert(Route route, std::string body, std::function<void(Converted)> done);
  // Room for large bodies under way; false = none left.
  bool TakeBodyBudget(uint64_t bytes);
  void ReturnBodyBudget(uint64_t bytes) noexcept { pending_body_bytes_ -= bytes; }
  // Whether one more answer may be under way for `key` (none: always).
  bool TakeKeySlot(std::optional<uint32_t> key);
  void ReturnKeySlot(std::optional<uint32_t> key) noexcept;
  ApiError KeyBusyError(uint32_t key) const;
  // An answer with a timeout was started.
  void ArmDeadline();
  // An answer is under way from the moment its request is complete until its last byte is written.
  void AnswerBegan() { ++open_answers_; }
  void AnswerEnded() noexcept;
  void Remove(HttpSession* session) noexcept;

 private:
  // What another thread makes for a session: it holds all that telling of it needs.
  template <class Result>
  struct Job {
    std::string body;
    std::function<void(Result)> done;
    std::optional<Result> result;
  };
  template <class Result, class Make>
  void Compute(boost::asio::thread_pool& pool, std::string body, std::function<void(Result)> done,
               Make make);
  Prepared Prepare(Api api, std::optional<uint32_t> key, std::string& body) const;

  void RunIo();
  void Accept();
  void Admit(Tcp::socket socket);
  void OnAccept(const boost::system::error_code& ec, Tcp::socket socket);
  void Wake();
  void ScheduleTick();
  void BeginDrain();
  void OnDrainDeadline();
  template <class Action>
  void ArmDrainTimer(std::chrono::milliseconds time, Action action);
  void EndDrain();
  void CloseAll() noexcept;
  std::vector<HttpSession*> Sessions() const noexcept;

  ServerConfig config_;  // constant after construction
  const ApiKeys keys_;
  uint16_t port_ = 0;       // set by Listen
  HeadPolicy head_policy_;  // completed by Listen

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  Tcp::acceptor acceptor_;
  boost::asio::steady_timer accept_pause_, tick_, drain_timer_, deadline_timer_;
  // Conversions have a thread of their own: a large one must not delay requests of others.
  boost::asio::thread_pool preparing_{1}, converting_{1};
  std::thread thread_;

  ServerPhase phase_ = ServerPhase::kLoading;
  std::unique_ptr<Service> service_;
  std::unordered_set<HttpSession*> sessions_;
  HttpCounters counters_;
  uint64_t pending_body_bytes_ = 0;
  uint32_t open_answers_ = 0;
  std::vector<uint32_t> key_answers_;  // [keys] answers under way
  uint64_t random_state_;
  bool accepting_ = false, ticking_ = false;  // an operation is pending
  bool stopping_ = false;
  std::function<void()> drained_;  // set while draining
};

}  // namespace kvrm
