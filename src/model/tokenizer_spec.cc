// The tokenizer of a GGUF file as plain data.
#include <cmath>
#include <limits>
#include <optional>

#include "model/config.h"
#include "model/model_tensors.h"

namespace kvrm {
namespace {

constexpr char kTokensKey[] = "tokenizer.ggml.tokens";

class SpecReader {
 public:
  explicit SpecReader(const GgufFile& file) : file_(file) {}

  Result<TokenizerSpec> Run() {
    KVRM_ASSIGN_OR_RETURN(spec_.model, file_.GetString("tokenizer.ggml.model", std::nullopt));
    KVRM_ASSIGN_OR_RETURN(spec_.pre, file_.GetString("tokenizer.ggml.pre", ""));
    KVRM_ASSIGN_OR_RETURN(spec_.chat_template, file_.GetString("tokenizer.chat_template", ""));
    KVRM_RETURN_IF_ERROR(ReadTokens());
    KVRM_RETURN_IF_ERROR(ReadTypes());
    KVRM_RETURN_IF_ERROR(ReadScores());
    KVRM_RETURN_IF_ERROR(ReadStrings("tokenizer.ggml.merges", &spec_.merges));
    KVRM_RETURN_IF_ERROR(ReadId("tokenizer.ggml.bos_token_id", &spec_.bos));
    KVRM_RETURN_IF_ERROR(ReadId("tokenizer.ggml.eos_token_id", &spec_.eos));
    KVRM_RETURN_IF_ERROR(ReadId("tokenizer.ggml.eot_token_id", &spec_.eot));
    KVRM_RETURN_IF_ERROR(ReadId("tokenizer.ggml.unknown_token_id", &spec_.unknown));
    KVRM_RETURN_IF_ERROR(ReadId("tokenizer.ggml.padding_token_id", &spec_.padding));
    return ReadFlags();
  }

 private:
  Error Invalid(const std::string& what) const { return InvalidInput(file_.name() + ": " + what); }
  std::string PerToken(const char* key, uint64_t size) const {
    return "key '" + std::string(key) + "' has " + std::to_string(size) + " entries, must have " +
           std::to_string(spec_.tokens.size()) + ", one per entry of " + kTokensKey;
  }

  // Absent: left empty.
  Status ReadStrings(const char* key, StringList* out) {
    const GgufValue* value = file_.Find(key);
    if (value == nullptr) return Ok();
    const auto* strings = std::get_if<GgufValue::Strings>(&value->data);
    if (strings == nullptr) {
      return Invalid("key '" + std::string(key) +
                     "' has another type, must be an array of strings");
    }
    *out = *strings;
    return Ok();
  }

  Status ReadTokens() {
    KVRM_RETURN_IF_ERROR(ReadStrings(kTokensKey, &spec_.tokens));
    if (spec_.tokens.empty()) {
      return Invalid("key '" + std::string(kTokensKey) + "' is missing or empty");
    }
    const GgufTensor* embedding = file_.FindTensor(kEmbeddingTensor);
    if (embedding != nullptr && spec_.tokens.size() > embedding->rows()) {
      return Invalid("key '" + std::string(kTokensKey) + "' has " +
                     std::to_string(spec_.tokens.size()) + " entries, must be at most the " +
                     std::to_string(embedding->rows()) + " rows of tensor '" +
                     std::string(kEmbeddingTensor) + "'");
    }
    return Ok();
  }

  Status ReadTypes() {
    constexpr char kKey[] = "tokenizer.ggml.token_type";
    const GgufValue* value = file_.Find(kKey);
    if (value == nullptr) return Ok();
    const auto* types = std::get_if<IntegerList>(&value->data);
    if (types == nullptr) {
      return Invalid("key '" + std::string(kKey) +
                     "' has another type, must be an array of integers");
    }
    if (types->size() != spec_.tokens.size()) return Invalid(PerToken(kKey, types->size()));
    spec_.types.reserve(types->size());
    for (size_t i = 0; i < types->size(); ++i) {
      const int64_t type = (*types)[i];
      if (type < static_cast<int64_t>(TokenType::kNormal) ||
          type > static_cast<int64_t>(TokenType::kByte)) {
        return Invalid("key '" + std::string(kKey) + "' entry " + std::to_string(i) + " is " +
                       std::to_string(type) + ", must be 1 to 6");
      }
      spec_.types.push_back(static_cast<TokenType>(type));
    }
    return Ok();
  }

  Status ReadScores() {
    constexpr char kKey[] = "tokenizer.ggml.scores";
    const GgufValue* value = file_.Find(kKey);
    if (value == nullptr) return Ok();
    const auto* scores = std::get_if<std::vector<double>>(&value->data);
    if (scores == nullptr) {
      return Invalid("key '" + std::string(kKey) +
                     "' has another type, must be an array of floats");
    }
    if (scores->size() != spec_.tokens.size()) return Invalid(PerToken(kKey, scores->size()));
    spec_.scores.reserve(scores->size());
    for (size_t i = 0; i < scores->size(); ++i) {
      const double score = (*scores)[i];
      if (!(std::fabs(score) <= std::numeric_limits<float>::max())) {
        return Invalid("key '" + std::string(kKey) + "' entry " + std::to_string(i) + " is " +
                       std::to_string(score) + ", must be a finite float");
      }
      spec_.scores.push_back(static_cast<float>(score));
    }
    return Ok();
  }

  Status ReadId(const char* key, TokenId* out) {
    constexpr uint64_t kNoToken = 0xFFFF'FFFF;  // some writers say "none" so
    KVRM_ASSIGN_OR_RETURN(const uint64_t id, file_.GetUint(key, kNoToken));
    if (id == kNoToken) return Ok();
    if (id >= spec_.tokens.size()) {
      return Invalid("key '" + std::string(key) + "' is " + std::to_string(id) +
                     ", must be below " + std::to_string(spec_.tokens.size()) +
                     ", the entries of " + kTokensKey);
    }
    *out = static_cast<TokenId>(id);
    return Ok();
  }

  Result<TokenizerSpec> ReadFlags() {
    // SentencePiece files that leave these out mean yes.
    const bool by_default = spec_.model == "llama";
    constexpr char kAddBos[] = "tokenizer.ggml.add_bos_token";
    KVRM_ASSIGN_OR_RETURN(spec_.add_bos, file_.GetBool(kAddBos, by_default));
    spec_.add_bos_unsaid = spec_.model == "gpt2" && file_.Find(kAddBos) == nullptr;
    KVRM_ASSIGN_OR_RETURN(spec_.add_eos, file_.GetBool("tokenizer.ggml.add_eos_token", false));
    KVRM_ASSIGN_OR_RETURN(spec_.add_space_prefix,
                          file_.GetBool("tokenizer.ggml.add_space_prefix", by_default));
    return std::move(spec_);
  }

  const GgufFile& file_;
  TokenizerSpec spec_;
};

}  // namespace

Result<TokenizerSpec> ReadTokenizerSpec(const GgufFile& file) { return SpecReader(file).Run(); }

}  // namespace kvrm
