#include "hub/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace kvrm {

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

std::unique_ptr<Digest> Digest::For(std::string_view name, uint64_t num_bytes) {
  constexpr size_t kSha256Digits = 64, kSha1Digits = 40;
  const bool hex = name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (!hex || (name.size() != kSha256Digits && name.size() != kSha1Digits)) return nullptr;
  const bool sha256 = name.size() == kSha256Digits;
  auto state = std::make_unique<State>();
  const int begun = EVP_DigestInit_ex(state->context, sha256 ? EVP_sha256() : EVP_sha1(), nullptr);
  KVRM_CHECK(begun == 1, "OpenSSL has SHA-256 and SHA-1");
  std::unique_ptr<Digest> digest(new Digest(std::move(state)));
  if (!sha256) {
    const std::string header = "blob " + std::to_string(num_bytes);
    digest->Update({header.c_str(), header.size() + 1});  // with its closing zero
  }
  return digest;
}

Digest::Digest(std::unique_ptr<State> state) : state_(std::move(state)) {}
Digest::~Digest() = default;

void Digest::Update(std::span<const char> bytes) {
  const int taken = EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
  KVRM_CHECK(taken == 1, "a digest takes bytes until it is finished");
}

std::string Digest::Finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  const int finished = EVP_DigestFinal_ex(state_->context, bytes.data(), &size);
  KVRM_CHECK(finished == 1, "a digest is finished once");
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += {kHex[bytes[i] >> 4], kHex[bytes[i] & 15]};
  return text;
}

}  // namespace kvrm
