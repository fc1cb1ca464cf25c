#include "batch/batch_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "batch/batch_line.h"

namespace kvrm::cli {
namespace {

Error FileError(const std::string& path, const std::string& what) {
  return InvalidInput("'" + path + "': " + what);
}
Error SystemError(const std::string& path) { return FileError(path, std::strerror(errno)); }

}  // namespace

Result<BatchInput> BatchInput::Open(const std::string& path) {
  BatchInput input;
  input.path_ = path;
  input.file_.reset(std::fopen(path.c_str(), "rb"));
  if (input.file_ == nullptr) return SystemError(path);
  struct stat info{};
  if (fstat(fileno(input.file_.get()), &info) != 0) return SystemError(path);
  if (S_ISDIR(info.st_mode)) return FileError(path, "is a folder");
  input.size_bytes_ = static_cast<uint64_t>(info.st_size);
  return input;
}

Result<std::optional<BatchInput::Line>> BatchInput::Next() {
  Line line;
  for (;;) {
    bool any = false, blank = true;
    line = {.number = ++number_};
    int c = 0;
    while ((c = std::getc(file_.get())) != EOF) {
      ++read_bytes_;
      any = true;
      if (c == '\n') break;
      blank &= c == ' ' || c == '\t' || c == '\r';
      if (line.text.size() < kMaxLineBytes) {
        line.text += static_cast<char>(c);
      } else {
        line.too_long = true;
      }
    }
    if (c == EOF && std::ferror(file_.get()) != 0) return SystemError(path_);
    if (!any) return std::optional<Line>();
    if (!blank) return std::optional<Line>(std::move(line));
  }
}

double BatchInput::share_read() const {
  if (size_bytes_ == 0) return 1;
  return std::min(1.0, static_cast<double>(read_bytes_) / static_cast<double>(size_bytes_));
}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      ids_(std::move(other.ids_)),
      custom_ids_(std::move(other.custom_ids_)),
      num_found_(other.num_found_) {}

BatchOutput::~BatchOutput() {
  if (fd_ >= 0) close(fd_);
}

Result<BatchOutput> BatchOutput::Open(const std::string& path, const std::string& input_path) {
  BatchOutput output;
  output.path_ = path;
  output.fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (output.fd_ < 0) return SystemError(path);
  struct stat own{}, input{};
  if (fstat(output.fd_, &own) != 0) return SystemError(path);
  if (!S_ISREG(own.st_mode)) return FileError(path, "is no plain file");
  if (stat(input_path.c_str(), &input) == 0 && own.st_dev == input.st_dev &&
      own.st_ino == input.st_ino) {
    return FileError(path, "is the file of requests, too");
  }
  if (flock(output.fd_, LOCK_EX | LOCK_NB) != 0) {
    return FileError(path, "another batch writes it");
  }
  KVRM_RETURN_IF_ERROR(output.ReadAnswers());
  return output;
}

Status BatchOutput::ReadAnswers() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(fdopen(dup(fd_), "rb"), std::fclose);
  if (file == nullptr) return SystemError(path_);
  char* text = nullptr;
  size_t room = 0;
  off_t whole_bytes = 0;
  uint64_t number = 0;
  Status status = Ok();
  for (ssize_t size = 0; status.ok() && (size = getline(&text, &room, file.get())) > 0;) {
    const std::string_view line(text, static_cast<size_t>(size));
    if (line.back() != '\n') break;  // torn by a run that was killed
    ++number;
    whole_bytes += size;
    auto answered = ReadAnswerLine(line);
    if (!answered.ok()) {
      status = FileError(path_, "line " + std::to_string(number) + ": " + answered.error().message);
      continue;
    }
    ids_.insert(std::move(answered->id));
    if (!answered->custom_id.empty()) custom_ids_.insert(std::move(answered->custom_id));
    ++num_found_;
  }
  std::free(text);
  KVRM_RETURN_IF_ERROR(status);
  if (ftruncate(fd_, whole_bytes) != 0 || lseek(fd_, whole_bytes, SEEK_SET) < 0) {
    return SystemError(path_);
  }
  return Ok();
}

bool BatchOutput::Answered(const std::string& id, const std::string& custom_id) const {
  return ids_.contains(id) || (!custom_id.empty() && custom_ids_.contains(custom_id));
}

Status BatchOutput::Append(std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = write(fd_, line.data(), line.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return SystemError(path_);
    line.remove_prefix(static_cast<size_t>(written));
  }
  return Ok();
}

}  // namespace kvrm::cli
