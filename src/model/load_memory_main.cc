// What a load takes of memory, in a process that does nothing else:
// load_memory MODEL [auto|f32|q4|q8] prints one JSON object. `peak_bytes` is the process's peak
// less what it held before the file was opened (its libraries); `share`, that over the larger of
// file and weights.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include "base/resident_memory.h"
#include "model/model.h"

namespace {

kvrm::WeightChoice ChoiceOf(const std::string& word) {
  if (word == "f32") return kvrm::WeightChoice::kF32;
  if (word == "q4") return kvrm::WeightChoice::kQ4;
  if (word == "q8") return kvrm::WeightChoice::kQ8;
  return kvrm::WeightChoice::kAuto;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fputs("usage: load_memory MODEL [auto|f32|q4|q8]\n", stderr);
    return 2;
  }
  const uint64_t before = kvrm::PeakResidentBytes();
  const auto file = kvrm::GgufFile::Open(argv[1]);
  const kvrm::LoadOptions options{.weights = ChoiceOf(argc == 3 ? argv[2] : "auto"),
                                  .num_threads = std::thread::hardware_concurrency()};
  const auto model = file.ok() ? kvrm::Model::Load(**file, options)
                               : kvrm::Result<std::unique_ptr<const kvrm::Model>>(file.error());
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    return 1;
  }
  const uint64_t larger = std::max((*file)->file_bytes(), (*model)->weight_bytes());
  const uint64_t peak = kvrm::PeakResidentBytes() - before;
  std::printf("{\"file_bytes\":%llu,\"weight_bytes\":%llu,\"peak_bytes\":%llu,\"share\":%.3f}\n",
              static_cast<unsigned long long>((*file)->file_bytes()),
              static_cast<unsigned long long>((*model)->weight_bytes()),
              static_cast<unsigned long long>(peak),
              static_cast<double>(peak) / static_cast<double>(larger));
  return 0;
}
