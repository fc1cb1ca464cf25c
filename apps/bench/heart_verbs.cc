// Nanoseconds of each verb: many sequences in one step, so that a piece is long against the clocks.
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include "base/check.h"
#include "bench/heart.h"
#include "frame/frame.h"
#include "pager/pager.h"

namespace kvrm::cli {
namespace {

constexpr uint32_t kPromptPages = 32;
constexpr uint32_t kPromptTokens = kPromptPages * kHeartPageTokens;
constexpr uint32_t kGrownPages = 32;  // beyond the prompt

class VerbBench {
 public:
  explicit VerbBench(const HeartSizes& sizes) : sizes_(sizes) {
    const uint32_t num_slots = 2 * sizes.verb_seqs;
    const uint32_t max_pages = kPromptPages + kGrownPages;
    PagerConfig config;
    config.geometry.groups = {HeartGroup()};
    config.max_slots = num_slots;
    config.max_seq_tokens = max_pages * kHeartPageTokens;
    config.kv_bytes = HeartKvBytes(uint64_t{num_slots} * (max_pages + kSoftRunPages));
    pager_ = std::move(Pager::Create(config)).value();
    builder_ =
        std::move(FrameBuilder::Create(pager_->geometry(), {num_slots, num_slots, max_pages}))
            .value();
    InStep([&] {
      for (uint32_t i = 0; i < sizes_.verb_seqs; ++i) {
        seqs_.push_back(*pager_->Open());
        forks_.push_back(*pager_->Open());
      }
    });
  }

  std::vector<VerbRow> Run() {
    TimeGrowth();
    TimePrompts();
    TimeForks();
    TimeStepEnds();
    TimePrefixes();
    return std::move(rows_);
  }

 private:
  using Watches = std::vector<Stopwatch>;

  // Runs `cycle`, which makes `calls` calls of each of `rows`, once to warm up and then as often as
  // a sample needs.
  void Measure(std::vector<VerbRow> rows, uint64_t calls,
               const std::function<void(Watches&)>& cycle) {
    for (uint32_t repeat = 0; repeat <= sizes_.repeats; ++repeat) {
      Watches watches(rows.size());
      uint64_t done = 0;
      do {
        cycle(watches);
        done += calls;
      } while (repeat > 0 && done < sizes_.verb_calls);
      if (repeat == 0) continue;
      for (size_t i = 0; i < rows.size(); ++i) rows[i].call.Add(watches[i], done);
    }
    for (VerbRow& row : rows) rows_.push_back(std::move(row));
  }

  template <class Edits>
  void InStep(Edits&& edits) {
    pager_->BeginStep();
    edits();
    pager_->Commit(++epoch_);
    pager_->StepDone(epoch_);
  }

  template <class Call>
  void Timed(Stopwatch& watch, const std::vector<SeqId>& seqs, Call&& call) {
    InStep([&] {
      watch.Start();
      for (SeqId seq : seqs) call(seq);
      watch.Stop();
    });
  }

  void Reserve(SeqId seq, uint32_t tokens, uint32_t hint_tokens = 0) {
    KVRM_CHECK(pager_->Reserve(seq, tokens, hint_tokens).status == ReserveStatus::kOk,
               "bench: there is room");
  }

  void SetLengths(const std::vector<SeqId>& seqs, uint32_t tokens) {
    InStep([&] {
      for (SeqId seq : seqs) {
        if (pager_->num_tokens(seq) < tokens) Reserve(seq, tokens);
        pager_->Trim(seq, tokens);
      }
    });
  }

  // `pages` is what all sequences name, each page once.
  void CheckPages(uint64_t pages) const {
    KVRM_CHECK(pager_->books(0).in_use == pages + 1, "bench: the books count the pages it made");
  }

  // Lock step, the worst case: each sequence needs its page in the same step.
  void TimeGrowth() {
    const uint64_t n = seqs_.size();
    SetLengths(seqs_, kPromptTokens);
    Measure({{"Reserve", "a token within a page", 0, {}},
             {"Reserve", "one page of decode growth", 1, {}},
             {"Trim", "tokens within a page", 0, {}},
             {"Trim", "one page", 1, {}}},
            n * kGrownPages, [&](Watches& watches) {
              const uint64_t taken = pager_->counters().pages_taken;
              for (uint32_t page = 0; page < kGrownPages; ++page) {
                const uint32_t tokens = kPromptTokens + page * kHeartPageTokens;
                Timed(watches[1], seqs_, [&](SeqId seq) { Reserve(seq, tokens + 1); });
                Timed(watches[0], seqs_, [&](SeqId seq) { Reserve(seq, tokens + 2); });
                SetLengths(seqs_, tokens + kHeartPageTokens);
              }
              CheckPages(n * (kPromptPages + kGrownPages));
              KVRM_CHECK(pager_->counters().pages_taken >= taken + n * kGrownPages,
                         "bench: each growth took a page");
              for (uint32_t page = kGrownPages; page-- > 0;) {
                const uint32_t tokens = kPromptTokens + page * kHeartPageTokens;
                Timed(watches[2], seqs_, [&](SeqId seq) { pager_->Trim(seq, tokens + 1); });
                Timed(watches[3], seqs_, [&](SeqId seq) { pager_->Trim(seq, tokens); });
              }
              CheckPages(n * kPromptPages);
            });
    SetLengths(seqs_, 0);
  }

  void TimePrompts() {
    const uint64_t n = seqs_.size();
    Measure({{"Reserve", "a prompt of 512 tokens", kPromptPages, {}},
             {"Trim", "the end of a sequence of 512 tokens", kPromptPages, {}}},
            n, [&](Watches& watches) {
              Timed(watches[0], seqs_,
                    [&](SeqId seq) { Reserve(seq, kPromptTokens, kPromptTokens); });
              CheckPages(n * kPromptPages);
              Timed(watches[1], seqs_, [&](SeqId seq) { pager_->Trim(seq, 0); });
              CheckPages(0);
            });
  }

  void TimeForks() {
    const uint64_t n = seqs_.size();
    const uint32_t tokens = kPromptTokens - 4;  // its last page is partial
    SetLengths(seqs_, tokens);
    Measure({{"Alias", "a fork of 508 tokens", kPromptPages, {}},
             {"Reserve", "the first write to a shared page: a copy", 1, {}}},
            n, [&](Watches& watches) {
              uint32_t next = 0;
              Timed(watches[0], forks_, [&](SeqId fork) {
                KVRM_CHECK(pager_->Alias(fork, seqs_[next++], tokens).status == ReserveStatus::kOk,
                           "bench: its source is there");
              });
              CheckPages(n * kPromptPages);
              Timed(watches[1], forks_, [&](SeqId fork) { Reserve(fork, tokens + 1); });
              KVRM_CHECK(pager_->page_copies().size() == n,
                         "bench: each fork copies its last page");
              CheckPages(n * (kPromptPages + 1));
              SetLengths(forks_, 0);
            });
    SetLengths(seqs_, 0);
  }

  // Commit, Publish and StepDone of a step of sequences that decode, per sequence.
  void TimeStepEnds() {
    const uint64_t n = seqs_.size();
    const uint32_t num_steps = 4 * kHeartPageTokens;
    std::vector<Row> frame_rows(n);
    std::vector<SlotHead> slots(n);
    const auto length = [](uint32_t i) { return kPromptTokens - i % kHeartPageTokens; };
    for (uint32_t i = 0; i < n; ++i) {
      const uint16_t slot = pager_->slot(seqs_[i]).value;
      frame_rows[i] = {.slot = slot, .logits_idx = i};
      slots[i] = {.slot = slot, .seq_id = seqs_[i].value, .row_begin = i, .num_rows = 1};
    }
    uint64_t frame_epoch = 0;
    const auto step = [&](uint32_t more_tokens, Stopwatch& commit, Stopwatch& publish,
                          Stopwatch& done) {
      pager_->BeginStep();
      for (uint32_t i = 0; i < n; ++i) {
        const uint32_t tokens = length(i) + more_tokens;
        if (more_tokens == 0) pager_->Trim(seqs_[i], tokens);
        Reserve(seqs_[i], tokens);
        slots[i].num_tokens[0] = tokens;
        frame_rows[i].kv_index = tokens - 1;
      }
      commit.Start();
      const auto deltas = pager_->Commit(++epoch_);
      commit.Stop();
      publish.Start();
      const FrameView frame = builder_->Publish(++frame_epoch, frame_rows, slots, deltas);
      publish.Stop();
      KVRM_CHECK(frame.head->num_rows == n, "bench: a row for each sequence");
      done.Start();
      pager_->StepDone(epoch_);
      done.Stop();
    };
    Measure({{"Commit", "a decoding sequence's share", 0, {}},
             {"Publish", "a decoding sequence's share", 0, {}},
             {"StepDone", "a decoding sequence's share", 0, {}}},
            n * num_steps, [&](Watches& watches) {
              Stopwatch unused;
              step(0, unused, unused, unused);
              for (uint32_t i = 1; i <= num_steps; ++i) {
                step(i, watches[0], watches[1], watches[2]);
              }
              uint64_t pages = 0;
              for (uint32_t i = 0; i < n; ++i) {
                pages += (length(i) + num_steps + kHeartPageTokens - 1) / kHeartPageTokens;
              }
              CheckPages(pages);
            });
  }

  // Prompts that are entered, adopted from those who hold them, and adopted from the cache.
  void TimePrefixes() {
    const uint64_t n = seqs_.size();
    std::mt19937 random(1);
    std::vector<std::vector<TokenId>> prompts(n, std::vector<TokenId>(kPromptTokens));
    for (uint32_t i = 0; i < n; ++i) {
      for (TokenId& token : prompts[i]) token = static_cast<TokenId>(random() % 49'152);
      prompts[i][0] = static_cast<TokenId>(i);  // so that none shares a page with another
    }
    const auto adopt = [&](Stopwatch& watch) {
      uint32_t next = 0;
      Timed(watch, forks_, [&](SeqId fork) {
        KVRM_CHECK(pager_->AdoptPrefix(fork, kBenchSalt, prompts[next++], kPromptTokens).status ==
                       ReserveStatus::kOk,
                   "bench: its prompt is in the index");
      });
      CheckPages(n * kPromptPages);
    };
    SetLengths(seqs_, 0);
    Measure({{"IndexPrefix", "the pages of a prompt of 512 tokens", kPromptPages, {}},
             {"AdoptPrefix", "512 tokens that another sequence holds", kPromptPages, {}},
             {"AdoptPrefix", "512 tokens in the cache", kPromptPages, {}}},
            n, [&](Watches& watches) {
              SetLengths(seqs_, kPromptTokens);
              uint64_t entered = 0;
              watches[0].Start();
              for (uint32_t i = 0; i < n; ++i) {
                entered += pager_->IndexPrefix(seqs_[i], kBenchSalt, prompts[i]);
              }
              watches[0].Stop();
              KVRM_CHECK(entered == n * kPromptPages, "bench: each full page is entered");
              adopt(watches[1]);
              SetLengths(forks_, 0);
              SetLengths(seqs_, 0);
              CheckPages(0);
              adopt(watches[2]);
              SetLengths(forks_, 0);
              pager_->ClearPrefixIndex();
            });
  }

  const HeartSizes& sizes_;
  std::unique_ptr<Pager> pager_;
  std::unique_ptr<FrameBuilder> builder_;
  std::vector<SeqId> seqs_, forks_;
  uint64_t epoch_ = 0;
  std::vector<VerbRow> rows_;
};

}  // namespace

std::vector<VerbRow> MeasureVerbs(const HeartSizes& sizes) { return VerbBench(sizes).Run(); }

}  // namespace kvrm::cli
