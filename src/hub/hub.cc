#include "hub/hub.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "hub/blob_writer.h"
#include "hub/cache.h"
#include "hub/http_client.h"
#include "model/gguf.h"
#include "model/safetensors_index.h"

namespace kvrm {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxListingBytes = 64u << 20;
constexpr int kMaxTries = 5;  // of a file whose bytes stop coming
constexpr unsigned kProxyWantsLogin = 407;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsOn(const std::string& value) {
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE" || value == "true";
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

Result<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return Unavailable(path + ": cannot be read");
  return text;
}

// What a status other than success means to who asked for `what`.
Error Refused(const HttpAnswer& answer, const std::string& what, bool with_token) {
  const std::string code(answer.Find("X-Error-Code"));
  const std::string status =
      what + ": HTTP " + std::to_string(answer.status) + " from " + answer.url.Origin();
  const std::string token = with_token ? "the token of HF_TOKEN may not read it"
                                       : "set HF_TOKEN to a token that may read it";
  if (code == "GatedRepo") {
    return InvalidInput(status + ": gated; accept its terms on its page, and " + token);
  }
  if (code == "RepoNotFound") {
    return NotFound(status + ": no such repository, or a private one: " + token);
  }
  if (code == "RevisionNotFound") return NotFound(status + ": no such branch, tag or commit");
  if (answer.status == kProxyWantsLogin) {
    return Unavailable(status +
                       ": the proxy wants a user name: " + "http_proxy=http://USER:PASSWORD@HOST");
  }
  if (answer.status == 401 || answer.status == 403) {
    return InvalidInput(status + ": not open to everybody: " + token);
  }
  if (answer.status == 404) return NotFound(status + ": not found");
  if (answer.status == 429) return Unavailable(status + ": too many requests, try again later");
  return answer.status >= 500 ? Unavailable(status) : InvalidInput(status);
}

bool IsSuccess(unsigned status) { return status >= 200 && status < 300; }

struct FileHead {
  std::string etag;
  uint64_t num_bytes = 0;
};

// The name of a blob: `W/"abc"` without its marks. Empty: none that is a file's name.
std::string BlobName(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  std::string name;
  for (const char c : etag) {
    if (c != '"') name += c;
  }
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
  });
  constexpr size_t kMaxBytes = 128;
  return plain && name.size() <= kMaxBytes ? name : "";
}

std::optional<uint64_t> WholeNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The files that the index of a folder names; none where it has no index.
Result<std::set<std::string>> ShardsOf(const std::string& folder) {
  std::set<std::string> shards;
  const std::string path = folder + "/" + kSafetensorsIndex;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return shards;
  KVRM_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  const auto index = ParseSafetensorsIndex(text);
  if (!index.ok()) {
    return Error{index.error().kind, std::string(kSafetensorsIndex) + " " + index.error().message};
  }
  for (const auto& [tensor, shard] : *index) shards.insert(shard);
  return shards;
}

class Downloads {
 public:
  Downloads(const RepoSpec& spec, const HubSettings& settings, const HubListener& listener)
      : spec_(spec),
        settings_(settings),
        listener_(listener),
        cache_(settings.cache_dir, spec.repo) {}

  Result<std::string> Run() {
    KVRM_ASSIGN_OR_RETURN(const RepoListing listing, List());
    const auto chosen = ChooseFiles(listing.files, spec_.quant);
    if (!chosen.ok()) return In(chosen.error());
    for (const std::string& file : chosen->files) {
      KVRM_RETURN_IF_ERROR(Get(listing.commit, file));
    }
    if (chosen->is_folder) KVRM_RETURN_IF_ERROR(GetShards(listing));
    KVRM_RETURN_IF_ERROR(cache_.SetCommit(spec_.Revision(), listing.commit));
    const std::string snapshot = cache_.Snapshot(listing.commit);
    return chosen->is_folder ? snapshot : snapshot + "/" + chosen->files.front();
  }

 private:
  Error In(const Error& error) const { return {error.kind, spec_.Name() + ": " + error.message}; }
  Error In(const std::string& file, const Error& error) const {
    return In(Error{error.kind, "'" + PrintableName(file) + "': " + error.message});
  }

  HttpQuestion Ask(const std::string& target) const {
    HttpQuestion question{.url = settings_.endpoint, .token = settings_.token};
    while (question.url.target.ends_with('/')) question.url.target.pop_back();
    question.url.target += target;
    return question;
  }

  Result<RepoListing> List() {
    std::string text;
    const auto answer = client_.Ask(
        Ask("/api/models/" + spec_.repo + "/revision/" + EncodeSegment(spec_.Revision())),
        Redirects::kFollow,
        [&](const HttpAnswer& head) {
          if (IsSuccess(head.status)) return Ok();
          return Status(Refused(head, spec_.Name(), !settings_.token.empty()));
        },
        [&](std::span<const char> bytes) {
          if (bytes.size() > kMaxListingBytes - text.size()) {
            return Status(InvalidInput("the hub's list of files has more than " +
                                       std::to_string(kMaxListingBytes) + " bytes"));
          }
          text.append(bytes.data(), bytes.size());
          return Ok();
        });
    if (!answer.ok()) return answer.error();
    auto listing = ParseRepoListing(text);
    if (!listing.ok()) return In(listing.error());
    return listing;
  }

  Status GetShards(const RepoListing& listing) {
    const auto shards = ShardsOf(cache_.Snapshot(listing.commit));
    if (!shards.ok()) return In(shards.error());
    for (const std::string& shard : *shards) KVRM_RETURN_IF_ERROR(Get(listing.commit, shard));
    return Ok();
  }

  std::string FileTarget(const std::string& commit, const std::string& file) const {
    return "/" + spec_.repo + "/resolve/" + commit + "/" + EncodePath(file);
  }

  Result<FileHead> HeadOf(const std::string& commit, const std::string& file) {
    HttpQuestion question = Ask(FileTarget(commit, file));
    question.head_only = true;
    const auto answer =
        client_.Ask(question, Redirects::kRelative, [](const HttpAnswer&) { return Ok(); }, {});
    if (!answer.ok()) return In(file, answer.error());
    // A large file's answer leads elsewhere, and carries its own name and size beside.
    const bool elsewhere = answer->status >= 300 && answer->status < 400;
    if (!IsSuccess(answer->status) && !elsewhere) {
      return Refused(*answer, spec_.Name() + ": '" + PrintableName(file) + "'",
                     !settings_.token.empty());
    }
    const std::string_view linked_etag = answer->Find("X-Linked-Etag");
    const std::string_view linked_size = answer->Find("X-Linked-Size");
    FileHead head;
    head.etag = BlobName(linked_etag.empty() ? answer->Find("ETag") : linked_etag);
    const auto size =
        linked_size.empty() && !elsewhere ? answer->content_length : WholeNumber(linked_size);
    if (head.etag.empty()) return In(file, InvalidInput("the hub gives it no usable ETag"));
    if (!size) return In(file, InvalidInput("the hub does not say its size"));
    head.num_bytes = *size;
    return head;
  }

  Status Get(const std::string& commit, const std::string& file) {
    std::error_code ignored;
    if (fs::is_regular_file(cache_.Snapshot(commit) + "/" + file, ignored)) return Ok();
    KVRM_ASSIGN_OR_RETURN(const FileHead head, HeadOf(commit, file));
    KVRM_RETURN_IF_ERROR(cache_.MakeFolders(commit, file));
    KVRM_ASSIGN_OR_RETURN(const FileLock lock, FileLock::Take(cache_.Lock(head.etag), [&] {
                            Note("waiting for another program that gets " + file);
                          }));
    const fs::path blob = cache_.Blob(head.etag);
    if (!fs::is_regular_file(blob, ignored) || fs::file_size(blob, ignored) != head.num_bytes) {
      const Status got = Download(commit, file, head);
      if (!got.ok()) return In(file, got.error());
    }
    return cache_.Link(commit, file, head.etag);
  }

  // Goes on where bytes stopped coming, as long as each try brings some.
  Status Download(const std::string& commit, const std::string& file, const FileHead& head) {
    KVRM_ASSIGN_OR_RETURN(const auto writer,
                          BlobWriter::Open(cache_.Blob(head.etag), head.etag, head.num_bytes));
    std::function<void(double)> progress;
    if (listener_.on_file) progress = listener_.on_file(file, head.num_bytes);
    for (int tries = 1; !writer->whole(); ++tries) {
      const uint64_t before = writer->written();
      const Status came = DownloadRest(Ask(FileTarget(commit, file)), *writer, progress);
      if (came.ok()) continue;
      const bool again = came.error().kind == ErrorKind::kUnavailable && tries < kMaxTries &&
                         writer->written() > before;
      if (!again) return Stopped(came.error(), *writer);
    }
    if (progress) progress(1.0);
    return writer->Finish();
  }

  static Error Stopped(const Error& error, const BlobWriter& writer) {
    if (error.kind != ErrorKind::kUnavailable) return error;
    return Unavailable(error.message + "; " + std::to_string(writer.written()) + " of " +
                       std::to_string(writer.num_bytes()) +
                       " bytes are here, the same command goes on");
  }

  Status DownloadRest(HttpQuestion question, BlobWriter& writer,
                      const std::function<void(double)>& progress) {
    if (writer.written() > 0) question.from_byte = writer.written();
    const auto answer = client_.Ask(
        question, Redirects::kFollow,
        [&](const HttpAnswer& head) { return CheckHead(head, question, writer); },
        [&](std::span<const char> bytes) -> Status {
          KVRM_RETURN_IF_ERROR(writer.Write(bytes));
          if (progress) {
            progress(static_cast<double>(writer.written()) /
                     static_cast<double>(writer.num_bytes()));
          }
          return Ok();
        });
    if (!answer.ok()) return answer.error();
    if (writer.whole()) return Ok();
    return Unavailable(answer->url.Origin() + ": the answer ended early");
  }

  // Before the bytes of a whole file, or of the rest that was asked for, are written.
  Status CheckHead(const HttpAnswer& head, const HttpQuestion& question, BlobWriter& writer) const {
    constexpr unsigned kPartial = 206;
    if (!IsSuccess(head.status)) return Refused(head, "download", !settings_.token.empty());
    if (head.status == kPartial) {
      const std::string wanted = "bytes " + std::to_string(writer.written()) + "-" +
                                 std::to_string(writer.num_bytes() - 1) + "/" +
                                 std::to_string(writer.num_bytes());
      if (question.from_byte && head.Find("Content-Range") == wanted) return Ok();
      return InvalidInput("the answer holds '" + PrintableName(head.Find("Content-Range")) +
                          "', asked for was " + wanted);
    }
    if (writer.written() > 0) KVRM_RETURN_IF_ERROR(writer.StartAgain());  // all of it came
    if (head.content_length && *head.content_length != writer.num_bytes()) {
      return InvalidInput("the answer has " + std::to_string(*head.content_length) +
                          " bytes, announced were " + std::to_string(writer.num_bytes()));
    }
    return Ok();
  }

  void Note(const std::string& line) const {
    if (listener_.note) listener_.note(line);
  }

  const RepoSpec& spec_;
  const HubSettings& settings_;
  const HubListener& listener_;
  const RepoCache cache_;
  HttpClient client_;
};

}  // namespace

Result<HubSettings> ReadHubSettings() {
  HubSettings settings;
  const std::string endpoint = Variable("HF_ENDPOINT");
  auto url = ParseUrl(endpoint.empty() ? "https://huggingface.co" : endpoint);
  if (!url.ok()) return Error{url.error().kind, "HF_ENDPOINT: " + url.error().message};
  settings.endpoint = std::move(url).value();
  settings.token = Variable("HF_TOKEN");
  if (settings.token.empty()) {
    const std::string path = Variable("HF_TOKEN_PATH");
    settings.token = FirstLine(path.empty() ? HubHome() + "/token" : path);
  }
  for (const char c : settings.token) {
    if (c <= ' ' || c >= '\x7f') return InvalidInput("HF_TOKEN holds what is no graphic ASCII");
  }
  settings.cache_dir = HubCacheDir();
  settings.offline = IsOn(Variable("HF_HUB_OFFLINE"));
  return settings;
}

Result<std::string> GetCachedModel(const RepoSpec& spec, const std::string& cache_dir) {
  const RepoCache cache(cache_dir, spec.repo);
  const std::string commit = cache.Commit(spec.Revision());
  if (commit.empty()) return NotFound(spec.Name() + ": not in the cache (" + cache_dir + ")");
  const std::vector<std::string> files = cache.Files(commit);
  const std::string snapshot = cache.Snapshot(commit);
  const auto chosen = ChooseFiles(files, spec.quant);
  if (!chosen.ok()) {
    return Error{chosen.error().kind,
                 spec.Name() + ": in the cache (" + cache_dir + "): " + chosen.error().message};
  }
  if (!chosen->is_folder) return snapshot + "/" + chosen->files.front();
  KVRM_ASSIGN_OR_RETURN(const auto shards, ShardsOf(snapshot));
  for (const std::string& shard : shards) {
    if (std::binary_search(files.begin(), files.end(), shard)) continue;
    return NotFound(spec.Name() + ": the cache (" + cache_dir + ") lacks '" + PrintableName(shard) +
                    "'");
  }
  return snapshot;
}

Result<std::string> GetModel(const RepoSpec& spec, const HubSettings& settings,
                             const HubListener& listener) {
  if (settings.offline) {
    auto cached = GetCachedModel(spec, settings.cache_dir);
    if (cached.ok()) return cached;
    return Error{cached.error().kind, cached.error().message + ", and HF_HUB_OFFLINE is set"};
  }
  auto got = Downloads(spec, settings, listener).Run();
  if (got.ok() || got.error().kind != ErrorKind::kUnavailable) return got;
  auto cached = GetCachedModel(spec, settings.cache_dir);
  if (!cached.ok()) return got;
  if (listener.note) listener.note(got.error().message + "; taking what the cache has");
  return cached;
}

}  // namespace kvrm
