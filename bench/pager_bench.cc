// What one step costs the engine thread: edits, commit and publish, for sequences that all decode.
// Law I3: the cost follows what changes, so it must not grow with the context.
//
//   ninja pager_bench && bench/pager_bench
//
// Each benchmark checks its result: the pages and rows that it ended with.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "frame/frame.h"
#include "pager/pager.h"

namespace kvrm {
namespace {

constexpr uint32_t kPageTokens = 16;

// The pages of SmolLM2-135M at fp16 (P = 17), but of few bytes, so that 64 x 64k tokens fit any
// machine: the pager's work does not depend on the bytes of a page.
KvGroupGeometry Group() {
  KvGroupGeometry group;
  group.page_tokens = kPageTokens;
  group.num_parts = 2;
  group.part_page_bytes = 64;
  group.pages_per_superblock = 17;
  group.superblock_bytes = 4096;
  return group;
}

// `num_seqs` sequences of about `context` tokens that all decode, with or without a frame builder.
struct Decoders {
  Decoders(uint32_t num_seqs, uint32_t tokens, bool publishes) : context(tokens) {
    PagerConfig config;
    config.geometry.groups = {Group()};
    config.max_slots = num_seqs;
    config.max_seq_tokens = 2 * context;
    config.kv_bytes = (uint64_t{num_seqs} * 2 * context / kPageTokens / 17 + num_seqs + 2) * 4096;
    pager = std::move(Pager::Create(config)).value();
    if (publishes) {
      builder = std::move(FrameBuilder::Create(pager->geometry(),
                                               {num_seqs, num_seqs, 2 * context / kPageTokens}))
                    .value();
    }
    rows.resize(num_seqs);
    slots.resize(num_seqs);
    pager->BeginStep();
    for (uint32_t i = 0; i < num_seqs; ++i) {
      seqs.push_back(*pager->Open());
      const uint16_t slot = pager->slot(seqs[i]).value;
      rows[i] = {.slot = slot, .logits_idx = i};
      slots[i] = {.slot = slot, .seq_id = seqs[i].value, .row_begin = i, .num_rows = 1};
      Reserve(i, StartLength(i));
    }
    Finish();
  }

  // Staggered, so that in each step some sequence needs a page.
  uint32_t StartLength(uint32_t i) const { return context - i % kPageTokens; }

  void Reserve(uint32_t i, uint32_t tokens) {
    KVRM_CHECK(pager->Reserve(seqs[i], tokens).status == ReserveStatus::kOk,
               "bench: there is room");
    slots[i].num_tokens[0] = tokens;
    rows[i].kv_index = tokens - 1;
  }

  void Finish() {
    const auto deltas = pager->Commit(++epoch);
    if (builder) builder->Publish(epoch, rows, slots, deltas);
    pager->StepDone(epoch);
  }

  void DecodeStep() {
    pager->BeginStep();
    for (uint32_t i = 0; i < seqs.size(); ++i) {
      benchmark::DoNotOptimize(pager->Mark(seqs[i]));
      Reserve(i, slots[i].num_tokens[0] + 1);
    }
    Finish();
  }

  // Back to the first lengths, so that any number of steps stays near one context.
  void Rewind() {
    pager->BeginStep();
    for (uint32_t i = 0; i < seqs.size(); ++i) {
      pager->Trim(seqs[i], StartLength(i));
      slots[i].num_tokens[0] = StartLength(i);
      rows[i].kv_index = StartLength(i) - 1;
    }
    Finish();
  }

  void Check() const {
    for (uint32_t i = 0; i < seqs.size(); ++i) {
      const uint32_t tokens = slots[i].num_tokens[0];
      KVRM_CHECK(pager->num_tokens(seqs[i]) == tokens, "bench: each step added one token");
      KVRM_CHECK(pager->pages(seqs[i], 0).size() == (tokens + kPageTokens - 1) / kPageTokens,
                 "bench: its pages are there");
    }
  }

  const uint32_t context;
  std::unique_ptr<Pager> pager;
  std::unique_ptr<FrameBuilder> builder;  // nullptr: edit and commit only
  std::vector<SeqId> seqs;
  std::vector<Row> rows;
  std::vector<SlotHead> slots;
  uint64_t epoch = 0;
};

void Decode(benchmark::State& state, bool publishes) {
  Decoders decoders(static_cast<uint32_t>(state.range(0)), static_cast<uint32_t>(state.range(1)),
                    publishes);
  uint32_t steps = 0;
  for (auto _ : state) {
    decoders.DecodeStep();
    if (++steps % 256 != 0) continue;
    state.PauseTiming();
    decoders.Rewind();
    state.ResumeTiming();
  }
  decoders.Check();
}

void EditAndCommit(benchmark::State& state) { Decode(state, /*publishes=*/false); }
void EditCommitAndPublish(benchmark::State& state) { Decode(state, /*publishes=*/true); }

// One prompt of `context` tokens reserved at once and trimmed again: per page.
void ReserveAndTrim(benchmark::State& state) {
  Decoders decoders(1, 2 * static_cast<uint32_t>(state.range(0)), /*publishes=*/false);
  const auto tokens = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    decoders.pager->BeginStep();
    decoders.pager->Trim(decoders.seqs[0], tokens);
    decoders.Finish();
    decoders.pager->BeginStep();
    decoders.Reserve(0, 2 * tokens);
    decoders.Finish();
  }
  decoders.Check();
  state.SetItemsProcessed(state.iterations() * tokens / kPageTokens);
}

const std::vector<int64_t> kSequences = {1, 8, 64};
const std::vector<int64_t> kContexts = {512, 2048, 8192, 32768};
BENCHMARK(EditAndCommit)->ArgsProduct({kSequences, kContexts});
BENCHMARK(EditCommitAndPublish)->ArgsProduct({kSequences, kContexts});
BENCHMARK(ReserveAndTrim)->ArgsProduct({{512, 32768}});

}  // namespace
}  // namespace kvrm
