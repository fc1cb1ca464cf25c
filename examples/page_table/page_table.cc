// The dense-table export: a decoder that reads pages in place, by one table row for each slot, as a
// kernel on a GPU would. Two sequences and a fork of the first; every state is held against the
// same decoder over contiguous arrays.
#include <kvrm/kvrm.hpp>

#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

namespace {

using kvrm::client::MakeRow;
using kvrm::client::Runtime;
using kvrm::client::Step;

constexpr uint32_t kLayers = 3, kPageTokens = 16, kEntryBytes = 64;

uint64_t Mix(uint64_t state, uint64_t value) {
  state = (state ^ value) * 0x9E3779B97F4A7C15u;
  return state ^ (state >> 29);
}

// Computes one row. entry(layer, place) is where keys and values of a place stand; the decoder does
// not care how it is found.
template <class Entry>
uint64_t Decode(int32_t token, uint32_t place, const Entry& entry) {
  uint64_t state = Mix(place + 1, static_cast<uint64_t>(token));
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    std::memset(entry(layer, place), static_cast<int>(state >> 56), kEntryBytes);
    std::memcpy(entry(layer, place), &state, sizeof state);
    for (uint32_t seen = 0; seen <= place; ++seen) {
      const unsigned char* bytes = entry(layer, seen);
      for (uint32_t i = 0; i < kEntryBytes; ++i) state = Mix(state, uint64_t{seen} << 8 | bytes[i]);
    }
  }
  return state;
}

// The paged executor: all that it is told is the frame, the dense table and the groups' memory.
class PagedExecutor {
 public:
  explicit PagedExecutor(const Runtime& runtime)
      : group_(kvrm::client::Make<kvrm_group_config>()), base_(runtime.Memory(0)) {
    runtime.Check(kvrm_get_group(runtime.handle(), 0, &group_));
  }

  // Returns the last state of each slot that has rows.
  std::map<uint32_t, uint64_t> Run(const kvrm_frame& frame) const {
    std::map<uint32_t, uint64_t> states;
    for (uint32_t r = 0; r < frame.num_rows; ++r) {
      const kvrm_row& row = frame.rows[r];
      const uint32_t* table = frame.dense + size_t{row.slot} * frame.max_pages;  // of group 0
      states[row.slot] = Decode(row.token, row.kv_index, [&](uint32_t layer, uint32_t place) {
        return At(table[place / kPageTokens], layer) + size_t{place % kPageTokens} * kEntryBytes;
      });
    }
    return states;
  }

 private:
  // What kvrm_get_page_offset computes, as a kernel would have it: three constants and a page id.
  unsigned char* At(uint32_t page, uint32_t part) const {
    const uint64_t per = group_.pages_per_superblock;
    return base_ + page / per * group_.superblock_bytes + part * per * group_.part_page_bytes +
           page % per * group_.part_page_bytes;
  }

  kvrm_group_config group_;
  unsigned char* base_;
};

uint64_t ByContiguousArrays(const std::vector<int32_t>& tokens) {
  std::vector<unsigned char> cache(kLayers * tokens.size() * kEntryBytes);
  uint64_t state = 0;
  for (uint32_t place = 0; place < tokens.size(); ++place) {
    state = Decode(tokens[place], place, [&](uint32_t layer, uint32_t at) {
      return cache.data() + (layer * tokens.size() + at) * kEntryBytes;
    });
  }
  return state;
}

Runtime MakeRuntime() {
  auto group = kvrm::client::Make<kvrm_group_config>();
  group.page_tokens = kPageTokens;
  group.num_parts = kLayers;
  group.part_page_bytes = kPageTokens * kEntryBytes;
  auto config = kvrm::client::Make<kvrm_config>();
  config.num_groups = 1;
  config.groups = &group;
  config.num_layers = kLayers;
  config.kv_bytes = 8 << 20;
  config.max_slots = 4;
  config.max_seq_tokens = 256;
  return Runtime(config);
}

struct Sequence {
  kvrm_seq id = 0;
  std::vector<int32_t> tokens;
};

// Gives `sequence` another `count` tokens in the open step.
void Grow(Step& step, Sequence& sequence, uint32_t count, std::vector<kvrm_row_input>& rows) {
  for (uint32_t i = 0; i < count; ++i) {
    const auto place = static_cast<uint32_t>(sequence.tokens.size());
    sequence.tokens.push_back(static_cast<int32_t>(sequence.id * 1000 + place));
    rows.push_back(MakeRow(sequence.id, sequence.tokens.back(), place));
  }
  if (step.Reserve(sequence.id, static_cast<uint32_t>(sequence.tokens.size())) != KVRM_OK) {
    throw std::runtime_error("the pool is too small for this example");
  }
}

}  // namespace

int main() try {
  Runtime runtime = MakeRuntime();
  const PagedExecutor executor(runtime);
  Sequence sequences[3];
  int wrong = 0;
  for (uint64_t epoch = 1; epoch <= 40; ++epoch) {
    Step step(runtime);
    std::vector<kvrm_row_input> rows;
    for (int i = 0; i < 2; ++i) {
      if (epoch == 1) sequences[i].id = step.Open().value();
      Grow(step, sequences[i], epoch == 1 ? 30 + 7 * static_cast<uint32_t>(i) : 1, rows);
    }
    if (epoch == 10) {  // a fork: it shares whole pages, and copies the partial one that it writes
      sequences[2] = {step.Open().value(), sequences[0].tokens};
      sequences[2].tokens.pop_back();
      const auto shared = static_cast<uint32_t>(sequences[2].tokens.size());
      if (step.Alias(sequences[2].id, sequences[0].id, shared) != KVRM_OK) return 1;
    }
    if (epoch >= 10) Grow(step, sequences[2], 1, rows);
    const kvrm_frame frame = step.Commit(epoch, rows);
    runtime.Run(runtime.PageCopies());
    const std::map<uint32_t, uint64_t> states = executor.Run(frame);
    runtime.StepDone(epoch);
    for (uint32_t i = 0; i < frame.num_slots; ++i) {
      for (const Sequence& sequence : sequences) {
        if (sequence.id != frame.slots[i].seq) continue;
        wrong += states.at(frame.slots[i].slot) != ByContiguousArrays(sequence.tokens);
      }
    }
    runtime.Maintain();
    if (epoch != 10 && epoch != 40) continue;
    for (uint32_t i = 0; i < frame.num_slots; ++i) {
      std::printf("step %llu, slot %u: %u tokens on pages", static_cast<unsigned long long>(epoch),
                  frame.slots[i].slot, frame.slots[i].num_tokens[0]);
      for (const uint32_t page : runtime.Pages(0, frame.slots[i].slot)) std::printf(" %u", page);
      std::printf("\n");
    }
  }
  const auto counters = runtime.Get<kvrm_counters>(kvrm_get_counters);
  std::printf("%llu pages copied on write, %d states wrong\n",
              static_cast<unsigned long long>(counters.copy_on_write), wrong);
  return wrong == 0 && counters.copy_on_write > 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
