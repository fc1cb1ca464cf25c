// What `serve`, `chat` and `generate` share: a loaded model with its tokenizer, prompts as token
// ids, sampling options, one line that says what runs. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/loader.h"
#include "model/generation_defaults.h"
#include "options/option_values.h"
#include "session/size_text.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvrm::cli {

struct Session {
  std::string model_path;
  GenerationDefaults defaults;  // of the model, as far as --generation-config takes them
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatTemplate> chat_template;  // null unless asked for
};

enum class ChatUse : uint8_t { kNone, kIfAny, kRequired };

// Loads what -m names, as the options say, with a progress bar, and prints the banner to standard
// error. With kRequired a model without a (usable) chat template is an error.
Result<Session> OpenSession(const OptionValues& values, ChatUse chat);
// The same with other options of the runtime; `values` tell the chat template.
Result<Session> OpenSession(const OptionValues& values, const RuntimeOptions& options,
                            ChatUse chat);

// Model, encoding, KV bytes and tokens, context, threads: one line.
std::string Banner(const Runtime& runtime, const std::string& model_path);

// A raw prompt: control tokens are parsed, the start token is added where the model asks for it and
// the text does not begin with it.
std::vector<TokenId> EncodePrompt(const Tokenizer& tokenizer, std::string_view text);

// A conversation, rendered by the model's template; what users wrote is never parsed for control
// tokens. Requires: session.chat_template.
Result<std::vector<TokenId>> EncodeChat(const Session& session,
                                        const std::vector<ChatMessage>& messages);

// Requires: the command has the engine's options. With a progress bar where it can be seen.
// Mode kvrm where the command has no --mode.
RuntimeOptions RuntimeOptionsOf(const OptionValues& values, const std::string& model_path);
// The same in another mode, without what it cannot have and nobody asked for.
void UseMode(const OptionValues& values, Mode mode, RuntimeOptions& options);
// What the model at `path` says of sampling, unless --generation-config is none. Errors: values
// that are no sampling parameters.
Result<GenerationDefaults> DefaultsOf(const OptionValues& values, const std::string& path);
// The program's parameters, changed where the model says otherwise.
SamplingParams SamplingBy(const GenerationDefaults& defaults);
// Reads the tokenizer of a folder into `options`, whose model_path names it, with the end tokens of
// `defaults`; files have their own.
Status TakeFolderTokenizer(const GenerationDefaults& defaults, RuntimeOptions* options);
// `base`, changed where the user set an option; the seed always, drawn for --seed -1. Requires: the
// command has the sampling options. Errors: --logit-bias.
Result<SamplingParams> SamplingOf(const OptionValues& values, SamplingParams base = {});
WeightChoice WeightsOf(const OptionValues& values);
KvFormat KvFormatOf(const OptionValues& values);
SimdLevel SimdOf(const OptionValues& values);

const char* StopReasonName(StopReason reason);  // OpenAI's words

}  // namespace kvrm::cli
