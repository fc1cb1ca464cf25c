// Published<T>: the latest value of plain data, written by one thread without waiting and read by
// any. A sequence lock over relaxed words: a reader that meets a write tries again.
//
// Thread class: Store from one thread; Load thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace kvrm {

template <class T>
class Published {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  void Store(const T& value) {
    Words words{};
    std::memcpy(words.data(), &value, sizeof(T));
    const uint64_t turn = turn_.load(std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_relaxed);  // odd: being written
    // Each word is released after the odd turn: whoever sees one of them sees that turn, too.
    for (size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
    turn_.store(turn + 2, std::memory_order_release);
  }

  T Load() const {
    Words words{};
    for (;;) {
      const uint64_t before = turn_.load(std::memory_order_acquire);
      for (size_t i = 0; i < words.size(); ++i) {
        words[i] = words_[i].load(std::memory_order_acquire);
      }
      if (before % 2 == 0 && turn_.load(std::memory_order_relaxed) == before) break;
    }
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(T));
    return value;
  }

 private:
  static constexpr size_t kWords = (sizeof(T) + 7) / 8;
  using Words = std::array<uint64_t, kWords>;
  std::atomic<uint64_t> turn_{0};
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace kvrm
