#include "hub/cache.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "hub/repo.h"

namespace kvrm {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--", kSlash = "--";

std::string EnvironmentOr(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

Error CannotMake(const fs::path& path, const std::error_code& error) {
  return Unavailable(path.string() + ": cannot be made: " + error.message());
}

}  // namespace

std::string HubHome() {
  const std::string cache = EnvironmentOr("XDG_CACHE_HOME", EnvironmentOr("HOME", "") + "/.cache");
  return EnvironmentOr("HF_HOME", cache + "/huggingface");
}

std::string HubCacheDir() { return EnvironmentOr("HF_HUB_CACHE", HubHome() + "/hub"); }

RepoCache::RepoCache(const std::string& cache_dir, const std::string& repo) {
  std::string name(kPrefix);
  for (const char c : repo) name += c == '/' ? std::string(kSlash) : std::string(1, c);
  folder_ = cache_dir + "/" + name;
  locks_ = cache_dir + "/.locks/" + name;
}

std::string RepoCache::Snapshot(const std::string& commit) const {
  return folder_ + "/snapshots/" + commit;
}

std::string RepoCache::Blob(const std::string& etag) const { return folder_ + "/blobs/" + etag; }

std::string RepoCache::Lock(const std::string& etag) const { return locks_ + "/" + etag + ".lock"; }

std::string RepoCache::Commit(const std::string& revision) const {
  std::error_code error;
  if (IsCommit(revision)) return fs::is_directory(Snapshot(revision), error) ? revision : "";
  std::ifstream file(folder_ + "/refs/" + revision);
  std::string commit;
  file >> commit;
  return IsCommit(commit) ? commit : "";
}

std::vector<std::string> RepoCache::Revisions() const {
  const fs::path refs = folder_ + "/refs";
  std::vector<std::string> named = {kMainRevision};
  std::error_code error;
  for (fs::recursive_directory_iterator it(refs, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().lexically_relative(refs).string();
    if (name != kMainRevision && IsRevision(name)) named.push_back(name);
  }
  std::sort(named.begin() + 1, named.end());
  std::vector<std::string> commits;
  for (fs::directory_iterator it(folder_ + "/snapshots", error), end; !error && it != end;
       it.increment(error)) {
    commits.push_back(it->path().filename().string());
  }
  std::sort(commits.begin(), commits.end());
  named.insert(named.end(), commits.begin(), commits.end());
  std::vector<std::string> revisions;
  std::set<std::string> seen;
  for (const std::string& name : named) {
    const std::string commit = Commit(name);
    if (!commit.empty() && seen.insert(commit).second) revisions.push_back(name);
  }
  return revisions;
}

std::vector<std::string> RepoCache::Files(const std::string& commit) const {
  const fs::path snapshot = Snapshot(commit);
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(snapshot, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;  // a link whose blob is gone is no file
    if (!fs::is_regular_file(it->path(), ignored)) continue;
    files.push_back(it->path().lexically_relative(snapshot).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Status RepoCache::MakeFolders(const std::string& commit, const std::string& path) const {
  for (const fs::path& made :
       {fs::path(folder_) / "blobs", fs::path(folder_) / "refs", fs::path(locks_),
        (fs::path(Snapshot(commit)) / path).parent_path()}) {
    std::error_code error;
    fs::create_directories(made, error);
    if (error) return CannotMake(made, error);
  }
  return Ok();
}

Status RepoCache::Link(const std::string& commit, const std::string& path,
                       const std::string& etag) const {
  const fs::path link = fs::path(Snapshot(commit)) / path;
  const fs::path target = fs::path(Blob(etag)).lexically_relative(link.parent_path());
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(link, error))) fs::remove(link, error);
  fs::create_symlink(target, link, error);
  if (error == std::errc::file_exists) return Ok();  // another process was faster
  return error ? Status(CannotMake(link, error)) : Ok();
}

Status RepoCache::SetCommit(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return Ok();
  const fs::path path = fs::path(folder_) / "refs" / revision;
  const fs::path whole = path.string() + "." + std::to_string(getpid());
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  std::ofstream(whole) << commit;
  fs::rename(whole, path, error);
  return error ? Status(CannotMake(path, error)) : Ok();
}

std::vector<std::string> CachedRepos(const std::string& cache_dir) {
  std::vector<std::string> repos;
  std::error_code error;
  for (fs::directory_iterator it(cache_dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const size_t slash = name.find(kSlash, kPrefix.size());
    if (!name.starts_with(kPrefix) || slash == std::string::npos) continue;
    repos.push_back(name.substr(kPrefix.size(), slash - kPrefix.size()) + "/" +
                    name.substr(slash + kSlash.size()));
  }
  std::sort(repos.begin(), repos.end());
  return repos;
}

}  // namespace kvrm
