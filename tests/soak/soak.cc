#include "tests/soak/soak.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "model/random_model.h"

namespace kvrm::testing {
namespace {

constexpr uint32_t kVocab = 320, kContext = 256;
constexpr uint32_t kSlots = 64;
constexpr uint64_t kOverCapacity = 10;
constexpr uint64_t kBurst = 80, kBurstEvery = 600;
constexpr size_t kMostViolations = 5;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAllocatorTells = false;
#else
constexpr bool kAllocatorTells = true;
#endif

uint64_t HeapBytes() { return kAllocatorTells ? mallinfo2().uordblks : 0; }

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// What one request asked for, and what it got so far.
struct Open {
  GenerateRequest request;
  std::vector<TokenId> tokens;
  uint64_t cancel_at_step = 0;   // 0 = never
  uint32_t cancel_at_token = 0;  // 0 = never
  bool is_compared = false;
  uint64_t wanted_tokens() const { return request.prompt.size() + request.max_new_tokens; }
};

std::unique_ptr<Runtime> Load(const GgufFile& file, uint32_t slots, uint64_t kv_bytes) {
  RuntimeOptions options;
  options.num_threads = 1;
  options.max_slots = slots;
  options.kv_bytes = kv_bytes;
  options.kv_keep_bytes = 0;
  options.max_itl_us = 0;
  auto runtime = LoadRuntime(file, options);
  KVRM_CHECK(runtime.ok(), "a soak's model can be loaded");
  return std::move(runtime).value();
}

class Soak final : public EventSink {
 public:
  explicit Soak(const SoakOptions& options)
      : options_(options), rng_(options.seed), bytes_(WriteRandomModel({})) {
    auto file = GgufFile::Parse(bytes_, "soak");
    KVRM_CHECK(file.ok(), "a soak's model can be read");
    file_ = std::move(file).value();
    crowd_ = Load(*file_, kSlots, uint64_t{1} << 20);
    alone_ = Load(*file_, 1, uint64_t{1} << 20);
    report_.kv_tokens = crowd_->engine->kv_tokens();
    for (auto& prefix : prefixes_) prefix = RandomTokens(10 + static_cast<uint32_t>(rng_() % 60));
  }

  SoakReport Run() {
    RunUntil(options_.answered / 10);
    Rest();
    report_.heap_bytes_early = HeapBytes();
    report_.resident_bytes_early = ResidentBytes();
    RunUntil(options_.answered);
    Rest();
    report_.heap_bytes_late = HeapBytes();
    report_.resident_bytes_late = ResidentBytes();
    const EngineMetrics m = engine().Metrics();
    report_.steps = m.steps;
    report_.preemptions = m.sched.preempted;
    report_.leaked_pages = m.books.in_use - 1 + m.books.soft + m.books.limbo;  // 1: the null page
    return report_;
  }

  void OnToken(RequestId id, const TokenEvent& event) override {
    Open& open = open_.at(id);
    open.tokens.push_back(event.token);
    if (open.tokens.size() == open.cancel_at_token) engine().Cancel(id);
  }
  void OnFinish(RequestId id, const FinishEvent& event) override {
    Open& open = open_.at(id);
    wanted_tokens_ -= open.wanted_tokens();
    report_.tokens += open.tokens.size();
    if (event.reason == StopReason::kCancelled) {
      ++report_.cancelled;
    } else if (event.reason == StopReason::kLength) {
      ++report_.answered;
      report_.wrong_length += open.tokens.size() == open.request.max_new_tokens ? 0 : 1;
      if (open.is_compared) to_compare_.push_back(std::move(open));
    } else {
      ++report_.failed;
    }
    open_.erase(id);
  }

 private:
  Engine& engine() { return *crowd_->engine; }

  std::vector<TokenId> RandomTokens(uint32_t count) {
    std::vector<TokenId> tokens(count);
    for (TokenId& id : tokens) id = static_cast<TokenId>(rng_() % kVocab);
    return tokens;
  }
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(rng_() % bound); }

  // Mostly short, some long; a third begins as others do.
  Open RandomRequest() {
    Open open;
    GenerateRequest& request = open.request;
    if (Below(3) == 0) request.prompt = prefixes_[Below(kPrefixes)];
    const uint32_t kind = Below(10);
    const std::vector<TokenId> rest = RandomTokens(1 + (kind < 6   ? Below(30)
                                                        : kind < 9 ? Below(80)
                                                                   : Below(170)));
    request.prompt.insert(request.prompt.end(), rest.begin(), rest.end());
    request.max_new_tokens = 1 + (Below(5) == 0 ? Below(20) : Below(6));
    // Now and then many that grow come together, until nobody finds a page.
    if (report_.submitted % kBurstEvery < kBurst) {
      request.prompt.resize(1 + request.prompt.size() % 20);
      request.max_new_tokens = 80 + Below(100);
    }
    const auto room = static_cast<uint32_t>(kContext - request.prompt.size());
    request.max_new_tokens = std::min(request.max_new_tokens, room);
    request.sampling.temperature = Below(2) == 0 ? 0.0f : 1.0f;
    request.sampling.seed = rng_();
    request.tenant = Below(4) == 0 ? 1 : 0;
    request.priority = Below(16) == 0 ? 1 : 0;
    open.is_compared = Below(1000) < options_.solo_per_mille;
    if (Below(100) < 36) {
      // Half of these while they wait or run, half at one of their tokens.
      if (Below(2) == 0) {
        open.cancel_at_step = engine().Metrics().steps + 1 + Below(60);
      } else {
        open.cancel_at_token = 1 + Below(std::max(1u, request.max_new_tokens - 1));
        request.max_new_tokens = std::min(room, request.max_new_tokens + 1);
      }
    }
    return open;
  }

  void Submit() {
    Open open = RandomRequest();
    GenerateRequest request = open.request;
    request.sink = this;
    KVRM_CHECK(engine().Check(request).ok(), "a soak's requests fit");
    const auto id = engine().Submit(std::move(request));
    KVRM_CHECK(id.ok(), "a soak's requests find a place in the queue");
    ++report_.submitted;
    wanted_tokens_ += open.wanted_tokens();
    if (open.cancel_at_step > 0) cancels_.emplace(open.cancel_at_step, *id);
    open_.emplace(*id, std::move(open));
    report_.most_open = std::max<uint64_t>(report_.most_open, open_.size());
    report_.most_wanted_tokens = std::max(report_.most_wanted_tokens, wanted_tokens_);
  }

  void Step() {
    engine().Step();
    engine().Maintain();
    const uint64_t steps = engine().Metrics().steps;
    while (!cancels_.empty() && cancels_.begin()->first <= steps) {
      engine().Cancel(cancels_.begin()->second);
      cancels_.erase(cancels_.begin());
    }
    if (steps % options_.books_every == 0) CheckBooks();
    if (to_compare_.size() >= 32) Compare();
  }

  void RunUntil(uint64_t answered) {
    while (report_.answered < answered) {
      while (wanted_tokens_ < kOverCapacity * report_.kv_tokens) Submit();
      Step();
    }
  }

  // Until nothing runs and idle seconds have nothing left to tidy.
  void Rest() {
    while (engine().Step()) engine().Maintain();
    for (int i = 0; i < 64; ++i) {
      engine().NoteIdle();
      engine().Step();
    }
    CheckBooks();
    Compare();
    cancels_.clear();
    malloc_trim(0);
  }

  void CheckBooks() {
    ++report_.books_checks;
    for (std::string& violation : Validate(engine().pager().Snapshot())) {
      if (report_.violations.size() < kMostViolations) {
        report_.violations.push_back(std::move(violation));
      }
    }
    const EngineMetrics m = engine().Metrics();
    const uint64_t requests =
        m.requests_finished + m.requests_failed + m.requests_cancelled + m.running + m.queued;
    if (m.requests_submitted != requests && report_.violations.size() < kMostViolations) {
      report_.violations.push_back("submitted = finished + failed + cancelled + running + queued");
    }
  }

  // The answers that were picked, against an engine of their own.
  void Compare() {
    struct Sink final : EventSink {
      void OnToken(RequestId, const TokenEvent& event) override { tokens.push_back(event.token); }
      void OnFinish(RequestId, const FinishEvent&) override {}
      std::vector<TokenId> tokens;
    };
    for (const Open& open : to_compare_) {
      Sink sink;
      GenerateRequest request = open.request;
      request.sink = &sink;
      KVRM_CHECK(alone_->engine->Submit(std::move(request)).ok(), "a solo run is taken");
      while (alone_->engine->Step()) {
      }
      alone_->engine->pager().ClearPrefixIndex();
      ++report_.compared;
      report_.differed += sink.tokens == open.tokens ? 0 : 1;
    }
    to_compare_.clear();
    to_compare_.shrink_to_fit();
  }

  static constexpr uint32_t kPrefixes = 16;
  const SoakOptions options_;
  std::mt19937_64 rng_;
  const std::vector<std::byte> bytes_;
  std::unique_ptr<const GgufFile> file_;
  std::unique_ptr<Runtime> crowd_, alone_;
  std::vector<TokenId> prefixes_[kPrefixes];
  std::map<RequestId, Open> open_;
  std::multimap<uint64_t, RequestId> cancels_;  // by step
  std::vector<Open> to_compare_;
  uint64_t wanted_tokens_ = 0;
  SoakReport report_;
};

}  // namespace

SoakReport RunSoak(const SoakOptions& options) {
  KVRM_CHECK(options.answered >= 10, "a soak has a first tenth");
  return Soak(options).Run();
}

std::string SoakText(const SoakReport& report) {
  std::ostringstream text;
  const auto share = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  };
  const auto growth = [](uint64_t early, uint64_t late) {
    if (early == 0) return 0.0;
    return 100.0 * (static_cast<double>(late) - static_cast<double>(early)) /
           static_cast<double>(early);
  };
  text.setf(std::ios::fixed);
  text.precision(2);
  text << report.submitted << " requests: " << report.answered << " answered, " << report.cancelled
       << " cancelled (" << share(report.cancelled, report.submitted) << " %), " << report.failed
       << " failed\n"
       << report.tokens << " tokens in " << report.steps << " steps, " << report.preemptions
       << " preemptions\n"
       << report.most_open << " open at the most, which wanted " << report.most_wanted_tokens
       << " token places of " << report.kv_tokens << "\n"
       << report.wrong_length << " answers of a wrong length, " << report.differed << " of "
       << report.compared << " different from their solo run\n"
       << report.violations.size() << " violations of the books, " << report.leaked_pages
       << " pages leaked\n"
       << "heap at rest " << report.heap_bytes_early << " -> " << report.heap_bytes_late
       << " bytes (" << growth(report.heap_bytes_early, report.heap_bytes_late) << " %), resident "
       << report.resident_bytes_early << " -> " << report.resident_bytes_late << " ("
       << growth(report.resident_bytes_early, report.resident_bytes_late) << " %)\n";
  for (const std::string& violation : report.violations) text << violation << "\n";
  return text.str();
}

}  // namespace kvrm::testing
