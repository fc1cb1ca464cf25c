#include "server/http_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <future>
#include <new>
#include <utility>

#include "base/retry_memory.h"
#include "server/http_error.h"
#include "server/http_session.h"
#include "server/text_routes.h"

namespace kvrm {
namespace {

namespace net = boost::asio;
using Tcp = net::ip::tcp;

constexpr int kListenBacklog = 4096;
constexpr uint32_t kRefusalsAtOnce = 32;  // connections over the limit that are told so
constexpr uint32_t kReservedFiles = 64 + kRefusalsAtOnce;  // descriptors for all else
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr auto kMemoryPause = std::chrono::milliseconds(1);
constexpr auto kTickPeriod = std::chrono::seconds(1);
constexpr auto kLeastTickPeriod = std::chrono::milliseconds(5);
constexpr auto kDrainGrace = std::chrono::seconds(1);  // to write the last error events

// As many connections as there are file descriptors for.
uint32_t ConnectionLimit(uint32_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return wanted;
  const uint64_t room =
      files.rlim_cur > 2 * kReservedFiles ? files.rlim_cur - kReservedFiles : files.rlim_cur / 2;
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, room));
}

Error ListenError(const ServerConfig& config, std::string_view what,
                  const boost::system::error_code& ec) {
  const std::string where = "port " + std::to_string(config.port) + " on " + config.host;
  if (ec == net::error::address_in_use) return Unavailable(where + ": already in use");
  return InvalidInput(where + ": " + std::string(what) + ": " + ec.message());
}

}  // namespace

HttpServer::HttpServer(const ServerConfig& config, ApiKeys keys)
    : config_(config),
      keys_(std::move(keys)),
      work_(net::make_work_guard(io_)),
      acceptor_(io_),
      accept_pause_(io_),
      tick_(io_),
      drain_timer_(io_),
      deadline_timer_(io_),
      key_answers_(keys_.size()),
      random_state_(RandomSeed()) {
  head_policy_ = {.loopback_only = false,
                  .served_host = config.host,
                  .keys = &keys_,
                  .cors_origins = config.cors_origins};
  config_.max_connections = ConnectionLimit(config.max_connections);
}

HttpServer::~HttpServer() { Stop(); }

// ---- the owner's thread
// Address reuse only shortens the wait after a restart; it never lets two servers share a port.
Status HttpServer::Listen() {
  boost::system::error_code ec;
  Tcp::resolver resolver(io_);
  const auto found = resolver.resolve(config_.host, std::to_string(config_.port),
                                      Tcp::resolver::passive | Tcp::resolver::numeric_service, ec);
  if (ec || found.empty()) return ListenError(config_, "host unknown", ec);
  for (const auto& entry : found) {
    const Tcp::endpoint endpoint = entry.endpoint();
    acceptor_.close(ec);
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(net::socket_base::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(kListenBacklog, ec);
    if (!ec) break;
  }
  if (ec) return ListenError(config_, "cannot listen", ec);
  const Tcp::endpoint bound = acceptor_.local_endpoint(ec);
  port_ = bound.port();
  head_policy_.loopback_only = bound.address().is_loopback();
  return Ok();
}

void HttpServer::StartThreads() {
  thread_ = std::thread([this] { RunIo(); });
}

void HttpServer::RunIo() {
  for (;;) {
    try {
      if (!stopping_ && !accepting_) Accept();
      if (!stopping_ && !ticking_) ScheduleTick();
      io_.run();
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kMemoryPause);
    }
  }
}

void HttpServer::Attach(std::function<std::unique_ptr<Service>(std::function<void()> wake)> make) {
  auto service = make([this] { Wake(); });
  std::promise<void> attached;
  net::post(io_, [&] {
    service_ = std::move(service);
    service_->Tick(SteadyNowUs());
    if (phase_ == ServerPhase::kLoading) phase_ = ServerPhase::kReady;
    attached.set_value();
  });
  attached.get_future().wait();
}

void HttpServer::Wake() {
  RetryUntilMemory([this] {
    net::post(io_, [this] {
      if (service_ != nullptr) service_->Dispatch();
    });
  });
}

void HttpServer::Drain(std::function<void()> done) {
  net::post(io_, [this, done = std::move(done)]() mutable {
    if (drained_ || stopping_) return;
    drained_ = std::move(done);
    BeginDrain();
  });
}

void HttpServer::Stop() {
  if (!thread_.joinable()) return;
  std::promise<void> closed;
  net::post(io_, [this, &closed] {
    stopping_ = true;
    phase_ = ServerPhase::kDraining;
    CloseAll();
    closed.set_value();
  });
  closed.get_future().wait();
  preparing_.join();
  converting_.join();  // no session is left that could give it work
  net::post(io_, [this] { work_.reset(); });
  thread_.join();
}

// ---- accepting
void HttpServer::Accept() {
  acceptor_.async_accept([this](const boost::system::error_code& ec, Tcp::socket socket) {
    accepting_ = false;
    OnAccept(ec, std::move(socket));
  });
  accepting_ = true;
}

void HttpServer::OnAccept(const boost::system::error_code& ec, Tcp::socket socket) {
  if (ec == net::error::operation_aborted || stopping_) return;
  if (ec) {
    // Out of descriptors or memory: the waiting connections stay in the backlog for a moment.
    accept_pause_.expires_after(kAcceptPause);
    accept_pause_.async_wait([this](const boost::system::error_code& paused) {
      accepting_ = false;
      if (!paused) Accept();
    });
    accepting_ = true;
    return;
  }
  ++counters_.connections_accepted;
  try {
    Admit(std::move(socket));
  } catch (const std::bad_alloc&) {
    ++counters_.connections_refused;
  }
  Accept();
}

void HttpServer::Admit(Tcp::socket socket) {
  boost::system::error_code ignored;
  socket.set_option(Tcp::no_delay(true), ignored);
  // A peer that vanished without a word, while its answer waits in the queue, is found out.
  socket.set_option(net::socket_base::keep_alive(true), ignored);
  if (config_.send_buffer_bytes > 0) {
    const net::socket_base::send_buffer_size size(static_cast<int>(config_.send_buffer_bytes));
    socket.set_option(size, ignored);
  }
  const size_t open = sessions_.size();
  if (open >= config_.max_connections) ++counters_.connections_refused;
  // Far over the limit there is not even room to say no.
  if (open >= config_.max_connections + kRefusalsAtOnce) return;
  const auto session = std::make_shared<HttpSession>(*this, std::move(socket));
  sessions_.insert(session.get());
  counters_.connections = sessions_.size();
  if (open < config_.max_connections) {
    session->Start();
  } else {
    session->StartRefused();
  }
}

// ---- sessions
// The result is told of, whatever memory there is: who waits for it would wait for ever.
template <class Result, class Make>
void HttpServer::Compute(net::thread_pool& pool, std::string body, std::function<void(Result)> done,
                         Make make) {
  auto job = std::make_shared<Job<Result>>();
  job->body = std::move(body);
  job->done = std::move(done);
  net::post(pool, [this, job, make] {
    try {
      job->result = make(job->body);
    } catch (const std::bad_alloc&) {
      RetryUntilMemory([&] { job->result = OutOfMemoryError(); });
    }
    job->body = {};
    RetryUntilMemory([&] { net::post(io_, [job] { job->done(std::move(*job->result)); }); });
  });
}

void HttpServer::Prepare(Api api, std::optional<uint32_t> key, std::string body,
                         std::function<void(Prepared)> done) {
  Compute(preparing_, std::move(body), std::move(done),
          [this, api, key](std::string& text) { return Prepare(api, key, text); });
}

HttpServer::Prepared HttpServer::Prepare(Api api, std::optional<uint32_t> key,
                                         std::string& body) const {
  auto parsed = ParseRequest(api, body, config_.defaults);
  body = {};
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const Caller caller =
      key ? Caller{.tenant = *key + 1, .max_priority = keys_[*key].max_priority} : Caller();
  return service_->Prepare(std::move(std::get<ParsedRequest>(parsed)), caller);
}

void HttpServer::Convert(Route route, std::string body, std::function<void(Converted)> done) {
  Compute(converting_, std::move(body), std::move(done), [this, route](std::string& text) {
    return kvrm::Convert(route, text, service_->encoder());
  });
}

bool HttpServer::TakeBodyBudget(uint64_t bytes) {
  if (pending_body_bytes_ + bytes > config_.max_pending_body_bytes) return false;
  pending_body_bytes_ += bytes;
  return true;
}

void HttpServer::ArmDeadline() {
  const auto next = service_->NextDeadlineUs();
  if (!next || stopping_) return;
  const std::chrono::steady_clock::time_point at{std::chrono::microseconds(*next)};
  deadline_timer_.expires_at(at);
  deadline_timer_.async_wait([this](const boost::system::error_code& ec) {
    if (ec || stopping_) return;
    service_->Expire(SteadyNowUs());
    ArmDeadline();
  });
}

bool HttpServer::TakeKeySlot(std::optional<uint32_t> key) {
  if (!key) return true;
  const uint32_t limit = keys_[*key].max_requests;
  if (limit > 0 && key_answers_[*key] >= limit) return false;
  ++key_answers_[*key];
  return true;
}

void HttpServer::ReturnKeySlot(std::optional<uint32_t> key) noexcept {
  if (key) --key_answers_[*key];
}

ApiError HttpServer::KeyBusyError(uint32_t key) const {
  ApiError error = HttpError(429,
                             "this API key has " + std::to_string(keys_[key].max_requests) +
                                 " answers under way, which is its limit",
                             "key_limit");
  error.type = "rate_limit_error";
  return error;
}

void HttpServer::LogRequest(const RequestRecord& record) const {
  config_.log(LogLine(config_.log_format, record, WallNowUs()));
}

std::string HttpServer::NextRequestId() {
  return "req-" + HexText(Mix64(random_state_ += kMixStep));
}

void HttpServer::AnswerEnded() noexcept {
  --open_answers_;
  if (open_answers_ == 0 && drained_) EndDrain();
}

void HttpServer::Remove(HttpSession* session) noexcept {
  sessions_.erase(session);
  counters_.connections = sessions_.size();
}

void HttpServer::ScheduleTick() {
  tick_.expires_after(std::min<std::chrono::milliseconds>(
      kTickPeriod, std::max(kLeastTickPeriod, config_.keep_alive_interval / 4)));
  tick_.async_wait([this](const boost::system::error_code& ec) {
    ticking_ = false;
    if (ec || stopping_) return;
    const int64_t now_us = SteadyNowUs();
    if (service_ != nullptr) {
      service_->Tick(now_us);
      service_->Expire(now_us);  // in case that the timer was lost
      ArmDeadline();
    }
    for (HttpSession* session : Sessions()) session->KeepAlive(now_us);
    ScheduleTick();
  });
  ticking_ = true;
}

std::vector<HttpSession*> HttpServer::Sessions() const noexcept {
  std::vector<HttpSession*> all;
  RetryUntilMemory([&] { all.assign(sessions_.begin(), sessions_.end()); });
  return all;
}

// ---- ending
// Connections are still taken while draining: a new request and a health call get their 503 (B068).
void HttpServer::BeginDrain() {
  phase_ = ServerPhase::kDraining;
  for (HttpSession* session : Sessions()) session->CloseIfIdle();
  if (open_answers_ == 0) return EndDrain();
  ArmDrainTimer(config_.drain_timeout, [this] { OnDrainDeadline(); });
}

void HttpServer::OnDrainDeadline() {
  ArmDrainTimer(kDrainGrace, [this] { EndDrain(); });
  RetryUntilMemory([this] {
    if (service_ != nullptr) service_->FailAll(NotReadyError(phase_));
  });
}

template <class Action>
void HttpServer::ArmDrainTimer(std::chrono::milliseconds time, Action action) {
  drain_timer_.expires_after(time);
  RetryUntilMemory([&] {
    drain_timer_.async_wait([this, action](const boost::system::error_code& ec) {
      if (!ec && drained_) action();
    });
  });
}

void HttpServer::EndDrain() {
  drain_timer_.cancel();
  const auto done = std::exchange(drained_, nullptr);
  if (done) done();
}

void HttpServer::CloseAll() noexcept {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  accept_pause_.cancel();
  tick_.cancel();
  drain_timer_.cancel();
  deadline_timer_.cancel();
  for (HttpSession* session : Sessions()) session->Close();
}

// ---- Server
struct Server::State {
  State(const ServerConfig& given, ApiKeys keys) : config(given), http(given, std::move(keys)) {}
  ServerConfig config;
  HttpServer http;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::Bind(const ServerConfig& config) {
  ServerConfig complete = config;
  if (!complete.log) {
    complete.log = [](std::string_view line) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    };
  }
  KVRM_ASSIGN_OR_RETURN(ApiKeys keys, ApiKeys::Load(config.api_keys, config.api_key_file));
  auto state = std::make_unique<State>(complete, std::move(keys));
  KVRM_RETURN_IF_ERROR(state->http.Listen());
  const uint32_t connections = state->http.config().max_connections;
  if (connections < config.max_connections) {
    complete.log(LogLine(complete.log_format,
                         "at most " + std::to_string(connections) +
                             " connections are served, not " +
                             std::to_string(config.max_connections) +
                             ": raise the limit of open files (ulimit -n) for more",
                         WallNowUs()));
  }
  state->http.StartThreads();
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

uint16_t Server::port() const { return state_->http.port(); }

std::string Server::url() const {
  const std::string& host = state_->config.host;
  const bool v6 = host.find(':') != std::string::npos;
  return "http://" + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port());
}

void Server::Attach(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate* chat_template,
                    const std::string& model_id) {
  ServiceConfig service;
  service.model = SanitizeUtf8(state_->config.alias.empty() ? model_id : state_->config.alias);
  service.strict_model = state_->config.strict_model;
  service.defaults = state_->config.defaults;
  service.stall_us =
      std::chrono::duration_cast<std::chrono::microseconds>(state_->config.stall_timeout).count();
  service.created_s = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
  service.log = [config = &state_->config](std::string_view line) {
    config->log(LogLine(config->log_format, line, WallNowUs()));
  };
  state_->http.Attach([&](std::function<void()> wake) {
    return std::make_unique<Service>(service, engine, tokenizer, chat_template, std::move(wake));
  });
}

void Server::Drain(std::function<void()> done) { state_->http.Drain(std::move(done)); }
void Server::Stop() { state_->http.Stop(); }

}  // namespace kvrm
