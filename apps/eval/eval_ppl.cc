// kvrm eval ppl: perplexity over windows of a text. The method is llama-perplexity's: the text is
// tokenised whole, cut into windows that do not overlap, and in each window the tokens after the
// first half are predicted from all that stand before them.
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "eval/perplexity.h"
#include "kvrm/commands.h"
#include "model/gguf.h"
#include "options/read_all.h"
#include "session/model_path.h"
#include "session/progress_bar.h"
#include "session/session.h"
#include "session/tokenizer_source.h"
#include "steps/step_driver.h"
#include "text/tokenizer.h"

namespace kvrm::cli {
namespace {

// Rows of logits that one step can give; the executor's buffer is sized by its slots.
constexpr uint32_t kLogitRows = 64;

Result<std::vector<TokenId>> ReadTokens(const std::string& path, const Tokenizer& tokenizer) {
  KVRM_ASSIGN_OR_RETURN(const std::string text, ReadAll("--file", path));
  std::vector<TokenId> ids = tokenizer.Encode(text, SpecialTokens::kAsText);
  const TokenizerSpec& spec = tokenizer.spec();
  if (spec.add_bos && spec.bos >= 0) ids.insert(ids.begin(), spec.bos);
  return ids;
}

class Evaluation {
 public:
  Evaluation(StepDriver& driver, const Tokenizer& tokenizer, uint32_t ctx)
      : driver_(driver), tokenizer_(tokenizer), ctx_(ctx) {}

  // Adds the second half of one window [ctx]. Errors: logits that are not finite.
  Status AddWindow(std::vector<TokenId> window) {
    const TokenizerSpec& spec = tokenizer_.spec();
    if (spec.add_bos && spec.bos >= 0) window[0] = spec.bos;
    const SeqId seq = driver_.OpenSequence();
    const std::span<const TokenId> tokens = window;
    // Token i is predicted by row i - 1: rows [half, ctx - 1) are counted, the last is not needed.
    const uint32_t half = ctx_ / 2;
    driver_.Prefill(seq, tokens.first(half), /*want_last=*/false);
    Status status = Ok();
    const uint32_t step_rows = std::min(driver_.max_logits(), driver_.max_rows());
    for (uint32_t first = half; first + 1 < ctx_ && status.ok(); first += step_rows) {
      const uint32_t count = std::min(step_rows, ctx_ - 1 - first);
      const TokenRun run{seq, tokens.subspan(first, count), count};
      status = AddRows(driver_.Run({&run, 1}), tokens.subspan(first + 1, count));
    }
    driver_.CloseSequence(seq);
    return status;
  }
  const PerplexitySum& sum() const { return sum_; }

 private:
  Status AddRows(const StepResult& result, std::span<const TokenId> targets) {
    const uint32_t vocab = driver_.executor().info().vocab;
    for (size_t row = 0; row < targets.size(); ++row) {
      if (result.row_status[row] != kRowOk) {
        return InvalidInput("logits are not finite; token " + std::to_string(targets[row]) +
                            " cannot be scored");
      }
      sum_.Add(
          NegativeLogLikelihood({result.logits + row * result.logits_stride, vocab}, targets[row]));
    }
    return Ok();
  }

  StepDriver& driver_;
  const Tokenizer& tokenizer_;
  const uint32_t ctx_;
  PerplexitySum sum_;
};

struct Prepared {
  std::string model_path;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<StepDriver> driver;
  std::vector<TokenId> tokens;
  uint32_t ctx = 0, windows = 0;
};

Result<Prepared> Prepare(const OptionValues& values) {
  Prepared prepared;
  prepared.ctx = static_cast<uint32_t>(values.Int("ctx"));
  KVRM_ASSIGN_OR_RETURN(prepared.model_path, ModelPathOf(values));
  KVRM_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(prepared.model_path));
  KVRM_ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecAt(prepared.model_path));
  KVRM_ASSIGN_OR_RETURN(prepared.tokenizer, Tokenizer::Create(std::move(spec)));
  KVRM_ASSIGN_OR_RETURN(prepared.tokens, ReadTokens(values.Text("file"), *prepared.tokenizer));
  const uint64_t available = prepared.tokens.size() / prepared.ctx;
  if (available == 0) {
    return InvalidInput("--file '" + values.Text("file") +
                        "': " + std::to_string(prepared.tokens.size()) +
                        " tokens do not fill one window of " + std::to_string(prepared.ctx));
  }
  const int64_t asked = values.Int("windows");
  prepared.windows = static_cast<uint32_t>(
      asked > 0 ? std::min(static_cast<uint64_t>(asked), available) : available);

  StepOptions options;
  options.weights = WeightsOf(values);
  options.kv_format = KvFormatOf(values);
  options.simd = SimdOf(values);
  options.num_threads = static_cast<uint32_t>(values.Int("threads"));
  options.max_slots = kLogitRows;
  options.max_seq_tokens = prepared.ctx;
  options.progress = ProgressBar("loading");
  KVRM_ASSIGN_OR_RETURN(prepared.driver, StepDriver::Open(*file, options));
  const uint32_t max_context = prepared.driver->model().config().max_context;
  if (prepared.ctx > max_context) {
    return InvalidInput("--ctx " + std::to_string(prepared.ctx) + ": the model's context is " +
                        std::to_string(max_context));
  }
  return prepared;
}

void PrintJson(const Prepared& prepared, const PerplexitySum& sum,
               const std::vector<double>& cumulative, double seconds) {
  const boost::json::object json{
      {"name", "eval ppl"},
      {"model", prepared.model_path},
      {"encoding", prepared.driver->model().encoding_summary()},
      {"executor", prepared.driver->executor().info().name},
      {"ctx", prepared.ctx},
      {"windows", prepared.windows},
      {"tokens_scored", sum.count()},
      {"ppl", sum.Perplexity()},
      {"ppl_error", sum.StandardError()},
      {"cumulative_ppl", boost::json::array(cumulative.begin(), cumulative.end())},
      {"seconds", seconds}};
  std::printf("%s\n", boost::json::serialize(json).c_str());
}

}  // namespace

int RunEvalPpl(const OptionValues& values) {
  if (values.Text("file").empty()) return UsageError(values, "no text: give -f FILE");
  const auto prepared = Prepare(values);
  if (!prepared.ok()) return Failed(values, prepared.error());
  const bool json = values.Flag("json");
  std::fprintf(stderr, "%s: %s; %zu tokens, %u windows of %u\n", prepared->model_path.c_str(),
               prepared->driver->model().encoding_summary().c_str(), prepared->tokens.size(),
               prepared->windows, prepared->ctx);
  Evaluation evaluation(*prepared->driver, *prepared->tokenizer, prepared->ctx);
  std::vector<double> cumulative;
  const auto begin = std::chrono::steady_clock::now();
  for (uint32_t window = 0; window < prepared->windows; ++window) {
    const auto first = prepared->tokens.begin() + ptrdiff_t{window} * prepared->ctx;
    const Status added = evaluation.AddWindow({first, first + prepared->ctx});
    if (!added.ok()) {
      return Failed(values, {added.error().kind, "window " + std::to_string(window + 1) + ": " +
                                                     added.error().message});
    }
    cumulative.push_back(evaluation.sum().Perplexity());
    if (!json) {
      std::printf("[%u]%.4f,", window + 1, cumulative.back());
      std::fflush(stdout);
    }
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  if (json) {
    PrintJson(*prepared, evaluation.sum(), cumulative, elapsed.count());
  } else {
    std::printf("\nperplexity %.4f +/- %.4f over %llu tokens in %.1f s\n", cumulative.back(),
                evaluation.sum().StandardError(),
                static_cast<unsigned long long>(evaluation.sum().count()), elapsed.count());
  }
  return kExitDone;
}

}  // namespace kvrm::cli
