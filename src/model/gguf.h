// GGUF v2/v3 reader: a memory-mapped file as metadata and tensor views. Every number in the file is
// hostile until checked; all arithmetic on file values is overflow-checked; nothing is read outside
// the mapping. Immutable after Open; thread-safe.
//
// Bytes after the last tensor are allowed (writers pad). The size is taken once, at Open: a file
// that another process cuts short while it is mapped raises SIGBUS at the next read of the lost
// part. Model::Load copies everything out, so the window is the load, not the life of a server.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/string_list.h"
#include "model/integer_list.h"
#include "model/mapped_file.h"
#include "tensor/dtype.h"

namespace kvrm {

// A metadata value. Integers of any width are widened (unsigned and signed apart); arrays are typed
// vectors: integers and bools as wide as in the file, strings one behind the other. Strings are
// bytes: nothing says that they are UTF-8.
struct GgufValue {
  using Strings = StringList;
  std::variant<uint64_t, int64_t, double, bool, std::string, IntegerList, std::vector<double>,
               Strings>
      data;
};

struct GgufTensor {
  std::string name;
  DType type;
  std::vector<uint64_t> dims;  // innermost first, 1..4, none 0
  uint64_t num_values = 0;
  std::span<const std::byte> data;  // within the mapping
  uint64_t rows() const { return num_values / dims[0]; }
};

// A name or string from a file, made fit for one line of a message: everything but printable ASCII
// as \xNN, cut at 80 characters.
std::string PrintableName(std::string_view text);

// Where keys and tensors come from. Safetensors have the rows of q and k in halves, and Gemma's
// norms less one.
enum class ModelSource : uint8_t { kGguf, kSafetensors };

class GgufFile {
 public:
  // Errors name the field or tensor, the value and the limit: wrong magic or version, counts and
  // lengths past the file's end, arrays with 4 GiB of strings or more, duplicate keys or tensors,
  // bad alignment, unknown tensor type, misaligned, overlapping or truncated tensors. Of a split
  // model (NAME-00001-of-0000N.gguf) the first file is given and the others are found beside it. A
  // folder is read as hubs have it (model/hub_folder.h).
  static Result<std::unique_ptr<const GgufFile>> Open(const std::string& path);
  // The same over bytes that outlive the result (tests, fuzzing). `name` stands in messages.
  static Result<std::unique_ptr<const GgufFile>> Parse(std::span<const std::byte> bytes,
                                                       std::string name);
  virtual ~GgufFile() = default;

  ModelSource source() const { return source_; }
  uint32_t version() const { return version_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::string& name() const { return name_; }
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  // A tensor's bytes, or some of them, have been read and need not stay in memory. They stay
  // readable. Nothing for bytes that are not of an opened file.
  void Release(std::span<const std::byte> bytes) const;

  // Views of both live as long as the file.
  const GgufValue* Find(std::string_view key) const;
  const GgufTensor* FindTensor(std::string_view name) const;
  // Typed look-ups. Absent key: the fallback, an error without one. Present with another type or
  // out of range: an error. Integers of any width serve as uint (when not negative) and as float.
  Result<uint64_t> GetUint(std::string_view key, std::optional<uint64_t> fallback) const;
  Result<double> GetFloat(std::string_view key, std::optional<double> fallback) const;
  Result<bool> GetBool(std::string_view key, std::optional<bool> fallback) const;
  Result<std::string> GetString(std::string_view key, std::optional<std::string> fallback) const;

 protected:
  GgufFile() = default;
  // Orders the names of metadata_ and tensors_, which do not change afterwards. Errors: a name that
  // stands twice.
  Status OrderNames();
  ModelSource source_ = ModelSource::kGguf;
  uint32_t version_ = 0;
  uint64_t file_bytes_ = 0;
  std::string name_;
  std::vector<MappedFile> files_;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  // Indices into metadata_ and tensors_, by name: look-ups stay cheap however many a file claims.
  std::vector<uint32_t> metadata_by_name_;
  std::vector<uint32_t> tensors_by_name_;
};

}  // namespace kvrm
