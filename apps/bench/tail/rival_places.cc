#include "bench/tail/rival_places.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "session/model_path.h"

namespace kvrm::cli {
namespace {

namespace fs = std::filesystem;

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

Result<std::string> FindLlamaServer(const std::string& dir, const std::string& model) {
  if (IsFolder(model)) {
    return Unsupported("--rival llama: llama-server reads GGUF files, but the model '" + model +
                       "' is a folder");
  }
  std::error_code error;
  std::vector<fs::path> places = {fs::path(dir), fs::path(dir) / "bin",
                                  fs::path(dir) / "native/bin"};
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    places.push_back(it->path() / "bin");
  }
  for (const fs::path& place : places) {
    if (fs::exists(place / "llama-server", error)) return (place / "llama-server").string();
  }
  return NotFound("no llama-server in " + dir + "; `tools/rivals llama` builds it");
}

Result<std::string> FindOpenVino(const std::string& dir) {
  const fs::path driver = fs::path(dir) / "openvino/bin/openvino-driver";
  std::error_code error;
  if (fs::exists(driver, error)) return driver.string();
  return NotFound("no OpenVINO GenAI driver in " + dir + "; `tools/rivals openvino` installs it");
}

Result<std::string> FindVllm(const std::string& dir) {
  const fs::path program = fs::path(dir) / "vllm/bin/vllm";
  std::error_code error;
  if (fs::exists(program, error)) return program.string();
  return NotFound("--rival vllm: no '" + program.string() + "'; `tools/rivals vllm` installs it");
}

// vLLM reads folders: of a file, the one that was made from it.
Result<std::string> FindVllmModel(const std::string& dir, const std::string& model) {
  if (IsFolder(model)) return model;
  const fs::path folder = fs::path(dir) / "vllm/models" / ModelNameOf(model);
  std::error_code error;
  if (fs::exists(folder / "config.json", error)) return folder.string();
  return NotFound("--rival vllm: vLLM reads a model's folder, '" + model +
                  "' is a file, and there is no '" + folder.string() +
                  "'; `tools/rivals vllm` makes it of the default model");
}

// Leaves `place` empty where the rival is not there and need not be.
Status Take(Result<std::string> found, bool must, std::string& place) {
  if (found.ok()) {
    place = std::move(found).value();
  } else if (must) {
    return found.error();
  } else {
    std::fprintf(stderr, "left out: %s\n", found.error().message.c_str());
  }
  return Ok();
}

}  // namespace

Status FindTailRivals(const std::string& names, const std::string& dir, bool must,
                      TailSetup& setup) {
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    if (name == "llama") {
      KVRM_RETURN_IF_ERROR(
          Take(FindLlamaServer(dir, setup.model), /*must=*/true, setup.llama_server));
    } else if (name == "openvino") {
      KVRM_RETURN_IF_ERROR(Take(FindOpenVino(dir), must, setup.open_vino_driver));
    } else if (name == "vllm") {
      KVRM_RETURN_IF_ERROR(Take(FindVllm(dir), must, setup.vllm));
      KVRM_RETURN_IF_ERROR(Take(FindVllmModel(dir, setup.model), must, setup.vllm_model));
    } else {
      return InvalidInput("--rival '" + name + "': takes llama, openvino, vllm");
    }
  }
  return Ok();
}

Status FindTailRivals(const OptionValues& values, TailSetup& setup) {
  const std::string dir =
      values.Text("rivals").empty() ? CacheDir() + "/rivals" : values.Text("rivals");
  return FindTailRivals(values.Text("rival"), dir, values.Source("rival") != ValueSource::kDefault,
                        setup);
}

}  // namespace kvrm::cli
