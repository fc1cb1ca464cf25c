#include "bench/tail/piped_engine.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "bench/load/local_exchange.h"

namespace kvrm::cli {

namespace asio = boost::asio;

// Its answers come on the reader's thread and are posted. The engine holds it until the last one or
// until it is given up, and so long the io_context does not end.
class PipedExchange final : public LocalExchange {
 public:
  PipedExchange(asio::io_context& io, PipedEngine& engine, const Question& question,
                RequestRecord record, OnText on_text, OnEnd on_end)
      : LocalExchange(io, question, std::move(record), std::move(on_text), std::move(on_end)),
        engine_(engine),
        question_(question) {}

  void Start() override;
  // On the reader's thread. `end` as in EngineLine; once it is not empty this is the last call.
  void Post(uint32_t tokens, std::string end, int64_t us);
  void PostLoss(std::string why);

 private:
  std::shared_ptr<PipedExchange> Self() {
    return std::static_pointer_cast<PipedExchange>(shared_from_this());
  }
  void Take(uint32_t tokens, const std::string& end, int64_t us);
  void GiveUp() override {
    if (work_) engine_.Leave(*id_);
    work_.reset();
  }

  PipedEngine& engine_;
  const Question question_;
  std::optional<uint64_t> id_;
  uint32_t num_tokens_ = 0;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
};

void PipedExchange::Start() {
  BeginAnswer();
  if (question_.chat) {
    return End(Outcome::kMalformed, "this engine has no chat template", record_.sent_us);
  }
  const std::vector<TokenId> tokens = engine_.encode_(question_.text);
  record_.prompt_tokens = static_cast<uint32_t>(tokens.size());
  work_.emplace(io_.get_executor());
  id_ = engine_.Enter(Self());
  if (!id_) {
    work_.reset();
    return End(Outcome::kConnect, "the engine has ended", NowUs());
  }
  const boost::json::object line{{"add", *id_},
                                 {"tokens", boost::json::array(tokens.begin(), tokens.end())},
                                 {"max_new", question_.output_tokens},
                                 {"ignore_eos", question_.ignore_eos}};
  engine_.Say(boost::json::serialize(line) + "\n");  // if it is lost, PostLoss ends this
}

void PipedExchange::Post(uint32_t tokens, std::string end, int64_t us) {
  asio::post(io_,
             [self = Self(), tokens, end = std::move(end), us] { self->Take(tokens, end, us); });
}

void PipedExchange::PostLoss(std::string why) {
  asio::post(io_, [self = Self(), why = std::move(why)] {
    self->engine_.AwaitReader();
    self->work_.reset();
    if (!self->ended()) self->End(Outcome::kReset, why, NowUs());
  });
}

void PipedExchange::Take(uint32_t tokens, const std::string& end, int64_t us) {
  if (!end.empty()) {
    engine_.AwaitReader();
    work_.reset();
  }
  if (ended()) return;
  num_tokens_ += tokens;
  record_.output_tokens = num_tokens_;
  if (tokens > 0) TakeText(std::string(tokens, '.'), us);  // no one reads the text
  if (ended() || end.empty()) return;
  record_.finish_reason = end;
  if (end != "length" && end != "stop") return End(Outcome::kStreamError, end, us);
  End(num_tokens_ == 0 ? Outcome::kEmpty : Outcome::kDone, "", us);
}

Result<std::unique_ptr<PipedEngine>> PipedEngine::Start(std::vector<std::string> command,
                                                        const std::string& log, double timeout_s,
                                                        uint32_t context_tokens, Encode encode) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return Unavailable(std::string("socketpair: ") + std::strerror(errno));
  }
  auto process = ServerProcess::Start(std::move(command), log, fds[1]);
  close(fds[1]);
  if (!process.ok()) {
    close(fds[0]);
    return process.error();
  }
  std::unique_ptr<PipedEngine> engine(
      new PipedEngine(std::move(process).value(), fds[0], context_tokens, std::move(encode)));
  KVRM_RETURN_IF_ERROR(engine->AwaitReady(timeout_s));
  return engine;
}

PipedEngine::PipedEngine(ServerProcess process, int fd, uint32_t context_tokens, Encode encode)
    : process_(std::move(process)),
      fd_(fd),
      context_tokens_(context_tokens),
      encode_(std::move(encode)),
      reader_([this] { ReadLines(); }) {}

PipedEngine::~PipedEngine() {
  process_.Stop();
  shutdown(fd_, SHUT_RDWR);
  reader_.join();
  close(fd_);
}

Status PipedEngine::AwaitReady(double timeout_s) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(timeout_s),
                    [&] { return !version_.empty() || !lost_.empty(); });
  if (!lost_.empty()) return process_.NotReady("ended before it was ready");
  return version_.empty() ? Status(process_.NotReady("was not ready in time")) : Ok();
}

void PipedEngine::ReadLines() {
  std::string pending;
  char chunk[65536];
  for (;;) {
    const ssize_t count = read(fd_, chunk, sizeof(chunk));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return LoseAll("the engine has ended");
    pending.append(chunk, static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end = 0; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
      if (!TakeLine(std::string_view(pending).substr(begin, end - begin))) return;
    }
    pending.erase(0, begin);
  }
}

bool PipedEngine::TakeLine(std::string_view line) {
  Result<EngineLine> parsed = ParseEngineLine(line);
  if (!parsed.ok()) {
    LoseAll(parsed.error().message);
    return false;
  }
  const std::lock_guard lock(mutex_);
  if (!parsed->ready.empty()) {
    version_ = std::move(parsed->ready);
    changed_.notify_all();
    return true;
  }
  for (EngineLine::Output& output : parsed->outputs) {
    const auto found = open_.find(output.id);
    if (found == open_.end()) continue;
    const bool last = !output.end.empty();
    found->second->Post(output.tokens, std::move(output.end), parsed->us);
    if (last) open_.erase(found);
  }
  return true;
}

void PipedEngine::LoseAll(const std::string& why) {
  const std::lock_guard lock(mutex_);
  lost_ = why;
  for (auto& [id, exchange] : open_) exchange->PostLoss(why);
  open_.clear();
  changed_.notify_all();
}

bool PipedEngine::Say(const std::string& line) {
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t count = send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

std::optional<uint64_t> PipedEngine::Enter(std::shared_ptr<PipedExchange> exchange) {
  const std::lock_guard lock(mutex_);
  if (!lost_.empty()) return std::nullopt;
  open_.emplace(next_id_, std::move(exchange));
  return next_id_++;
}

void PipedEngine::Leave(uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    if (open_.erase(id) == 0) return;
  }
  Say("{\"stop\":" + std::to_string(id) + "}\n");
}

// Taken from the reader, which posts while it holds the mutex.
void PipedEngine::AwaitReader() { const std::lock_guard lock(mutex_); }

std::shared_ptr<Exchange> PipedEngine::Ask(asio::io_context& io, const Question& question,
                                           RequestRecord record, Exchange::OnText on_text,
                                           Exchange::OnEnd on_end) {
  return std::make_shared<PipedExchange>(io, *this, question, std::move(record), std::move(on_text),
                                         std::move(on_end));
}

}  // namespace kvrm::cli
