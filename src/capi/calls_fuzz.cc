// Random calls with hostile arguments: never a crash, never a runtime that is broken or unsound. An
// input is a configuration, mostly one that serves, and then calls, each a byte and its arguments;
// pointers are NULL or good, because no library can tell a wild one.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "kvrm/kvrm.h"

namespace {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  uint8_t Byte() { return at_ < size_ ? data_[at_++] : 0; }
  // Mostly small, now and then a number from the edges.
  uint32_t Number(uint32_t small) {
    const uint8_t byte = Byte();
    if (byte < 0xF0) return byte % (small + 1);
    static constexpr uint32_t kEdges[] = {0,   1,   15,         16,         17,         127,
                                          128, 129, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF};
    return kEdges[Byte() % (sizeof kEdges / sizeof kEdges[0])];
  }
  // One of a few, now and then a number from the edges.
  uint32_t OneOf(std::span<const uint32_t> choices) {
    const uint8_t byte = Byte();
    return byte < 0xF8 ? choices[byte % choices.size()] : Number(255);
  }
  template <class T>
  T* Maybe(T* pointer) {
    return Byte() < 0xF8 ? pointer : nullptr;
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

void Require(bool holds, const char* what, const kvrm_runtime* runtime) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, kvrm_last_error(runtime));
  std::abort();
}

constexpr uint32_t kSlots = 4;

// An output of any size that a caller may claim.
template <class T>
union Sized {
  T value;
  unsigned char room[KVRM_MAX_STRUCT];
};

constexpr uint64_t kMostWindowBytes = 1 << 20;  // for which the fuzzer has room

// Groups, windows and limits. What is left out has no memory behind it in proportion.
struct Configuration {
  explicit Configuration(Input& in) {
    const uint8_t shape = in.Byte();
    config.size = sizeof config;
    config.num_groups = 1 + (shape & 1);
    config.groups = groups;
    config.flags = (shape & 2) != 0 ? KVRM_CONFIG_WINDOWS : 0;
    config.flags |= (shape & 4) != 0 ? KVRM_CONFIG_NO_PREFIX_INDEX : 0;
    config.publish_age_steps = (shape & 8) != 0 ? 2 : 0;
    config.test_scatter_seed = (shape & 16) != 0 ? 7 : 0;
    config.max_slots = kSlots;
    config.max_seq_tokens = 200;
    config.max_step_tokens = 100;
    config.kv_bytes = uint64_t{config.num_groups} * 8192;
    for (auto& group : groups) {
      group.size = sizeof group;
      group.num_parts = 1;
      group.part_page_bytes = 256;
      group.superblock_bytes = 4096;
      group.pages_per_superblock = 16;
    }
    groups[1].kind = KVRM_GROUP_SLIDING;
    groups[1].window_tokens = 24;
    if ((shape & 32) != 0) VaryGroups(in);
    if ((shape & 64) != 0) VaryLimits(in);
    if ((shape & 128) != 0) VaryWindows(in);
  }

  void VaryGroups(Input& in) {
    static constexpr uint32_t kPageTokens[] = {0, 8, 16, 32, 128}, kParts[] = {1, 2, 3, 0};
    static constexpr uint32_t kPartBytes[] = {128, 256, 512, 384}, kPages[] = {8, 16, 1, 5, 64};
    static constexpr uint32_t kSuperblock[] = {4096, 8192, 1024, 0};
    static constexpr uint32_t kSeen[] = {1, 8, 24, 32, 100}, kKinds[] = {0, 1};
    for (auto& group : groups) {
      group.kind = in.OneOf(kKinds);
      group.window_tokens = group.kind == KVRM_GROUP_SLIDING ? in.OneOf(kSeen) : in.Byte() / 0xF8;
      group.page_tokens = in.OneOf(kPageTokens);
      group.num_parts = in.OneOf(kParts);
      group.part_page_bytes = in.OneOf(kPartBytes);
      group.superblock_bytes = in.OneOf(kSuperblock);
      group.pages_per_superblock = group.superblock_bytes == 0 ? 0 : in.OneOf(kPages);
      if (group.superblock_bytes == 0) config.kv_bytes += 8 << 20;
    }
  }

  void VaryLimits(Input& in) {
    static constexpr uint32_t kSteps[] = {0, 1, 16, 64, 100, 200}, kTrains[] = {0, 1, 100, 4096};
    config.max_seq_tokens = in.Byte() * 2;  // page tables of 2^32 places are another test's
    config.max_step_tokens = in.OneOf(kSteps);
    config.train_bytes = in.OneOf(kTrains);
    config.publish_age_steps = in.OneOf(kSteps);
    config.max_rows = in.Byte() < 200 ? 0 : in.Number(120);
  }

  void VaryWindows(Input& in) {
    static constexpr uint32_t kTokens[] = {0, 32, 48, 128, 208, 256};
    static constexpr uint32_t kStrides[] = {0, 4096, 16384, 1 << 16};
    for (auto& window : windows) {
      window.size = sizeof window;
      window.window_tokens = in.OneOf(kTokens);
      window.slot_stride_bytes = in.OneOf(kStrides);
      window.part_stride_bytes = in.OneOf(kStrides);
    }
    if ((config.flags & KVRM_CONFIG_WINDOWS) != 0 || in.Byte() > 0xF0) config.windows = windows;
  }

  kvrm_group_config groups[2] = {};
  kvrm_window_config windows[2] = {};
  kvrm_config config = {};
};

class Session {
 public:
  explicit Session(Input& input) : in_(input) {
    const Configuration made(in_);
    const kvrm_status status = kvrm_create(&made.config, &runtime_);
    Check(status);
    if (status != KVRM_OK) return;
    for (uint32_t g = 0; g < made.config.num_groups; ++g) {
      kvrm_window_config window = {};
      window.size = sizeof window;
      uint64_t bytes = 0;
      if (kvrm_get_window(runtime_, g, &window, &bytes) != KVRM_OK) continue;
      unbound_ = unbound_ || bytes > kMostWindowBytes;
      if (unbound_) continue;  // its trains are refused
      windows_[g].resize(bytes);
      Require(kvrm_bind_window(runtime_, g, windows_[g].data(), bytes) == KVRM_OK, "bind",
              runtime_);
    }
  }
  // Whether there is a runtime to be called.
  bool open() const { return runtime_ != nullptr; }
  ~Session() {
    if (runtime_ == nullptr) return;
    uint32_t violations = 0;
    char text[512] = "";
    Require(kvrm_validate(runtime_, text, sizeof text, nullptr, &violations) == KVRM_OK, "validate",
            runtime_);
    if (violations > 0) std::fprintf(stderr, "%s", text);
    Require(violations == 0, "violations", runtime_);
    kvrm_destroy(runtime_);
  }
  Session(const Session&) = delete;

  void Call() {
    const uint8_t call = in_.Byte() % 40;
    Check(call < 18 ? CallEdit(call) : CallRest(call));
  }

 private:
  void Check(kvrm_status status) {
    Require(status >= KVRM_OK && status <= KVRM_IO, "broken", runtime_);
    const char* text = kvrm_last_error(runtime_);
    Require(status == KVRM_OK || text[0] != 0, "no text", runtime_);
    Require(std::strstr(text, "refused by a check inside") == nullptr, "not prevalidated",
            runtime_);
  }

  kvrm_seq Seq() {
    const uint8_t byte = in_.Byte();
    return byte < 0xF0 && !seqs_.empty() ? seqs_[byte % seqs_.size()] : in_.Number(64);
  }

  kvrm_status Open() {
    kvrm_seq seq = 0;
    const kvrm_status status = kvrm_open(runtime_, in_.Maybe(&seq));
    if (status == KVRM_OK && seqs_.size() < 2 * kSlots) seqs_.push_back(seq);
    if (status == KVRM_OK) seqs_[in_.Byte() % seqs_.size()] = seq;
    return status;
  }

  kvrm_status Commit(bool honest) {
    rows_.clear();
    for (const kvrm_seq seq : seqs_) {
      kvrm_sequence_info info = {};
      info.size = sizeof info;
      if (!honest || kvrm_get_sequence(runtime_, seq, &info) != KVRM_OK) continue;
      bool listed = false;
      for (const kvrm_row_input& row : rows_) listed = listed || row.seq == seq;
      for (uint32_t i = info.new_from; !listed && i < info.num_tokens; ++i) AddRow(seq, i, 0);
    }
    if (!honest) {
      for (uint32_t i = in_.Number(6); i-- > 0 && rows_.size() < 400;) {
        AddRow(Seq(), in_.Number(200), in_.Byte());
      }
    }
    Sized<kvrm_frame> frame = {};
    frame.value.size = honest ? sizeof frame : in_.Number(239) * 18;
    const uint64_t epoch = honest || in_.Byte() < 128 ? epoch_ + 1 : in_.Number(9);
    const uint32_t count = static_cast<uint32_t>(rows_.size());
    const kvrm_status status =
        kvrm_commit(runtime_, epoch, in_.Maybe(rows_.data()), count, in_.Maybe(&frame.value));
    if (status == KVRM_OK && epoch == epoch_ + 1) ++epoch_;
    return status;
  }

  void AddRow(kvrm_seq seq, uint32_t place, uint8_t flags) {
    kvrm_row_input row = {};
    row.seq = seq;
    row.kv_index = row.position = place;
    row.flags = flags;
    row.mask_id = KVRM_NONE;
    rows_.push_back(row);
  }

  kvrm_status Run(kvrm_status status, const kvrm_train* trains, uint32_t num_trains) {
    Check(status);
    if (status != KVRM_OK) return status;
    const kvrm_status ran = kvrm_run_trains(runtime_, trains, num_trains);
    Require(ran == KVRM_OK || unbound_, "trains of its own", runtime_);
    return ran;
  }

  // A refused plan stays refused: nothing of it was done.
  kvrm_status Plan() {
    const kvrm_train* trains = nullptr;
    uint32_t num_trains = 0;
    const kvrm_status status = kvrm_window_plan(runtime_, &trains, &num_trains);
    if (status != KVRM_OK) {
      Check(status);
      Require(kvrm_window_plan(runtime_, &trains, &num_trains) == status, "plan", runtime_);
    }
    return Run(status, trains, num_trains);
  }

  // What waited for one sequence never goes to a page of another.
  kvrm_status Publish() {
    const kvrm_seq seq = Seq();
    const kvrm_train* trains = nullptr;
    uint32_t num_trains = 0;
    const kvrm_status status = kvrm_window_publish(runtime_, seq, &trains, &num_trains);
    if (status == KVRM_OK) {
      for (const kvrm_seq other : seqs_) {
        for (uint32_t i = 0; i < num_trains && other != seq; ++i) {
          Require(!Holds(other, trains[i]), "published into a page of another", runtime_);
        }
      }
    }
    return Run(status, trains, num_trains);
  }

  // Whether the train writes a byte of a page of `seq`.
  bool Holds(kvrm_seq seq, const kvrm_train& train) const {
    const uint32_t group = train.destination.kv_group;
    kvrm_group_config config = {};
    config.size = sizeof config;
    const uint32_t* pages = nullptr;
    uint32_t num_pages = 0, first = 0;
    if (kvrm_get_group(runtime_, group, &config) != KVRM_OK) return true;
    if (kvrm_get_sequence_pages(runtime_, seq, group, &pages, &num_pages, &first) != KVRM_OK) {
      return false;
    }
    for (uint32_t i = 0; i < num_pages; ++i) {
      for (uint32_t part = 0; part < config.num_parts && pages[i] != 0; ++part) {
        uint64_t offset = 0;
        if (kvrm_get_page_offset(runtime_, group, pages[i], part, &offset) != KVRM_OK) return true;
        if (offset < train.destination_offset + train.bytes &&
            train.destination_offset < offset + config.part_page_bytes) {
          return true;
        }
      }
    }
    return false;
  }

  kvrm_status CallEdit(uint8_t call) {
    uint32_t number = 0;
    switch (call) {
      case 0:
      case 1:
        return kvrm_begin_step(runtime_);
      case 2:
        return Open();
      case 3:
        return kvrm_close(runtime_, Seq());
      case 4:
      case 5: {
        const kvrm_seq seq = Seq();
        const uint32_t tokens = in_.Number(110), hint = in_.Byte() < 128 ? 0 : in_.Number(200);
        return kvrm_reserve(runtime_, seq, tokens, hint, in_.Maybe(&number));
      }
      case 6: {  // one more place, as a decoder does
        const kvrm_seq seq = Seq();
        kvrm_sequence_info info = {};
        info.size = sizeof info;
        if (kvrm_get_sequence(runtime_, seq, &info) != KVRM_OK) return KVRM_INVALID;
        return kvrm_reserve(runtime_, seq, info.num_tokens + 1, 0, nullptr);
      }
      case 7: {
        const kvrm_seq dst = Seq(), src = Seq();
        return kvrm_alias(runtime_, dst, src, in_.Number(110));
      }
      case 8: {
        const kvrm_seq seq = Seq();
        return kvrm_trim(runtime_, seq, in_.Number(110));
      }
      case 9: {
        const kvrm_seq seq = Seq();
        const uint32_t group = in_.Number(1), begin = in_.Number(110);
        return kvrm_trim_pages(runtime_, seq, group, begin, in_.Number(110));
      }
      case 10: {
        uint64_t mark = 0;
        const kvrm_status status = kvrm_mark(runtime_, Seq(), in_.Maybe(&mark));
        if (status == KVRM_OK) mark_ = mark;
        return status;
      }
      case 11:
        return kvrm_rollback(runtime_, in_.Byte() < 200 ? mark_ : in_.Number(9));
      case 12:
        return kvrm_rollback_step(runtime_);
      case 13:
        return kvrm_step_done(runtime_, in_.Byte() < 200 ? epoch_ : in_.Number(9));
      case 14:
        return Commit(/*honest=*/false);
      default:
        return Commit(/*honest=*/true);
    }
  }

  kvrm_status CallRest(uint8_t call) {
    const kvrm_train* trains = nullptr;
    const uint32_t* pages = nullptr;
    uint32_t number = 0, more = 0;
    const kvrm_salt salt = {in_.Number(1), 0};
    tokens_.assign(in_.Number(200) % 256, in_.Byte() & 1);
    const uint32_t num_tokens = static_cast<uint32_t>(tokens_.size());
    switch (call) {
      case 18:
        return kvrm_maintain(runtime_, in_.Byte() & 1, in_.Maybe(&number));
      case 19:
      case 20:
        return kvrm_prefix_index(runtime_, Seq(), in_.Maybe(&salt), in_.Maybe(tokens_.data()),
                                 num_tokens, in_.Maybe(&number));
      case 21:
        return kvrm_prefix_match(runtime_, in_.Maybe(&salt), in_.Maybe(tokens_.data()), num_tokens,
                                 in_.Maybe(&number));
      case 22:
      case 23: {
        const kvrm_seq seq = Seq();
        const kvrm_status status =
            kvrm_prefix_match(runtime_, &salt, tokens_.data(), num_tokens, &number);
        if (status != KVRM_OK) return status;
        if (in_.Byte() > 200) number = in_.Number(200);
        return kvrm_prefix_adopt(runtime_, seq, &salt, tokens_.data(), num_tokens, number);
      }
      case 24:
        return in_.Byte() < 40 ? kvrm_prefix_clear(runtime_) : KVRM_OK;
      case 25:
      case 26:
        return Plan();
      case 27:
      case 28: {
        const uint64_t epoch = in_.Byte() < 200 ? epoch_ : in_.Number(9);
        return Run(kvrm_window_acknowledge(runtime_, epoch, &trains, &number), trains, number);
      }
      case 29:
        return Publish();
      case 30:
        return Run(kvrm_get_page_copies(runtime_, &trains, &number), trains, number);
      case 31: {
        kvrm_train train = {};
        train.source_offset = in_.Number(200);
        train.destination_offset = uint64_t{in_.Number(200)} * 64;
        train.bytes = in_.Number(200);
        train.source = {in_.Byte(), in_.Byte()};
        train.destination = {static_cast<uint8_t>(in_.Number(3)), in_.Byte()};
        train.cause = static_cast<uint8_t>(in_.Number(6));
        return kvrm_run_trains(runtime_, in_.Maybe(&train), 1);
      }
      case 32: {
        const uint32_t group = in_.Number(1);
        return kvrm_window_resident(runtime_, group, in_.Number(4), &number, &more);
      }
      case 33: {
        const kvrm_segment* segments = nullptr;
        const uint32_t group = in_.Number(1);
        return kvrm_get_segments(runtime_, group, in_.Number(4), &segments, &number);
      }
      case 34: {
        const uint32_t group = in_.Number(1);
        return kvrm_get_pages(runtime_, group, in_.Number(4), &pages, &number);
      }
      case 35: {
        const kvrm_seq seq = Seq();
        return kvrm_get_sequence_pages(runtime_, seq, in_.Number(1), &pages, &number, &more);
      }
      case 36: {
        uint64_t offset = 0;
        const uint32_t group = in_.Number(1), page = in_.Number(40);
        return kvrm_get_page_offset(runtime_, group, page, in_.Number(1), &offset);
      }
      case 37: {
        const kvrm_seq seq = Seq();
        return kvrm_can_trim(runtime_, seq, in_.Number(200), &number);
      }
      case 38: {
        Sized<kvrm_counters> counters = {};
        counters.value.size = in_.Number(239) * 18;
        return kvrm_get_counters(runtime_, &counters.value);
      }
      default: {
        char text[64];
        const size_t capacity = in_.Number(sizeof text) % (sizeof text + 1);
        return kvrm_dump(runtime_, in_.Maybe(text), capacity, nullptr);
      }
    }
  }

  Input& in_;
  kvrm_runtime* runtime_ = nullptr;
  std::vector<kvrm_seq> seqs_;
  std::vector<kvrm_row_input> rows_;
  std::vector<int32_t> tokens_;
  std::vector<unsigned char> windows_[2];
  bool unbound_ = false;  // a window for which there is no room here
  uint64_t epoch_ = 0;
  uint64_t mark_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  Session session(input);
  for (int calls = 0; calls < 2000 && session.open() && !input.empty(); ++calls) session.Call();
  return 0;
}
