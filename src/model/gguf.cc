#include "model/gguf.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "model/gguf_parser.h"
#include "model/gguf_parts.h"
#include "model/hub_folder.h"
#include "model/mapped_file.h"

namespace kvrm {
namespace {

constexpr size_t kMaxPrintedName = 80;

// Finds `name` among items sorted through `order`; nullptr when absent.
template <class Items, class NameOf>
auto* FindByName(const Items& items, const std::vector<uint32_t>& order, std::string_view name,
                 NameOf name_of) {
  const auto at =
      std::lower_bound(order.begin(), order.end(), name, [&](uint32_t index, std::string_view n) {
        return std::string_view(name_of(items[index])) < n;
      });
  const bool found = at != order.end() && std::string_view(name_of(items[*at])) == name;
  return found ? &items[*at] : nullptr;
}

// The order of items by name. Of two equal names the error names the second in the file.
template <class Items, class NameOf>
Result<std::vector<uint32_t>> OrderByName(const Items& items, std::string_view what,
                                          NameOf name_of) {
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int by_name = name_of(items[a]).compare(name_of(items[b]));
    return by_name != 0 ? by_name < 0 : a < b;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (name_of(items[order[i - 1]]) == name_of(items[order[i]])) {
      return InvalidInput(std::string(what) + " '" + PrintableName(name_of(items[order[i]])) +
                          "' stands twice (entries " + std::to_string(order[i - 1]) + " and " +
                          std::to_string(order[i]) + "), must be unique");
    }
  }
  return order;
}

const std::string& KeyOf(const std::pair<std::string, GgufValue>& entry) { return entry.first; }
const std::string& NameOf(const GgufTensor& tensor) { return tensor.name; }

class ParsedGguf final : public GgufFile {
 public:
  Status Parse(std::span<const std::byte> bytes, std::string name) {
    name_ = std::move(name);
    file_bytes_ = bytes.size();
    GgufContents contents;
    KVRM_RETURN_IF_ERROR(ParseGguf(bytes, &contents));
    version_ = contents.version;
    metadata_ = std::move(contents.metadata);
    tensors_ = std::move(contents.tensors);
    return OrderNames();
  }
  void Keep(MappedFile file) {
    file.Release(file.bytes());  // parsed: what a load needs, it reads again
    files_.push_back(std::move(file));
  }

  // This is the first of a split model's files; takes the tensors of the others.
  Status TakeParts(const std::string& path, uint64_t count) {
    KVRM_ASSIGN_OR_RETURN(const uint64_t number, GetUint("split.no", 0));
    const std::string ending = GgufPartEnding(1, count);
    if (number != 0 || count > kMaxGgufParts || !path.ends_with(ending)) {
      return InvalidInput("is file " + std::to_string(number + 1) + " of a model in " +
                          std::to_string(count) + "; the first is named NAME" + ending);
    }
    const std::string stem = path.substr(0, path.size() - ending.size());
    for (uint64_t part = 2; part <= count; ++part) {
      KVRM_RETURN_IF_ERROR(TakePart(stem + GgufPartEnding(part, count), part, count));
    }
    KVRM_ASSIGN_OR_RETURN(const uint64_t total, GetUint("split.tensors.count", tensors_.size()));
    if (total != tensors_.size()) {
      return InvalidInput("key 'split.tensors.count' is " + std::to_string(total) + ", but its " +
                          std::to_string(count) + " files have " + std::to_string(tensors_.size()) +
                          " tensors");
    }
    return OrderNames();
  }

 private:
  Status TakePart(const std::string& path, uint64_t part, uint64_t count) {
    KVRM_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
    ParsedGguf parsed;
    const Status status = parsed.Parse(file.bytes(), path);
    if (!status.ok()) return Error{status.error().kind, path + ": " + status.error().message};
    KVRM_ASSIGN_OR_RETURN(const uint64_t number, parsed.GetUint("split.no", std::nullopt));
    KVRM_ASSIGN_OR_RETURN(const uint64_t of, parsed.GetUint("split.count", std::nullopt));
    if (number + 1 != part || of != count) {
      return InvalidInput(path + ": says that it is file " + std::to_string(number + 1) + " of " +
                          std::to_string(of));
    }
    file_bytes_ += parsed.file_bytes_;
    for (GgufTensor& tensor : parsed.tensors_) tensors_.push_back(std::move(tensor));
    Keep(std::move(file));
    return Ok();
  }
};

Error WithName(const std::string& name, const Error& error) {
  return {error.kind, name + ": " + error.message};
}

Error WrongType(const std::string& file, std::string_view key, std::string_view wanted) {
  return InvalidInput(file + ": key '" + PrintableName(key) + "' has another type, must be " +
                      std::string(wanted));
}
Error Missing(const std::string& file, std::string_view key) {
  return InvalidInput(file + ": key '" + PrintableName(key) + "' is missing");
}

}  // namespace

std::string PrintableName(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    if (out.size() >= kMaxPrintedName) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

Result<std::unique_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return OpenHubFolder(path);
  KVRM_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  auto parsed = std::make_unique<ParsedGguf>();
  const Status status = parsed->Parse(file.bytes(), path);
  if (!status.ok()) return WithName(path, status.error());
  parsed->Keep(std::move(file));
  KVRM_ASSIGN_OR_RETURN(const uint64_t parts, parsed->GetUint("split.count", 1));
  if (parts > 1) {
    const Status whole = parsed->TakeParts(path, parts);
    if (!whole.ok()) return WithName(path, whole.error());
  }
  return std::unique_ptr<const GgufFile>(std::move(parsed));
}

Status GgufFile::OrderNames() {
  KVRM_ASSIGN_OR_RETURN(metadata_by_name_, OrderByName(metadata_, "key", KeyOf));
  KVRM_ASSIGN_OR_RETURN(tensors_by_name_, OrderByName(tensors_, "tensor", NameOf));
  return Ok();
}

Result<std::unique_ptr<const GgufFile>> GgufFile::Parse(std::span<const std::byte> bytes,
                                                        std::string name) {
  auto parsed = std::make_unique<ParsedGguf>();
  const Status status = parsed->Parse(bytes, std::move(name));
  if (!status.ok()) return WithName(parsed->name(), status.error());
  return std::unique_ptr<const GgufFile>(std::move(parsed));
}

void GgufFile::Release(std::span<const std::byte> bytes) const {
  for (const MappedFile& file : files_) file.Release(bytes);
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto* entry = FindByName(metadata_, metadata_by_name_, key, KeyOf);
  return entry == nullptr ? nullptr : &entry->second;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  return FindByName(tensors_, tensors_by_name_, name, NameOf);
}

Result<uint64_t> GgufFile::GetUint(std::string_view key, std::optional<uint64_t> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return Missing(name_, key);
  }
  if (const auto* u = std::get_if<uint64_t>(&value->data)) return *u;
  if (const auto* i = std::get_if<int64_t>(&value->data)) {
    if (*i >= 0) return static_cast<uint64_t>(*i);
    return InvalidInput(name_ + ": key '" + PrintableName(key) + "' is " + std::to_string(*i) +
                        ", must be at least 0");
  }
  return WrongType(name_, key, "an integer");
}

Result<double> GgufFile::GetFloat(std::string_view key, std::optional<double> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return Missing(name_, key);
  }
  if (const auto* d = std::get_if<double>(&value->data)) return *d;
  if (const auto* u = std::get_if<uint64_t>(&value->data)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<int64_t>(&value->data)) return static_cast<double>(*i);
  return WrongType(name_, key, "a number");
}

Result<bool> GgufFile::GetBool(std::string_view key, std::optional<bool> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return Missing(name_, key);
  }
  if (const auto* b = std::get_if<bool>(&value->data)) return *b;
  return WrongType(name_, key, "a bool");
}

Result<std::string> GgufFile::GetString(std::string_view key,
                                        std::optional<std::string> fallback) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return Missing(name_, key);
  }
  if (const auto* s = std::get_if<std::string>(&value->data)) return *s;
  return WrongType(name_, key, "a string");
}

}  // namespace kvrm
