// A model folder as hubs have it, config.json and safetensors, as a GgufFile: the same keys and
// tensor names, so that what reads one reads both. What differs is said by GgufFile::source().
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "model/gguf.h"

namespace kvrm {

// config.json, and model.safetensors or the files of model.safetensors.index.json. The tokenizer is
// not read. Errors: those of ReadHubConfig and ParseSafetensors, with the file's name; an index
// that names files outside the folder or tensors that its files do not have.
Result<std::unique_ptr<const GgufFile>> OpenHubFolder(const std::string& folder);

// What a folder is called: "ORG/REPO" where it is models--ORG--REPO/snapshots/COMMIT of a hub's
// cache, else its own name.
std::string ModelFolderName(const std::string& folder);

}  // namespace kvrm
