// Writes the seeded random model of model/random_model.h to a file, for tests that drive the built
// program: write_random_model FILE [CONTEXT]
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "model/random_model.h"

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fputs("usage: write_random_model FILE [CONTEXT]\n", stderr);
    return 2;
  }
  kvrm::RandomModelSpec spec;
  if (argc == 3) spec.context = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  const auto bytes = kvrm::WriteRandomModel(spec);
  std::ofstream file(argv[1], std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return file.flush() ? 0 : 1;
}
