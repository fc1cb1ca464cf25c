// What a hub says about a model repository: a name, a list of files; and which of them a user means
// by ORG/REPO[@REVISION][:QUANT]. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvrm {

inline constexpr char kMainRevision[] = "main";

struct RepoSpec {
  std::string repo;      // "org/repo"
  std::string revision;  // a branch, tag or commit; empty = kMainRevision
  std::string quant;     // "Q8_0", or the name of a file; empty = choose
  std::string Revision() const { return revision.empty() ? kMainRevision : revision; }
  std::string Name() const { return revision.empty() ? repo : repo + "@" + revision; }
  std::string Text() const { return quant.empty() ? Name() : Name() + ":" + quant; }
};

// "ORG/REPO[@REVISION][:QUANT]". Errors: not two names of letters, digits, '-', '_', '.', 1 to 96
// characters each, without "--", and not of dots alone; what is not IsRevision; an empty or
// overlong QUANT, or one of other characters.
Result<RepoSpec> ParseRepoSpec(std::string_view text);

// What may name a branch ("main", "feature/x"), a tag ("v1.0"), a pull request ("refs/pr/3") or a
// commit: an IsSafePath of at most 200 bytes without blanks and what git forbids in names.
bool IsRevision(std::string_view text);

struct RepoListing {
  std::string commit;              // 40 hexadecimal digits
  std::vector<std::string> files;  // paths within the repository, sorted
};

// The hub's answer to /api/models/ORG/REPO/revision/NAME. Errors, one line: no JSON object, no
// commit, a file without a name, or one whose name is not IsSafePath.
Result<RepoListing> ParseRepoListing(std::string_view json);

// 40 lower-case hexadecimal digits.
bool IsCommit(std::string_view text);

// A path that stays within its folder on every system: names without backslash, colon and control
// characters, none of them empty, "." or "..", between slashes; at most 1,024 bytes.
bool IsSafePath(std::string_view path);

// The files that make a model.
struct ModelFiles {
  bool is_folder = false;          // of safetensors; an index among `files` names the shards
  std::vector<std::string> files;  // of a GGUF model the first is the one to open
};

// With a `quant`: the first GGUF file that is called so or has it as the end of a word of its path
// ("Q8_0" in "dir/m-Q8_0.gguf" and "m-UD-Q8_0-00001-of-00002.gguf"; case ignored), with all its
// parts. Without: the first with Q4_K_M, else the first; where there are none, the folder.
// Projectors (mmproj) are no models. Errors: no such quant, with those that there are; parts that
// are missing; neither GGUF nor safetensors.
Result<ModelFiles> ChooseFiles(const std::vector<std::string>& files, const std::string& quant);

// The word of a GGUF file's path that says its types: "Q4_K_M", "BF16"; empty = none.
std::string QuantOf(std::string_view path);

}  // namespace kvrm
