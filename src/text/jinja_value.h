// Values of a template at work, and the budget that bounds the work. Values are immutable but for
// namespaces; copying one shares what it holds (that is what the shared_ptrs are for: a message
// list or a text of megabytes is named by many variables). Thread-compatible.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/jinja_text.h"

namespace kvrm::jinja {

struct Stmt;
class Value;

struct Undefined {};
struct None {};
struct List;
struct Dict;
struct Namespace;
struct Loop;
struct Macro {
  // Of the template, which outlives its values; null: a built-in function, or a method that was
  // named but not called.
  const Stmt* stmt;
};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(None none) : data_(none) {}       // NOLINT: implicit by design, as the next ones
  Value(bool value) : data_(value) {}     // NOLINT
  Value(int64_t value) : data_(value) {}  // NOLINT
  Value(double value) : data_(value) {}   // NOLINT
  Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}  // NOLINT
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}         // NOLINT
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}         // NOLINT
  Value(std::shared_ptr<Namespace> names) : data_(std::move(names)) {}        // NOLINT
  Value(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}         // NOLINT
  Value(Macro macro) : data_(macro) {}                                        // NOLINT
  Value(const void*) = delete;  // a pointer would become true

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  // Null when the value is of another kind.
  const bool* AsBool() const { return std::get_if<bool>(&data_); }
  const int64_t* AsInt() const { return std::get_if<int64_t>(&data_); }
  const double* AsFloat() const { return std::get_if<double>(&data_); }
  const Text* AsText() const { return Shared<const Text>(); }
  const List* AsList() const { return Shared<const List>(); }
  const Dict* AsDict() const { return Shared<const Dict>(); }
  Namespace* AsNamespace() const { return Shared<Namespace>(); }
  const Loop* AsLoop() const { return Shared<const Loop>(); }
  const Macro* AsMacro() const { return std::get_if<Macro>(&data_); }
  // Requires: AsList() != nullptr.
  const std::shared_ptr<const List>& shared_list() const {
    return std::get<std::shared_ptr<const List>>(data_);
  }

  bool IsTrue() const;           // Python's truth value
  const char* TypeName() const;  // for messages
  // Levels of lists and dicts; 0 for anything else.
  uint32_t Depth() const;

 private:
  template <class T>
  T* Shared() const {
    const auto* shared = std::get_if<std::shared_ptr<T>>(&data_);
    return shared == nullptr ? nullptr : shared->get();
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Loop>, Macro>
      data_;
};

struct List {
  std::vector<Value> items;
  uint32_t depth = 1;
  // To Python other types: a tuple prints with round brackets, a generator (what select, map and
  // their like give) can only be gone through.
  enum class Kind : uint8_t { kList, kTuple, kGenerator } kind = Kind::kList;
};
struct Dict {
  std::vector<std::pair<Text, Value>> items;  // in order of insertion, keys distinct
  uint32_t depth = 1;
  const Value* Find(std::string_view key) const;
};
// The only value that changes. It stands in no list, dict or namespace, so that nothing that is
// shared can form a circle.
struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
  Value* Find(std::string_view key);
};
// What `loop` is inside a for statement.
struct Loop {
  std::shared_ptr<const List> items;
  size_t index = 0;
  // The attribute's value; undefined when there is none of that name.
  Value Get(std::string_view attribute) const;
};

// Bounds of one rendering. A step is a node evaluated or 256 bytes of text made or looked through.
class Budget {
 public:
  static constexpr uint64_t kMaxSteps = 1'000'000;
  static constexpr size_t kMaxTextBytes = size_t{8} << 20;  // of the output, and of any value
  static constexpr uint32_t kMaxValueDepth = 32;

  Status Spend(uint64_t steps);
  Status SpendText(size_t bytes) { return Spend(1 + bytes / 256); }
  // For a search of `part` bytes in `whole`, which compares at worst at each place.
  Status SpendSearch(size_t whole, size_t part);
  // For `bytes` of text about to be added to `existing` ones: spends, and refuses what would be
  // over the limit.
  Status MakeText(size_t bytes, size_t existing = 0);

 private:
  uint64_t steps_left_ = kMaxSteps;
};

// Errors: too deep, or an item that may not stand in a list or dict (namespace, loop).
Result<Value> MakeList(std::vector<Value> items, List::Kind kind = List::Kind::kList);
Result<Value> MakeDict(std::vector<std::pair<Text, Value>> items);

// Python's ==. Spends by size.
Result<bool> Equal(const Value& a, const Value& b, Budget& budget);
// Python's < and its like: between two numbers or two texts (by code points). Errors: other pairs.
Result<std::partial_ordering> Compare(const Value& a, const Value& b, Budget& budget);
// What a for statement goes through: items, keys or characters.
Result<std::shared_ptr<const List>> Iterate(const Value& value, Budget& budget);

}  // namespace kvrm::jinja
