// From ORG/REPO[@REVISION][:QUANT] to a model on this machine: files come from the hub into the
// cache that PyPI huggingface_hub shares, or are there already. Blocking; thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "hub/repo.h"
#include "hub/url.h"

namespace kvrm {

struct HubSettings {
  Url endpoint;           // HF_ENDPOINT, else https://huggingface.co
  std::string token;      // HF_TOKEN, else what a login left in HF_HOME/token; empty = none
  std::string cache_dir;  // HubCacheDir()
  bool offline = false;   // HF_HUB_OFFLINE: nothing is asked
};

// From the environment. Errors: HF_ENDPOINT is no URL; a token of other than graphic ASCII.
Result<HubSettings> ReadHubSettings();

struct HubListener {
  // A file's bytes begin to come: what is called then gets the share that is there, 0..1. May be
  // empty, and return an empty function.
  std::function<std::function<void(double)>(const std::string& file, uint64_t num_bytes)> on_file;
  // One line for the user.
  std::function<void(const std::string& line)> note;
};

// The path of the model: a GGUF file, or a folder with config.json. What the cache has of the
// commit that the revision is now is not fetched again; parts of files are gone on with. Where the
// hub cannot be reached, what the cache has is taken, with a note.
// Errors, one line: repository, file, and status or reason. A repository that is not there or not
// open to the token; no such revision; no file of the quant, with those that there are; a wrong
// checksum, whose bytes are removed; no room on the disk; offline, and not in the cache.
Result<std::string> GetModel(const RepoSpec& spec, const HubSettings& settings,
                             const HubListener& listener);

// The same from the cache alone.
Result<std::string> GetCachedModel(const RepoSpec& spec, const std::string& cache_dir);

}  // namespace kvrm
