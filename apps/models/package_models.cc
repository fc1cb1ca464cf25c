#include "models/package_models.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "models/models_text.h"

namespace kvrm::cli {
namespace {

std::string_view TakeWord(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(std::min(word.size() + 1, line.size()));
  return word;
}

void TakeLine(std::string_view line, std::vector<PackageModel>* models) {
  const std::string_view key = TakeWord(line);
  if (key == "model") {
    models->push_back({.name = std::string(line)});
    return;
  }
  KVRM_CHECK(!models->empty(), "tools/models.txt: a block begins with `model`");
  PackageModel& model = models->back();
  if (key == "about") {
    model.about = line;
  } else if (key == "license") {
    model.license = line;
  } else if (key == "file") {
    model.file = line;
  } else if (key == "sha256") {
    model.sha256 = line;
  } else if (key == "bytes") {
    std::from_chars(line.data(), line.data() + line.size(), model.bytes);
  } else if (key == "part" || key == "terms") {
    model.packages.emplace_back(TakeWord(line));
    model.has_terms |= key == "terms";
  } else {
    KVRM_CHECK(false, "tools/models.txt: a line begins with a key that readers know");
  }
}

}  // namespace

std::vector<PackageModel> ParsePackageModels(std::string_view text) {
  std::vector<PackageModel> models;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (!line.empty() && !line.starts_with('#')) TakeLine(line, &models);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return models;
}

const std::vector<PackageModel>& PackageModels() {
  static const std::vector<PackageModel> models = ParsePackageModels(kModelsText);
  return models;
}

}  // namespace kvrm::cli
