#include "engine/record_runtime.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "model/gguf_parts.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvrm {

namespace {

// The files that hold a model's weights and shape, always in the same order.
std::vector<std::string> FilesOf(const std::string& model_path) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  std::error_code error;
  if (const auto first = ReadGgufPartName(model_path)) {
    for (uint64_t part = 1; part <= first->count; ++part) {
      files.push_back(first->stem + GgufPartEnding(part, first->count));
    }
  } else if (!fs::is_directory(model_path, error)) {
    files.push_back(model_path);
  } else {
    for (fs::directory_iterator it(model_path, error), end; !error && it != end;
         it.increment(error)) {
      const fs::path& path = it->path();
      if (path.extension() == ".safetensors" || path.filename() == "config.json") {
        files.push_back(path.string());
      }
    }
    std::sort(files.begin(), files.end());
  }
  return files;
}

Status AddFile(const std::string& path, XXH3_state_t* state) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             std::fclose);
  std::vector<std::byte> bytes(size_t{1} << 20);
  while (file != nullptr) {
    const size_t count = std::fread(bytes.data(), 1, bytes.size(), file.get());
    if (count == 0) break;
    XXH3_128bits_update(state, bytes.data(), count);
  }
  if (file == nullptr || std::ferror(file.get()) != 0) {
    return Unavailable(path + ": cannot be read: " + std::strerror(errno));
  }
  return Ok();
}

}  // namespace

Result<FileHash> HashModel(const std::string& model_path) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  if (state == nullptr) return NoRoom("memory: none is left to hash a file with");
  XXH3_128bits_reset(state.get());
  for (const std::string& file : FilesOf(model_path)) {
    KVRM_RETURN_IF_ERROR(AddFile(file, state.get()));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return FileHash{hash.low64, hash.high64};
}

std::string HashText(const FileHash& hash) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash[1]),
                static_cast<unsigned long long>(hash[0]));
  return text;
}

Result<RecordHeader> RecordHeaderOf(const Runtime& runtime, const RuntimeOptions& options,
                                    const std::string& program) {
  KVRM_ASSIGN_OR_RETURN(const FileHash hash, HashModel(options.model_path));
  const Engine& engine = *runtime.engine;
  RecordHeader header;
  RecordSettings& settings = header.settings;
  settings = SettingsOf(engine);
  std::copy(hash.begin(), hash.end(), settings.model_hash);
  settings.kv_bytes = runtime.kv_bytes;
  settings.kv_keep_bytes = options.kv_keep_bytes;
  settings.scatter_seed = options.scatter_seed;
  settings.num_threads = runtime.pool->num_threads();
  settings.weights = static_cast<uint8_t>(options.weights);
  settings.kv_format = static_cast<uint8_t>(options.kv_format);
  settings.mode = static_cast<uint8_t>(runtime.mode);
  settings.strict_shape = runtime.strict_shape ? 1 : 0;
  settings.view_tokens = runtime.view.window_tokens;
  header.step_samples = engine.config().step_samples;
  // Without its folder: that is nobody's business.
  const std::string model = options.model_path.substr(options.model_path.find_last_of('/') + 1);
  header.text = "program " + program + "\nmodel " + model + "\nexecutor " +
                engine.executor_info().name + "\ncontract " + engine.executor_info().contract +
                "\n";
  return header;
}

Result<RuntimeOptions> OptionsForReplay(const RecordHeader& header, const std::string& model_path) {
  const RecordSettings& settings = header.settings;
  KVRM_ASSIGN_OR_RETURN(const FileHash hash, HashModel(model_path));
  const FileHash recorded{settings.model_hash[0], settings.model_hash[1]};
  if (hash != recorded) {
    return InvalidInput("model " + model_path + " is not the recorded one: its hash is " +
                        HashText(hash) + ", recorded " + HashText(recorded));
  }
  if (settings.weights > static_cast<uint8_t>(WeightChoice::kQ8) ||
      settings.kv_format > static_cast<uint8_t>(KvFormat::kInt8)) {
    return InvalidInput("the record's weights and kv_format are " +
                        std::to_string(settings.weights) + " and " +
                        std::to_string(settings.kv_format) + ", must be 0 to 3 and 0 to 2");
  }
  if (settings.mode >= AllModes().size()) {
    return InvalidInput("the record's mode is " + std::to_string(settings.mode) +
                        ", must be below " + std::to_string(AllModes().size()));
  }
  RuntimeOptions options;
  options.model_path = model_path;
  options.mode = static_cast<Mode>(settings.mode);
  options.strict_shape = settings.strict_shape != 0;
  options.view = ViewName({settings.view_tokens});
  options.weights = static_cast<WeightChoice>(settings.weights);
  options.kv_format = static_cast<KvFormat>(settings.kv_format);
  options.max_slots = settings.max_slots;
  options.ctx = settings.max_seq_tokens;
  options.kv_bytes = settings.kv_bytes;
  options.kv_keep_bytes = settings.kv_keep_bytes;
  options.prefix_cache = settings.prefix_cache != 0;
  options.chunk_rows = settings.chunk_rows;
  options.max_itl_us = settings.max_itl_us;
  options.scatter_seed = settings.scatter_seed;
  options.step_samples = header.step_samples;
  return options;
}

std::string TextLine(const RecordHeader& header, const std::string& name) {
  const std::string text = "\n" + header.text;
  const size_t at = text.find("\n" + name + " ");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 2;
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace kvrm
