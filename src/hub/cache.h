// One repository's folder in the cache of PyPI huggingface_hub, in its layout, so that tools share
// files:
//
//   models--ORG--REPO/refs/REVISION             the commit that it last was; none for commits
//                     blobs/ETAG                contents; ETAG.incomplete: as far as they came
//                     snapshots/COMMIT/PATH     links to blobs
//   .locks/models--ORG--REPO/ETAG.lock          held (flock) while a blob is fetched
//
// Thread-compatible; several processes may work on one cache.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace kvrm {

// HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
// ~/.cache/huggingface/hub.
std::string HubCacheDir();
// HF_HOME and what stands for it: where the cache and the token of a login lie.
std::string HubHome();

class RepoCache {
 public:
  // `repo`: "org/repo", as ParseRepoSpec lets through.
  RepoCache(const std::string& cache_dir, const std::string& repo);

  const std::string& folder() const { return folder_; }
  std::string Snapshot(const std::string& commit) const;
  std::string Blob(const std::string& etag) const;
  std::string Lock(const std::string& etag) const;

  // What the cache knows `revision` as: what refs/REVISION says, or a commit that has a snapshot.
  // "" = nothing, or no commit. Requires: IsRevision.
  std::string Commit(const std::string& revision) const;
  // Each snapshot once, by a revision that leads to it: main first, then others, sorted; commits
  // last, of the snapshots that nothing leads to.
  std::vector<std::string> Revisions() const;
  // Paths of the files of a snapshot that are whole, sorted.
  std::vector<std::string> Files(const std::string& commit) const;

  // Errors name the path: folders, links and files that cannot be made.
  Status MakeFolders(const std::string& commit, const std::string& path) const;
  // Snapshot(commit)/path becomes a link to the blob.
  Status Link(const std::string& commit, const std::string& path, const std::string& etag) const;
  // `revision` now is `commit`. A commit stands for itself: nothing is written.
  Status SetCommit(const std::string& revision, const std::string& commit) const;

 private:
  std::string folder_, locks_;
};

// Repositories that the cache has a folder of, sorted: "org/repo".
std::vector<std::string> CachedRepos(const std::string& cache_dir);

}  // namespace kvrm
