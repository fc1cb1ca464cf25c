// Result<T>: the value of an operation on input, files or devices, or one line of what went wrong.
//
// Three kinds of error, never mixed (docs/architecture.md, Errors): a bug is KVRM_CHECK (check.h);
// room and timing are plain values (Reservation and friends); everything that comes from outside
// is a Result whose message names field, value and limit.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace kvrm {

enum class ErrorKind {
  kInvalidInput,  // the caller's bytes or parameters; HTTP 400
  kNotFound,      // a file, model or name that is not there; HTTP 404
  kUnsupported,   // well formed, but not offered; HTTP 400
  kNoRoom,        // memory or another bound; HTTP 503, exit code 1
  kUnavailable,   // not now: loading, draining, port in use
};

struct Error {
  ErrorKind kind = ErrorKind::kInvalidInput;
  std::string message;  // one line, valid UTF-8: field, value, limit
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Requires: ok().
  T& value() & {
    KVRM_CHECK(ok(), "value() of a failed Result");
    return std::get<0>(state_);
  }
  const T& value() const& {
    KVRM_CHECK(ok(), "value() of a failed Result");
    return std::get<0>(state_);
  }
  T&& value() && {
    KVRM_CHECK(ok(), "value() of a failed Result");
    return std::move(std::get<0>(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Requires: !ok().
  const Error& error() const {
    KVRM_CHECK(!ok(), "error() of a Result that holds a value");
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

struct Unit {};
using Status = Result<Unit>;
inline Status Ok() { return Unit{}; }

inline Error InvalidInput(std::string message) {
  return {ErrorKind::kInvalidInput, std::move(message)};
}
inline Error NotFound(std::string message) { return {ErrorKind::kNotFound, std::move(message)}; }
inline Error Unsupported(std::string message) {
  return {ErrorKind::kUnsupported, std::move(message)};
}
inline Error NoRoom(std::string message) { return {ErrorKind::kNoRoom, std::move(message)}; }
inline Error Unavailable(std::string message) {
  return {ErrorKind::kUnavailable, std::move(message)};
}

}  // namespace kvrm

// Returns the error of `expr` (a Result) from the enclosing function, else goes on.
#define KVRM_RETURN_IF_ERROR(expr)                     \
  do {                                                 \
    auto&& kvrm_status = (expr);                       \
    if (!kvrm_status.ok()) return kvrm_status.error(); \
  } while (false)

// Declares `lhs` with the value of `expr`, or returns its error from the enclosing function.
#define KVRM_ASSIGN_OR_RETURN(lhs, expr) \
  KVRM_ASSIGN_OR_RETURN_IMPL(KVRM_CONCAT(kvrm_result_, __LINE__), lhs, expr)
#define KVRM_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return tmp.error();               \
  lhs = std::move(tmp).value()
#define KVRM_CONCAT(a, b) KVRM_CONCAT_IMPL(a, b)
#define KVRM_CONCAT_IMPL(a, b) a##b
