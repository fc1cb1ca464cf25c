#include "session/session.h"

#include <fmt/format.h>
#include <charconv>
#include <cmath>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <random>
#include <utility>

#include "session/model_path.h"
#include "session/progress_bar.h"
#include "session/tokenizer_source.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace kvrm::cli {

RuntimeOptions RuntimeOptionsOf(const OptionValues& values, const std::string& model_path) {
  RuntimeOptions options;
  options.model_path = model_path;
  options.weights = WeightsOf(values);
  options.kv_format = KvFormatOf(values);
  options.num_threads = static_cast<uint32_t>(values.Int("threads"));
  options.max_slots = static_cast<uint32_t>(values.Int("slots"));
  options.ctx = static_cast<uint32_t>(values.Int("ctx"));
  options.kv_bytes = values.Bytes("kv-bytes");
  const int64_t max_itl_ms = values.Int("max-itl-ms");
  options.max_itl_us = max_itl_ms < 0 ? kAutoMaxItl : 1000 * max_itl_ms;
  options.kv_keep_bytes = values.Bytes("kv-keep");
  options.strict_shape = values.Flag("strict-shape");
  options.view = values.Text("view");
  const bool has_mode = FindOption("mode", values.command()) != nullptr;
  UseMode(values, has_mode ? *FindMode(values.Text("mode")) : Mode::kKvrm, options);
  options.chunk_rows = static_cast<uint32_t>(values.Int("chunk"));
  options.simd = SimdOf(values);
  options.progress =
      ProgressBar("loading " + std::filesystem::path(model_path).filename().string());
  return options;
}

// Where a mode cannot share, only who asks for the cache is told so.
void UseMode(const OptionValues& values, Mode mode, RuntimeOptions& options) {
  options.mode = mode;
  const bool default_cache = values.Source("prefix-cache") == ValueSource::kDefault;
  options.prefix_cache =
      values.Text("prefix-cache") == "on" && !(default_cache && TraitsOf(mode).slot_runs);
}

Status TakeFolderTokenizer(const GenerationDefaults& defaults, RuntimeOptions* options) {
  std::error_code error;
  if (!std::filesystem::is_directory(options->model_path, error)) return Ok();
  KVRM_ASSIGN_OR_RETURN(options->tokenizer, ReadTokenizerFolder(options->model_path));
  options->tokenizer->ends = defaults.end_tokens;
  return Ok();
}

Result<GenerationDefaults> DefaultsOf(const OptionValues& values, const std::string& path) {
  if (values.Text("generation-config") == "none") return GenerationDefaults{};
  KVRM_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
  KVRM_ASSIGN_OR_RETURN(GenerationDefaults defaults, ReadGenerationDefaults(*file));
  const Status checked = CheckSampling(SamplingBy(defaults));
  if (checked.ok()) return defaults;
  return Error{checked.error().kind, path + ": its generation config: " + checked.error().message +
                                         "; --generation-config none leaves it"};
}

SamplingParams SamplingBy(const GenerationDefaults& defaults) {
  SamplingParams sampling;
  const auto take = [](const auto& from, auto& to) {
    if (from) to = *from;
  };
  take(defaults.temperature, sampling.temperature);
  take(defaults.top_k, sampling.top_k);
  take(defaults.top_p, sampling.top_p);
  take(defaults.min_p, sampling.min_p);
  take(defaults.repetition_penalty, sampling.repetition_penalty);
  return sampling;
}

Result<Session> OpenSession(const OptionValues& values, ChatUse chat) {
  KVRM_ASSIGN_OR_RETURN(const std::string path, ModelPathOf(values));
  return OpenSession(values, RuntimeOptionsOf(values, path), chat);
}

Result<Session> OpenSession(const OptionValues& values, const RuntimeOptions& options,
                            ChatUse chat) {
  Session session;
  session.model_path = options.model_path;
  KVRM_ASSIGN_OR_RETURN(session.defaults, DefaultsOf(values, options.model_path));
  RuntimeOptions with_tokenizer = options;
  KVRM_RETURN_IF_ERROR(TakeFolderTokenizer(session.defaults, &with_tokenizer));
  KVRM_ASSIGN_OR_RETURN(session.runtime, LoadRuntime(with_tokenizer));
  const TokenizerSpec& spec = session.runtime->model->tokenizer_spec();
  KVRM_ASSIGN_OR_RETURN(session.tokenizer, Tokenizer::Create(spec));
  if (chat != ChatUse::kNone) {
    KVRM_ASSIGN_OR_RETURN(const std::string source, ChatTemplateSource(values, spec));
    if (source.empty() && chat == ChatUse::kRequired) {
      return Unsupported("model '" + session.model_path +
                         "' has no chat template (tokenizer.chat_template); --chat-template gives "
                         "it one");
    }
    if (!source.empty()) {
      KVRM_ASSIGN_OR_RETURN(session.chat_template, ChatTemplate::Parse(source));
    }
  }
  std::fprintf(stderr, "%s\n", Banner(*session.runtime, session.model_path).c_str());
  return session;
}

std::string Banner(const Runtime& runtime, const std::string& model_path) {
  const Engine& engine = *runtime.engine;
  std::string file = std::filesystem::path(model_path).filename().string();
  const std::string& name = runtime.model->config().name;
  if (!name.empty()) file += " (" + ForMessage(name) + ")";
  const int64_t max_itl_us = engine.config().max_itl_us;
  const std::string gap =
      max_itl_us == 0 ? "no gap budget" : fmt::format("gap budget {} ms", max_itl_us / 1000);
  std::string mode;
  if (runtime.mode != Mode::kKvrm) mode = fmt::format("; mode {}", TraitsOf(runtime.mode).name);
  if (runtime.strict_shape) mode += "; strict shape";
  if (runtime.view.window_tokens != 0) {
    mode += "; view " + ViewName(runtime.view);
    if (!engine.config().lossy_view.empty()) mode += " (lossy)";
  }
  return fmt::format(
      "{}: {}, {} of weights; KV {} = {} tokens; ctx {} x {} slots; {} threads, {}; {}{}", file,
      runtime.model->encoding_summary(), SizeText(runtime.model->weight_bytes()),
      SizeText(runtime.kv_bytes), engine.kv_tokens(), runtime.ctx, engine.config().max_slots,
      runtime.pool->num_threads(), engine.executor_info().name, gap, mode);
}

std::vector<TokenId> EncodePrompt(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids = tokenizer.Encode(text, SpecialTokens::kParse);
  AddStartToken(tokenizer, ids);
  return ids;
}

Result<std::vector<TokenId>> EncodeChat(const Session& session,
                                        const std::vector<ChatMessage>& messages) {
  RenderOptions options;
  options.now = std::time(nullptr);
  return kvrm::EncodeChat(*session.tokenizer, *session.chat_template, messages, std::move(options));
}

namespace {

// "15043+1.5", "2-100", as llama.cpp writes them.
Result<LogitBias> ParseLogitBias(const std::string& text) {
  LogitBias entry;
  const char* const end = text.data() + text.size();
  const auto [sign, bad_id] = std::from_chars(text.data(), end, entry.id);
  const bool signed_bias = end - sign >= 2 && (*sign == '+' || *sign == '-') && sign[1] != '-';
  if (bad_id == std::errc() && entry.id >= 0 && signed_bias) {
    const auto [stop, bad_bias] = std::from_chars(sign + 1, end, entry.bias);
    if (*sign == '-') entry.bias = -entry.bias;
    if (bad_bias == std::errc() && stop == end && std::abs(entry.bias) <= kMaxLogitBias) {
      return entry;
    }
  }
  return InvalidInput("--logit-bias '" + text +
                      "': takes a token id and a bias from -100 to 100, as in 15043+1.5");
}

void SetFloat(const OptionValues& values, std::string_view name, float& out) {
  if (values.Source(name) != ValueSource::kDefault) out = static_cast<float>(values.Float(name));
}

// -1 becomes the largest count: everything.
void SetCount(const OptionValues& values, std::string_view name, uint32_t& out) {
  if (values.Source(name) != ValueSource::kDefault) out = static_cast<uint32_t>(values.Int(name));
}

}  // namespace

Result<SamplingParams> SamplingOf(const OptionValues& values, SamplingParams base) {
  SetFloat(values, "temp", base.temperature);
  SetCount(values, "top-k", base.top_k);
  SetFloat(values, "top-p", base.top_p);
  SetFloat(values, "min-p", base.min_p);
  SetFloat(values, "typical", base.typical_p);
  SetFloat(values, "presence-penalty", base.presence_penalty);
  SetFloat(values, "frequency-penalty", base.frequency_penalty);
  SetFloat(values, "repeat-penalty", base.repetition_penalty);
  SetCount(values, "repeat-last-n", base.repetition_last_n);
  for (const std::string& text : values.Texts("logit-bias")) {
    KVRM_ASSIGN_OR_RETURN(const LogitBias entry, ParseLogitBias(text));
    base.logit_bias.push_back(entry);
  }
  const int64_t seed = values.Int("seed");
  base.seed = seed >= 0 ? static_cast<uint64_t>(seed) : std::random_device{}();
  KVRM_RETURN_IF_ERROR(CheckSampling(base));
  return base;
}

WeightChoice WeightsOf(const OptionValues& values) {
  const std::string& text = values.Text("weights");
  if (text == "f32") return WeightChoice::kF32;
  if (text == "q4") return WeightChoice::kQ4;
  if (text == "q8") return WeightChoice::kQ8;
  return WeightChoice::kAuto;
}

KvFormat KvFormatOf(const OptionValues& values) {
  const std::string& text = values.Text("kv");
  if (text == "f32") return KvFormat::kF32;
  if (text == "int8") return KvFormat::kInt8;
  return KvFormat::kF16;
}

SimdLevel SimdOf(const OptionValues& values) {
  const std::string& text = values.Text("simd");
  if (text == "portable") return SimdLevel::kPortable;
  if (text == "avx2") return SimdLevel::kAvx2;
  if (text == "amx") return SimdLevel::kAmx;
  if (text == "avx512") return SimdLevel::kAvx512;
  return SimdLevel::kAuto;
}

const char* StopReasonName(StopReason reason) {
  switch (reason) {
    case StopReason::kEnd:
      return "stop";
    case StopReason::kLength:
      return "length";
    case StopReason::kCancelled:
      return "cancelled";
    case StopReason::kError:
      return "error";
    case StopReason::kNone:
      break;
  }
  return "none";
}

}  // namespace kvrm::cli
