// Corpora of broken files, one a check of a reader, named after it: tests/fuzz/TARGET/broken, with
// which the fuzz targets begin too. Test code only.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <span>
#include <string>

namespace kvrm::testing {

struct BrokenFile {
  const char* name;     // without the corpus's ending
  const char* message;  // a part of what its reader says, or all of it
};

enum class Said : uint8_t { kPart, kAll };

// What the reader of a file of that name (with its ending) and those bytes says; "" = it takes it.
using RefusalOf = std::function<std::string(const std::string& name, const std::string& bytes)>;

// The reader refuses each file of the table in one line with its own message, and the folder
// `corpus` (below tests/fuzz) holds those files and no others. Folders in it are another corpus.
inline void ExpectEachRefusedByItsCheck(const std::string& corpus, const std::string& ending,
                                        std::span<const BrokenFile> table, const RefusalOf& refusal,
                                        Said said = Said::kPart) {
  const auto folder = std::filesystem::path(KVRM_SOURCE_DIR) / "tests/fuzz" / corpus;
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.insert(entry.path().filename());
  }
  for (const BrokenFile& broken : table) {
    const std::string name = broken.name + ending;
    EXPECT_EQ(files.erase(name), 1u) << name << " is not there, or stands twice in the table";
    std::ifstream file(folder / name, std::ios::binary);
    const std::string message = refusal(name, {std::istreambuf_iterator<char>(file), {}});
    if (said == Said::kAll) {
      EXPECT_EQ(message, broken.message) << name;
    } else {
      EXPECT_NE(message.find(broken.message), std::string::npos) << name << ": " << message;
    }
    EXPECT_NE(message, "") << name << " is taken";
    EXPECT_EQ(message.find('\n'), std::string::npos) << name;
  }
  EXPECT_EQ(files, std::set<std::string>{}) << "files that no row of the table names";
}

}  // namespace kvrm::testing
