// Arbitrary bytes as a hub's list of files, as ORG/REPO[@REVISION][:QUANT] and as the index of a
// folder: each ends in a value or an error, and whatever is chosen lies in the list, within its
// folder.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "hub/repo.h"
#include "hub/url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto spec = kvrm::ParseRepoSpec(text);
  KVRM_CHECK(!spec.ok() || spec->Text() == text, "what is read as a repository is written alike");
  KVRM_CHECK(!spec.ok() || kvrm::IsSafePath(spec->Revision()), "a revision names a file of refs");
  const auto url = kvrm::ParseUrl(text);
  if (url.ok()) (void)kvrm::ResolveUrl(*url, text.substr(size / 2));
  const auto listing = kvrm::ParseRepoListing(text);
  if (!listing.ok()) return 0;
  for (const char* quant : {"", "Q8_0", "m.gguf"}) {
    const auto chosen = kvrm::ChooseFiles(listing->files, quant);
    if (!chosen.ok()) continue;
    for (const std::string& file : chosen->files) {
      KVRM_CHECK(kvrm::IsSafePath(file), "a chosen file lies within its folder");
      KVRM_CHECK(std::count(listing->files.begin(), listing->files.end(), file) > 0,
                 "a chosen file is one of the list");
    }
  }
  return 0;
}
