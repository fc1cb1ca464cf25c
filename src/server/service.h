// The service: requests as data in, answers as bytes out, over one engine. No sockets, no HTTP.
//
// Threads: Prepare (templates, tokenizing) runs on any server thread; everything else on one
// thread, the I/O thread; the engine's thread only fills the mailbox, whose wake function asks
// the I/O thread to call Dispatch. Ownership: engine, tokenizer and template outlive the service;
// the engine must have ended (Run returned) before the service is destroyed. Errors: ApiError.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/histogram.h"
#include "engine/engine.h"
#include "server/generation.h"
#include "server/mailbox.h"
#include "server/openai_types.h"
#include "server/prompt_encoder.h"
#include "server/service_rate.h"
#include "server/stall_watch.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvrm {

struct ServiceConfig {
  std::string model = "default";  // the id in answers and in /v1/models
  bool strict_model = false;      // requests for another model: 404; else they are answered
  RequestDefaults defaults;       // what /props shows of fields that a request leaves out
  int64_t stall_us = 30'000'000;  // no progress for so long with work open: not healthy
  int64_t created_s = 0;          // of the model, in /v1/models
  std::function<void(std::string_view)> log;  // one line; any thread
};

struct ServiceCounters {
  uint64_t requests[kNumApis] = {};  // started, by Api
  uint64_t finished_stop = 0;        // choices, by finish reason
  uint64_t finished_length = 0;
  uint64_t finished_timeout = 0;
  uint64_t failed = 0;     // answers that ended with an error
  uint64_t abandoned = 0;  // answers whose client went away
  uint64_t refused_queue_full = 0;
  uint64_t timed_out = 0;  // with or without a part of an answer
  Histogram first_token;   // received to first token; since then, to the answer's end
  Histogram whole;
};

// Who sent a request, as far as it matters.
struct Caller {
  uint64_t tenant = 0;  // prefixes are shared within a tenant only
  int32_t max_priority = std::numeric_limits<int32_t>::max();  // the most urgent it may ask for
};

class Service {
 public:
  Service(ServiceConfig config, Engine& engine, const Tokenizer& tokenizer,
          const ChatTemplate* chat_template, std::function<void()> wake);
  ~Service();

  // Any thread. Text to tokens, with every check that needs the model's numbers.
  std::variant<PreparedRequest, ApiError> Prepare(ParsedRequest request,
                                                  const Caller& caller = {}) const;

  // ---- I/O thread
  // Submits every choice. `listener` hears of the answer until Release. Queue full: 429, and
  // nothing stays submitted; neither does when it throws std::bad_alloc.
  // `received_us`: when the request came in; its timeout counts from there.
  std::variant<std::shared_ptr<Generation>, ApiError> Start(PreparedRequest prepared,
                                                            GenerationListener* listener,
                                                            int64_t received_us);
  // The listener is done with it or gone: it is forgotten, and what is not complete is cancelled.
  // Required once for every answer that Start returned.
  void Release(Generation& generation) noexcept;
  // Every open answer ends with `error`; their choices are cancelled.
  void FailAll(const ApiError& error) noexcept;
  // Ends the answers whose time is up. `NextDeadlineUs`: when it is to be called next, if at all.
  void Expire(int64_t now_us) noexcept;
  std::optional<int64_t> NextDeadlineUs() const;
  // Applies all events that have come in, then calls each listener concerned once. An answer for
  // which there is no memory ends; the others go on.
  void Dispatch() noexcept;
  // Watches progress; to be called now and then with a monotonic time.
  void Tick(int64_t now_us);
  bool stalled() const { return stall_.stalled(); }
  // What a request that found the queue full is told.
  uint32_t RetryAfterSeconds() const;

  size_t num_open() const { return open_.size(); }  // answers that the engine still works for
  const ServiceConfig& config() const { return config_; }
  const ServiceCounters& counters() const { return counters_; }
  const Engine& engine() const { return engine_; }
  const PromptEncoder& encoder() const { return encoder_; }  // any thread
  // Not older than a second: counting walks the pool, and whoever asks often shall not hold up the
  // streams.
  uint64_t ResidentKvBytes() const;
  std::string ModelListJson() const;
  std::string ModelJson() const;

 private:
  void LogUnknownFields(const std::vector<std::string>& names) const;
  std::shared_ptr<Generation> Open(PreparedRequest prepared, int64_t received_us);
  std::optional<ApiError> SubmitChoices(Generation& generation, uint64_t drawn);
  void Withdraw(Generation& generation) noexcept;
  void Forget(Generation& generation) noexcept;
  void CancelOpenChoices(const Generation& generation) noexcept;
  Generation::Next Apply(Generation& generation, const MailboxEvent& event) noexcept;
  void Touch(Generation& generation) noexcept;
  void TellTouched() noexcept;
  void Count(const Generation& generation);
  uint64_t NextRandom();

  // Constant after construction.
  const ServiceConfig config_;
  Engine& engine_;
  const Tokenizer& tokenizer_;
  const uint32_t ctx_;  // most tokens of a sequence
  const PromptEncoder encoder_;

  Mailbox mailbox_;

  // I/O thread.
  std::unordered_map<const Generation*, std::shared_ptr<Generation>> open_;
  std::set<std::pair<int64_t, Generation*>> deadlines_;  // of answers in open_
  std::vector<MailboxEvent> batch_;
  std::vector<std::shared_ptr<Generation>> touched_;  // has room for all of open_
  ServiceCounters counters_;
  uint64_t random_state_;
  StallWatch stall_;
  ServiceRate rate_;
  mutable uint64_t resident_bytes_ = 0;
  mutable int64_t resident_until_us_ = std::numeric_limits<int64_t>::min();

  mutable std::mutex log_mutex_;
  mutable std::set<std::string> logged_fields_;  // guarded by log_mutex_
};

int64_t SteadyNowUs();                // monotonic
int64_t WallNowUs();                  // since 1970
uint64_t RandomSeed();                // from the system
std::string HexText(uint64_t value);  // 16 digits

// SplitMix64's output function: spreads consecutive numbers over 64 bits.
uint64_t Mix64(uint64_t x);
inline constexpr uint64_t kMixStep = 0x9E3779B97F4A7C15u;  // between the states of such a generator

}  // namespace kvrm
