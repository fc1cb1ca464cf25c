// How the time of tokenizing grows with a text: tokenizer_growth MODEL BYTES ROUNDS UNIT... prints
// a line a unit: the bytes of a run of it, at least BYTES, and the least processor time (ns) of
// ROUNDS runs over that and over twice as much, in turn. A UNIT of @FILE is that file. Memory that
// was given back stays with the process, so that no run pays for pages that another did not need.
// For tools/check-text growth; tests count steps instead.
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "model/config.h"
#include "model/gguf.h"
#include "text/tokenizer.h"

namespace {

int64_t ProcessorNs() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t NsOf(const kvrm::Tokenizer& tokenizer, const std::string& text) {
  const int64_t begin = ProcessorNs();
  const size_t count = tokenizer.Encode(text, kvrm::SpecialTokens::kAsText).size();
  const int64_t end = ProcessorNs();
  return count > 0 ? end - begin : std::numeric_limits<int64_t>::max();
}

std::string UnitOf(const std::string& word) {
  if (word.empty() || word[0] != '@') return word;
  std::ifstream file(word.substr(1), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void PrintUnit(const kvrm::Tokenizer& tokenizer, const std::string& unit, size_t bytes,
               int rounds) {
  std::string once;
  while (!unit.empty() && once.size() < bytes) once += unit;
  const std::string twice = once + once;
  int64_t least_once = std::numeric_limits<int64_t>::max(), least_twice = least_once;
  (void)NsOf(tokenizer, twice);  // pages of memory are there from now on
  for (int round = 0; round < rounds; ++round) {
    least_once = std::min(least_once, NsOf(tokenizer, once));
    least_twice = std::min(least_twice, NsOf(tokenizer, twice));
  }
  std::printf("%zu %lld %lld\n", once.size(), static_cast<long long>(least_once),
              static_cast<long long>(least_twice));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("usage: tokenizer_growth MODEL BYTES ROUNDS UNIT...\n", stderr);
    return 2;
  }
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  const auto file = kvrm::GgufFile::Open(argv[1]);
  auto spec = file.ok() ? kvrm::ReadTokenizerSpec(**file) : file.error();
  const auto tokenizer =
      spec.ok() ? kvrm::Tokenizer::Create(std::move(spec).value()) : spec.error();
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  for (int i = 4; i < argc; ++i) {
    PrintUnit(**tokenizer, UnitOf(argv[i]), std::strtoull(argv[2], nullptr, 10),
              std::atoi(argv[3]));
  }
  return 0;
}
