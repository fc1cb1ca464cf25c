#include "bench/load/load_run.h"

#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "bench/load/exchange.h"
#include "bench/load/schedule.h"

namespace kvrm::cli {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

// A closed client whose request failed at once waits at least so long, or a server that is not
// there would be asked without end.
constexpr int64_t kPauseAfterErrorUs = 100'000;

double ThreadCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int64_t Us(double seconds) { return static_cast<int64_t>(seconds * 1e6); }

struct Conversation {
  size_t source_idx = 0;
  uint64_t number = 0;  // of its source
  uint32_t turn = 0;
  uint32_t history_tokens = 0;
  Question question;  // all that was said
};

class Runner {
 public:
  Runner(const Workload& workload, const std::vector<Trace>& traces, LoadBackend& backend,
         const PromptWords& words, const LoadHooks& hooks)
      : workload_(workload),
        backend_(backend),
        hooks_(hooks),
        drain_timer_(io_),
        signals_(io_),
        queue_limit_(static_cast<size_t>(workload.max_open)) {
    for (size_t i = 0; i < workload.sources.size(); ++i) {
      sources_.push_back({Schedule(workload, i, traces[i], backend.context_tokens(), words), 0});
    }
  }

  LoadRun Run() {
    const double cpu_s = ThreadCpuSeconds();
    run_.start_us = NowUs();
    run_.counted_from_us = run_.start_us + Us(workload_.warmup_s);
    due_end_us_ = run_.start_us + Us(workload_.duration_s);
    Watch();
    for (size_t i = 0; i < sources_.size(); ++i) StartSource(i);
    CheckEnd();
    io_.run();
    run_.end_us = NowUs();
    run_.reused_connections = backend_.reused_connections();
    backend_.Close();
    run_.own_cpu_s = ThreadCpuSeconds() - cpu_s;
    Sort();
    return std::move(run_);
  }

 private:
  struct SourceState {
    Schedule schedule;
    uint64_t num_begun = 0;
  };

  struct Waiting {
    std::shared_ptr<Conversation> conversation;
    Turn turn;
    RequestRecord record;
  };

  void Watch() {
    const auto end = std::chrono::steady_clock::time_point(
        std::chrono::microseconds(due_end_us_ + Us(workload_.drain_s)));
    drain_timer_.expires_at(end);
    drain_timer_.async_wait([this](const ErrorCode& error) {
      if (!error) Stop();
    });
    if (!hooks_.catch_interrupt) return;
    signals_.add(SIGINT);
    signals_.async_wait([this](const ErrorCode& error, int) {
      if (error) return;
      run_.interrupted = true;
      due_end_us_ = std::min(due_end_us_, NowUs());
      Stop();
    });
  }

  // Calls `then` at `at_us`, if requests are still due then; false: they are not.
  template <class Then>
  bool At(int64_t at_us, Then then) {
    if (at_us >= due_end_us_) return false;
    const auto timer = std::make_shared<asio::steady_timer>(io_);
    timer->expires_at(std::chrono::steady_clock::time_point(std::chrono::microseconds(at_us)));
    timers_.insert(timer);
    timer->async_wait([this, timer, then = std::move(then)](const ErrorCode& error) {
      timers_.erase(timer);
      if (!error && !stopping_) then();
      CheckEnd();
    });
    return true;
  }

  void StartSource(size_t i) {
    const Source& source = workload_.sources[i];
    if (source.arrivals != Arrivals::kClosed) return AwaitArrival(i);
    for (int client = 0; client < static_cast<int>(source.clients); ++client) {
      AwaitClient(i, run_.start_us + Us(source.start_s));
    }
  }

  void AwaitArrival(size_t i) {
    const std::optional<int64_t> offset_us = sources_[i].schedule.NextArrivalUs();
    if (!offset_us) return;
    const int64_t due_us = run_.start_us + *offset_us;
    At(due_us, [this, i, due_us] {
      AwaitArrival(i);
      Begin(i, due_us);
    });
  }

  void AwaitClient(size_t i, int64_t due_us) {
    At(due_us, [this, i, due_us] {
      const bool more = workload_.requests == 0 ||
                        static_cast<double>(sources_[i].num_begun) < workload_.requests;
      if (more) Begin(i, due_us);
    });
  }

  void Begin(size_t i, int64_t due_us) {
    auto conversation = std::make_shared<Conversation>();
    conversation->source_idx = i;
    conversation->number = sources_[i].num_begun++;
    conversation->question = {.chat = workload_.chat,
                              .temperature = workload_.temperature,
                              .ignore_eos = workload_.ignore_eos,
                              .timeout_s = workload_.timeout_s};
    const std::string prefix = sources_[i].schedule.Prefix(conversation->number);
    if (!prefix.empty() && workload_.chat) {
      conversation->question.messages.push_back({"system", prefix});
    } else {
      conversation->question.text = prefix;
    }
    Ask(std::move(conversation), due_us);
  }

  // The conversation's next request, due at `due_us`.
  void Ask(std::shared_ptr<Conversation> conversation, int64_t due_us) {
    Conversation& talk = *conversation;
    std::optional<Turn> turn =
        sources_[talk.source_idx].schedule.MakeTurn(talk.number, talk.turn, talk.history_tokens);
    if (!turn) {
      run_.dropped_turns += NumTurns(talk) - talk.turn;
      return EndConversation(talk, NowUs());
    }
    RequestRecord record;
    record.id = num_asked_++;
    record.source = static_cast<uint32_t>(talk.source_idx);
    record.turn = talk.turn;
    record.counted = due_us >= run_.counted_from_us;
    record.intended_us = due_us;
    record.asked_prompt_tokens = talk.history_tokens + turn->prompt_tokens;
    record.asked_output_tokens = turn->output_tokens;
    record.cut_tokens = turn->cut_tokens;
    waiting_.push_back({std::move(conversation), std::move(*turn), std::move(record)});
    SendWaiting();
  }

  void SendWaiting() {
    while (!waiting_.empty() && (queue_limit_ == 0 || open_.size() < queue_limit_)) {
      Waiting next = std::move(waiting_.front());
      waiting_.pop_front();
      Send(std::move(next));
    }
  }

  void Send(Waiting next) {
    Question& question = next.conversation->question;
    AddTurn(question, next.turn);
    const auto exchange = backend_.Ask(
        io_, question, std::move(next.record),
        [this](const RequestRecord& record) {
          if (hooks_.on_text) hooks_.on_text(record);
        },
        [this, conversation = next.conversation](Exchange& ended) { OnEnd(ended, conversation); });
    open_.emplace(exchange.get(), exchange);
    exchange->Start();
  }

  // The new turn becomes part of what was said.
  static void AddTurn(Question& question, const Turn& turn) {
    question.output_tokens = turn.output_tokens;
    question.cancel_after = turn.cancel_after;
    if (question.chat) {
      question.messages.push_back({"user", turn.text});
    } else {
      question.text += (question.text.empty() ? "" : " ") + turn.text;
    }
  }

  void OnEnd(Exchange& ended, const std::shared_ptr<Conversation>& conversation) {
    RequestRecord& record = ended.record();
    backend_.Ended(ended);
    const std::shared_ptr<Exchange> kept = open_.extract(&ended).mapped();
    Continue(conversation, record, ended.text());
    run_.records.push_back(std::move(record));
    if (!stopping_) SendWaiting();
    CheckEnd();
  }

  void Continue(const std::shared_ptr<Conversation>& conversation, const RequestRecord& record,
                const std::string& answer) {
    Conversation& talk = *conversation;
    const Source& source = workload_.sources[talk.source_idx];
    ++talk.turn;
    if (record.outcome != Outcome::kDone || talk.turn >= NumTurns(talk)) {
      const bool failed = IsError(record.outcome);
      return EndConversation(talk, record.end_us + (failed ? kPauseAfterErrorUs : 0));
    }
    if (workload_.chat) {
      talk.question.messages.push_back({"assistant", answer});
    } else {
      talk.question.text += answer;
    }
    talk.history_tokens =
        record.prompt_tokens.value_or(record.asked_prompt_tokens) + record.tokens();
    const int64_t due_us = record.end_us + Us(source.turn_pause_s);
    if (!At(due_us, [this, conversation, due_us] { Ask(conversation, due_us); })) {
      run_.dropped_turns += NumTurns(talk) - talk.turn;
    }
  }

  uint64_t NumTurns(const Conversation& talk) const {
    return static_cast<uint64_t>(workload_.sources[talk.source_idx].turns);
  }

  void EndConversation(const Conversation& talk, int64_t ended_us) {
    const Source& source = workload_.sources[talk.source_idx];
    if (source.arrivals != Arrivals::kClosed) return;
    AwaitClient(talk.source_idx, ended_us + Us(source.think_s));
  }

  // Nothing more is sent; what is open or waits is recorded as unfinished.
  void Stop() {
    stopping_ = true;
    for (const auto& timer : timers_) timer->cancel();
    const int64_t now_us = NowUs();
    for (Waiting& waiting : waiting_) {
      waiting.record.outcome = Outcome::kUnfinished;
      waiting.record.sent_us = waiting.record.end_us = now_us;
      waiting.record.detail = "never sent: max-open were open";
      run_.records.push_back(std::move(waiting.record));
    }
    waiting_.clear();
    for (const auto& [key, exchange] : open_) exchange->Abort(Outcome::kUnfinished);
    CheckEnd();
  }

  void CheckEnd() {
    if (!timers_.empty() || !open_.empty() || !waiting_.empty()) return;
    drain_timer_.cancel();
    ErrorCode ignored;
    signals_.cancel(ignored);
  }

  void Sort() {
    std::sort(run_.records.begin(), run_.records.end(), [](const auto& a, const auto& b) {
      return std::pair(a.intended_us, a.id) < std::pair(b.intended_us, b.id);
    });
    for (size_t i = 0; i < run_.records.size(); ++i) run_.records[i].id = i;
    // A run bounded by its number of requests ends with the last one that was due.
    const bool bounded = workload_.requests > 0 && !run_.records.empty();
    const int64_t last_us = bounded ? run_.records.back().intended_us + 1 : due_end_us_;
    run_.arrivals_end_us = std::min(due_end_us_, last_us);
  }

  const Workload& workload_;
  LoadBackend& backend_;
  const LoadHooks& hooks_;

  asio::io_context io_{1};
  asio::steady_timer drain_timer_;
  asio::signal_set signals_;
  const size_t queue_limit_;
  std::vector<SourceState> sources_;
  std::set<std::shared_ptr<asio::steady_timer>> timers_;  // of requests that will be due
  std::map<const Exchange*, std::shared_ptr<Exchange>> open_;
  std::deque<Waiting> waiting_;
  uint64_t num_asked_ = 0;
  int64_t due_end_us_ = 0;
  bool stopping_ = false;
  LoadRun run_;
};

}  // namespace

const char* OutcomeName(Outcome outcome) {
  constexpr const char* kNames[kNumOutcomes] = {
      "done",     "cancelled", "connect",      "reset",     "http-429", "http-503", "http-4xx",
      "http-5xx", "malformed", "stream-error", "truncated", "empty",    "timeout",  "unfinished"};
  return kNames[static_cast<size_t>(outcome)];
}

Result<LoadRun> RunLoad(const Workload& workload, const std::vector<Trace>& traces,
                        LoadBackend& backend, const PromptWords& words, const LoadHooks& hooks) {
  KVRM_CHECK(traces.size() == workload.sources.size(), "one trace a source");
  const uint32_t context_tokens = backend.context_tokens();
  for (size_t i = 0; i < workload.sources.size(); ++i) {
    const Source& source = workload.sources[i];
    if (!Schedule(workload, i, traces[i], context_tokens, words).FitsContext()) {
      return InvalidInput("source '" + source.name + "': a prefix of " +
                          std::to_string(static_cast<uint64_t>(source.prefix_tokens)) +
                          " tokens leaves no room in a context of " +
                          std::to_string(context_tokens));
    }
  }
  return Runner(workload, traces, backend, words, hooks).Run();
}

Result<LoadRun> RunLoad(const Workload& workload, const std::vector<Trace>& traces,
                        const LoadTarget& target, const PromptWords& words,
                        const LoadHooks& hooks) {
  KVRM_ASSIGN_OR_RETURN(const auto backend, HttpBackend::Create(target));
  return RunLoad(workload, traces, *backend, words, hooks);
}

}  // namespace kvrm::cli
