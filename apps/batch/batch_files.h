// The two files of a batch: requests read line by line, answers appended so that a run which was
// killed can be taken up again. Thread-compatible. Errors name the file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/result.h"

namespace kvrm::cli {

class BatchInput {
 public:
  static Result<BatchInput> Open(const std::string& path);

  struct Line {
    uint64_t number = 0;  // from 1
    std::string text;     // without its end; cut where it is `too_long`
    bool too_long = false;
  };
  // The next line that is not blank; nothing at the end. Errors: the file cannot be read.
  Result<std::optional<Line>> Next();
  double share_read() const;  // 0 to 1, by bytes

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Closer> file_;
  uint64_t number_ = 0, read_bytes_ = 0, size_bytes_ = 0;
};

class BatchOutput {
 public:
  // Makes the file, or takes it up: what it answers is known, a last line without an end is cut.
  // Errors: it cannot be written, another process writes it, it is `input_path` itself, or a line
  // of it is no answer of a batch.
  static Result<BatchOutput> Open(const std::string& path, const std::string& input_path);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();

  bool Answered(const std::string& id, const std::string& custom_id) const;
  uint64_t num_found() const { return num_found_; }  // answers that were there
  // One answer line, whole or not at all as far as a later run is concerned.
  Status Append(std::string_view line);

 private:
  BatchOutput() = default;
  Status ReadAnswers();

  std::string path_;
  int fd_ = -1;
  std::unordered_set<std::string> ids_, custom_ids_;
  uint64_t num_found_ = 0;
};

}  // namespace kvrm::cli
