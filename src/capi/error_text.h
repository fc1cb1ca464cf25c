// Text of the last error, of a runtime or of a thread: fixed room, no allocation.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

#include "base/result.h"
#include "kvrm/types.h"

namespace kvrm {

class ErrorText {
 public:
  const char* text() const { return text_; }

  // Sets the text as printf does, and returns `status`, so that a failing call is one statement.
  __attribute__((format(printf, 3, 4))) kvrm_status Set(kvrm_status status, const char* format,
                                                        ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text_, sizeof text_, format, arguments);
    va_end(arguments);
    return status;
  }
  kvrm_status Set(const Error& error) {
    return Set(StatusOf(error.kind), "%s", error.message.c_str());
  }

 private:
  static kvrm_status StatusOf(ErrorKind kind) {
    switch (kind) {
      case ErrorKind::kInvalidInput:
        return KVRM_INVALID;
      case ErrorKind::kUnsupported:
        return KVRM_UNSUPPORTED;
      case ErrorKind::kNoRoom:
        return KVRM_NO_ROOM;
      case ErrorKind::kNotFound:
      case ErrorKind::kUnavailable:
        return KVRM_IO;
    }
    return KVRM_BROKEN;
  }

  char text_[320] = "";
};

// Of calls that have no runtime.
ErrorText& ThreadError();

}  // namespace kvrm
