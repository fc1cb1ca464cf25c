#include "bench/heart_decoders.h"

#include <utility>

#include "base/check.h"

namespace kvrm::cli {

uint64_t Decoders::PagesNeeded(uint32_t num_seqs, uint32_t context) {
  return uint64_t{num_seqs} * ((context + kStepsToRewind / 2) / kHeartPageTokens + 1);
}

uint32_t Decoders::StartLength(uint32_t i) const {
  return context_ - kStepsToRewind / 2 - i % kHeartPageTokens;
}

Decoders::Decoders(uint32_t num_seqs, uint32_t context, bool publishes) : context_(context) {
  KVRM_CHECK(context >= kStepsToRewind, "bench: contexts are longer than the timed steps");
  PagerConfig config;
  config.geometry.groups = {HeartGroup()};
  config.max_slots = num_seqs;
  config.max_seq_tokens = context + kStepsToRewind / 2;
  // Room for the soft runs too, and for what a superblock's end wastes.
  config.kv_bytes =
      HeartKvBytes(PagesNeeded(num_seqs, context) + uint64_t{num_seqs} * kSoftRunPages);
  pager_ = std::move(Pager::Create(config)).value();
  if (publishes) {
    const uint32_t max_pages = config.max_seq_tokens / kHeartPageTokens;
    builder_ = std::move(FrameBuilder::Create(pager_->geometry(), {num_seqs, num_seqs, max_pages}))
                   .value();
  }
  rows_.resize(num_seqs);
  slots_.resize(num_seqs);
  pager_->BeginStep();
  for (uint32_t i = 0; i < num_seqs; ++i) {
    seqs_.push_back(*pager_->Open());
    const uint16_t slot = pager_->slot(seqs_[i]).value;
    rows_[i] = {.slot = slot, .logits_idx = i};
    slots_[i] = {.slot = slot, .seq_id = seqs_[i].value, .row_begin = i, .num_rows = 1};
    Reserve(i, StartLength(i));
  }
  Finish();
}

void Decoders::Reserve(uint32_t i, uint32_t tokens) {
  KVRM_CHECK(pager_->Reserve(seqs_[i], tokens).status == ReserveStatus::kOk,
             "bench: there is room");
  slots_[i].num_tokens[0] = tokens;
  rows_[i].kv_index = tokens - 1;
}

void Decoders::Finish() {
  const auto deltas = pager_->Commit(++epoch_);
  if (builder_) builder_->Publish(epoch_, rows_, slots_, deltas);
  pager_->StepDone(epoch_);
}

void Decoders::Step() {
  ++steps_;
  pager_->BeginStep();
  for (uint32_t i = 0; i < seqs_.size(); ++i) {
    (void)pager_->Mark(seqs_[i]);  // as the engine does, to defer one sequence alone
    Reserve(i, slots_[i].num_tokens[0] + 1);
  }
  Finish();
}

void Decoders::Rewind() {
  steps_ = 0;
  pager_->BeginStep();
  for (uint32_t i = 0; i < seqs_.size(); ++i) {
    pager_->Trim(seqs_[i], StartLength(i));
    slots_[i].num_tokens[0] = StartLength(i);
    rows_[i].kv_index = StartLength(i) - 1;
  }
  Finish();
}

void Decoders::Check() const {
  uint64_t pages = 1;  // the null page
  for (uint32_t i = 0; i < seqs_.size(); ++i) {
    const uint32_t tokens = StartLength(i) + steps_;
    const uint32_t held = (tokens + kHeartPageTokens - 1) / kHeartPageTokens;
    KVRM_CHECK(pager_->num_tokens(seqs_[i]) == tokens, "bench: each step added one token");
    KVRM_CHECK(pager_->pages(seqs_[i], 0).size() == held, "bench: its pages are there");
    pages += held;
  }
  KVRM_CHECK(pager_->books(0).in_use == pages, "bench: the books count those pages and no others");
  KVRM_CHECK(!builder_ || builder_->publishes() == epoch_, "bench: each step was published");
}

}  // namespace kvrm::cli
