// kvrm.h for C++17: a runtime that destroys itself, a step that rolls itself back, answers as
// values, arrays as ranges. Header only, so that nothing of C++ crosses the library's boundary: the
// library may have been built by another compiler.
//
// Errors: room is a value, because a caller decides by it (OK, DEFERRED, UNSERVICEABLE are
// returned); everything else is thrown as Error, a type of the caller's own binary. Threads,
// lifetimes, costs: kvrm.h.
#pragma once

#include <kvrm/kvrm.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kvrm::client {  // the library itself has names in kvrm

class Error : public std::runtime_error {
 public:
  Error(kvrm_status status, const char* text)
      : std::runtime_error(std::string(kvrm_status_name(status)) + ": " + text), status_(status) {}
  kvrm_status status() const { return status_; }

 private:
  kvrm_status status_;
};

// A view of what a call returned; valid as long as kvrm.h says of that call.
template <class T>
class Range {
 public:
  Range() = default;
  Range(const T* data, uint32_t size) : data_(data), size_(size) {}
  const T* data() const { return data_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](uint32_t i) const { return data_[i]; }

 private:
  const T* data_ = nullptr;
  uint32_t size_ = 0;
};
using Trains = Range<kvrm_train>;

// A versioned struct, zero but for its size.
template <class T>
T Make() {
  T value = {};
  value.size = sizeof value;
  return value;
}

inline kvrm_row_input MakeRow(kvrm_seq seq, int32_t token, uint32_t place, uint8_t flags = 0) {
  kvrm_row_input row = {};
  row.seq = seq;
  row.token = token;
  row.position = row.kv_index = place;
  row.flags = flags;
  row.mask_id = KVRM_NONE;
  row.lse_target = -1;
  return row;
}

class Runtime {
 public:
  explicit Runtime(const kvrm_config& config) {
    const kvrm_status status = kvrm_create(&config, &handle_);
    if (status != KVRM_OK) throw Error(status, kvrm_last_error(nullptr));
  }
  ~Runtime() { kvrm_destroy(handle_); }
  Runtime(Runtime&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Runtime& operator=(Runtime&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  kvrm_runtime* handle() const { return handle_; }  // for calls that are not wrapped
  // Throws unless `status` is OK or about room; returns it.
  kvrm_status Check(kvrm_status status) const {
    if (status <= KVRM_UNSERVICEABLE) return status;
    throw Error(status, kvrm_last_error(handle_));
  }

  // ---- between steps
  // The last epoch with its rows again, for a decoder that failed: the same frame.
  kvrm_frame Recommit(uint64_t epoch, const std::vector<kvrm_row_input>& rows) {
    kvrm_frame frame = Make<kvrm_frame>();
    const auto size = static_cast<uint32_t>(rows.size());
    Check(kvrm_commit(handle_, epoch, rows.data(), size, &frame));
    return frame;
  }
  void StepDone(uint64_t epoch) { Check(kvrm_step_done(handle_, epoch)); }
  bool Maintain(bool idle = false) {
    uint32_t more = 0;
    Check(kvrm_maintain(handle_, idle ? 1 : 0, &more));
    return more != 0;
  }
  uint32_t Index(kvrm_seq seq, const kvrm_salt& salt, const std::vector<int32_t>& tokens) {
    uint32_t pages = 0;
    const auto size = static_cast<uint32_t>(tokens.size());
    Check(kvrm_prefix_index(handle_, seq, &salt, tokens.data(), size, &pages));
    return pages;
  }
  uint32_t Match(const kvrm_salt& salt, const std::vector<int32_t>& tokens) {
    uint32_t matched = 0;
    const auto size = static_cast<uint32_t>(tokens.size());
    Check(kvrm_prefix_match(handle_, &salt, tokens.data(), size, &matched));
    return matched;
  }
  Trains PageCopies() const { return GetTrains(kvrm_get_page_copies); }
  Trains WindowPlan() { return GetTrains(kvrm_window_plan); }
  Trains Acknowledge(uint64_t epoch) { return GetTrains(kvrm_window_acknowledge, epoch); }
  Trains Publish(kvrm_seq seq) { return GetTrains(kvrm_window_publish, seq); }
  // The windows of a group as they are used; `bytes` (may be null) is what the host provides.
  kvrm_window_config Window(uint32_t group, uint64_t* bytes = nullptr) const {
    auto window = Make<kvrm_window_config>();
    uint64_t needed = 0;
    Check(kvrm_get_window(handle_, group, &window, &needed));
    if (bytes != nullptr) *bytes = needed;
    return window;
  }
  void BindWindow(uint32_t group, void* base, uint64_t bytes) {
    Check(kvrm_bind_window(handle_, group, base, bytes));
  }
  // Returns the length of copies that is waited for from now on, in bytes.
  uint64_t Calibrate() {
    uint64_t train_bytes = 0;
    Check(kvrm_calibrate_trains(handle_, &train_bytes));
    return train_bytes;
  }
  void Run(Trains trains) { Check(kvrm_run_trains(handle_, trains.data(), trains.size())); }

  // ---- looks
  bool CanTrim(kvrm_seq seq, uint32_t from_token) const {
    uint32_t yes = 0;
    Check(kvrm_can_trim(handle_, seq, from_token, &yes));
    return yes != 0;
  }
  Range<kvrm_segment> Segments(uint32_t group, uint32_t slot) const {
    const kvrm_segment* data = nullptr;
    uint32_t size = 0;
    Check(kvrm_get_segments(handle_, group, slot, &data, &size));
    return {data, size};
  }
  Range<uint32_t> Pages(uint32_t group, uint32_t slot) const {
    const uint32_t* data = nullptr;
    uint32_t size = 0;
    Check(kvrm_get_pages(handle_, group, slot, &data, &size));
    return {data, size};
  }
  unsigned char* Memory(uint32_t group) const {
    void* base = nullptr;
    uint64_t bytes = 0;
    Check(kvrm_get_memory(handle_, group, &base, &bytes));
    return static_cast<unsigned char*>(base);
  }
  uint64_t PageOffset(uint32_t group, uint32_t page, uint32_t part) const {
    uint64_t offset = 0;
    Check(kvrm_get_page_offset(handle_, group, page, part, &offset));
    return offset;
  }
  // Any of the looks that fill a versioned struct: Get<kvrm_room>(kvrm_get_room).
  template <class T, class Call, class... Args>
  T Get(Call call, Args... args) const {
    T value = Make<T>();
    Check(call(handle_, args..., &value));
    return value;
  }

 private:
  template <class Call, class... Args>
  Trains GetTrains(Call call, Args... args) const {
    const kvrm_train* data = nullptr;
    uint32_t size = 0;
    Check(call(handle_, args..., &data, &size));
    return {data, size};
  }

  kvrm_runtime* handle_ = nullptr;
};

// Where a sequence stood, for Step::Rollback; of one step.
struct Savepoint {
  uint64_t number = 0;
};

// A step; ends by Commit, else it is rolled back. Must not outlive its runtime.
class Step {
 public:
  explicit Step(Runtime& runtime) : runtime_(runtime) {
    runtime_.Check(kvrm_begin_step(runtime_.handle()));
    open_ = true;
  }
  ~Step() {
    if (open_) (void)kvrm_rollback_step(runtime_.handle());
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // nullopt: all slots run.
  std::optional<kvrm_seq> Open() {
    kvrm_seq seq = 0;
    if (runtime_.Check(kvrm_open(runtime_.handle(), &seq)) != KVRM_OK) return std::nullopt;
    return seq;
  }
  void Close(kvrm_seq seq) { runtime_.Check(kvrm_close(runtime_.handle(), seq)); }
  // KVRM_DEFERRED: `missing_pages` (may be null) are short.
  [[nodiscard]] kvrm_status Reserve(kvrm_seq seq, uint32_t num_tokens, uint32_t hint_tokens = 0,
                                    uint32_t* missing_pages = nullptr) {
    return runtime_.Check(
        kvrm_reserve(runtime_.handle(), seq, num_tokens, hint_tokens, missing_pages));
  }
  [[nodiscard]] kvrm_status Alias(kvrm_seq dst, kvrm_seq src, uint32_t num_tokens) {
    return runtime_.Check(kvrm_alias(runtime_.handle(), dst, src, num_tokens));
  }
  [[nodiscard]] kvrm_status Trim(kvrm_seq seq, uint32_t from_token) {
    return runtime_.Check(kvrm_trim(runtime_.handle(), seq, from_token));
  }
  void TrimPages(kvrm_seq seq, uint32_t group, uint32_t begin_token, uint32_t end_token) {
    runtime_.Check(kvrm_trim_pages(runtime_.handle(), seq, group, begin_token, end_token));
  }
  Savepoint Mark(kvrm_seq seq) {
    Savepoint savepoint;
    runtime_.Check(kvrm_mark(runtime_.handle(), seq, &savepoint.number));
    return savepoint;
  }
  void Rollback(Savepoint savepoint) {
    runtime_.Check(kvrm_rollback(runtime_.handle(), savepoint.number));
  }
  [[nodiscard]] kvrm_status Adopt(kvrm_seq seq, const kvrm_salt& salt,
                                  const std::vector<int32_t>& tokens, uint32_t adopt_tokens) {
    const auto size = static_cast<uint32_t>(tokens.size());
    return runtime_.Check(
        kvrm_prefix_adopt(runtime_.handle(), seq, &salt, tokens.data(), size, adopt_tokens));
  }
  // Throws and leaves the step open when the rows are not those of the step.
  kvrm_frame Commit(uint64_t epoch, const std::vector<kvrm_row_input>& rows) {
    kvrm_frame frame = Make<kvrm_frame>();
    const auto size = static_cast<uint32_t>(rows.size());
    runtime_.Check(kvrm_commit(runtime_.handle(), epoch, rows.data(), size, &frame));
    open_ = false;
    return frame;
  }

 private:
  Runtime& runtime_;
  bool open_ = false;
};

}  // namespace kvrm::client
