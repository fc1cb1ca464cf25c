#include "options/option_table.h"

#include <cctype>
#include <cmath>

#include "base/check.h"

namespace kvrm::cli {
namespace {

constexpr double kMaxInt = 9007199254740992.0;  // 2^53: exact as a double
constexpr double kMaxTokens = 16777216.0;

constexpr CommandSpec kCommands[] = {
    {kServe, "serve", "", "Serve the model over HTTP, OpenAI-compatible.",
     "Answers POST /v1/chat/completions and /v1/completions (streamed or not), GET /v1/models, "
     "/health and /metrics until Ctrl-C or SIGTERM."},
    {kChat, "chat", "", "Talk to the model, turn by turn.",
     "Ctrl-C stops the answer, not the program. /clear forgets the conversation; /exit or Ctrl-D "
     "leaves. When standard input is no terminal, each line is one turn."},
    {kGenerate, "generate", "", "Answer one or more prompts and exit.",
     "All prompts (-p first, then -f, each in the order given) run in one batch. One prompt "
     "streams to standard output; several are printed in order. With --json each request is one "
     "line: prompt_tokens, tokens, text, finish_reason, timings, logprobs."},
    {kBatch, "batch", "IN.jsonl OUT.jsonl", "Answer a file of requests, offline.",
     "OpenAI's batch format: each line of IN has custom_id, method POST, url "
     "(/v1/chat/completions, "
     "/v1/completions or /v1/responses) and body; each line of OUT has custom_id with a response "
     "or "
     "an error, in the order in which they come. What OUT answers already is left out, so the same "
     "command goes on after it was stopped or killed. A bad line costs its own answer only."},
    {kTokenize, "tokenize", "", "Turn standard input into token ids.",
     "Prints one id and piece a line; with --ids only the ids, separated by blanks; with --decode "
     "it reads ids and writes their text. With --json-lines each line is a JSON string and becomes "
     "a "
     "line of ids in brackets."},
    {kTemplate, "template", "", "Show a conversation as the model reads it.",
     "Reads JSON from standard input: a list of messages, or an object with messages, tools, "
     "documents, add_generation_prompt and further variables of the template; writes the prompt. "
     "With --json-lines each line is a conversation and becomes {\"text\"} or {\"error\"}."},
    {kInspect, "inspect", "[FILE]",
     "Say what a model file holds and what memory it needs, or what a frame trace tells.",
     "Of a model: metadata, tensors by type, KV geometry with the superblock choice, memory for 1, "
     "8 "
     "and 32 sequences. Of a frame trace (.kvft): its frames and geometry; with --epoch one frame "
     "with its page tables; with --replay whether every frame keeps the laws; with --diff where it "
     "parts from another trace (exit code 1 when it does)."},
    {kModels, "models", "", "Say which models are here, and which tools/get-model gets.",
     "Models under names that -m takes: those of the user's cache, and those that -hf or another "
     "hub "
     "tool fetched; with size, family, types of tensors and path."},
    {kEvalPpl, "eval ppl", "", "Perplexity of a text, as llama-perplexity counts it.",
     "The whole text is tokenised at once, cut into windows of --ctx tokens without a start token; "
     "the second half of each window counts."},
    {kBenchDecode, "bench decode", "", "Time decode steps at a given batch and depth.",
     "-np distinct sequences of random tokens hold -d tokens each; then -n single-token steps are "
     "timed, greedy sampling included. Beside the figure stands its floor: the bytes of a step "
     "over the read bandwidth measured at that working-set size."},
    {kBenchPrefill, "bench prefill", "", "Time the prefill of one prompt.",
     "Beside the figure stands its floor: the operations of the prompt over the peak of vector "
     "arithmetic measured in the same run."},
    {kBenchOps, "bench ops", "", "Time each op of a step beside its floor.",
     "Runs decode steps as `bench decode` does (or, with -p, prompts), reads the clock between the "
     "ops of the program, and prints for each shape of op its calls, time, share of the step, "
     "floor (bytes over the bandwidth at the step's working set, or operations over the peak of "
     "vector arithmetic) and share of the floor."},
    {kBenchGrowth, "bench growth", "", "How a decode step grows with the tokens in the cache.",
     "One sequence of 512, 2,048, 8,192 and 32,768 tokens whose keys and values are a pattern, in "
     "turns; growth is time over time at 512 tokens, over the same of the bytes that a step reads: "
     "1 where a step takes as long as its bytes are many."},
    {kBenchVersus, "bench versus", "",
     "The same rows beside llama.cpp, ik_llama.cpp and OpenVINO GenAI, interleaved.",
     "Decode of B distinct streams with L tokens in the cache, prefill, time to ready and peak "
     "memory, here and with the rivals that `tools/rivals` installs. Each setting of a rival (file "
     "type, flash attention, "
     "format of keys and values, build, one thread or all) is screened; the fastest run in turn "
     "with kvrm. Prints for each row and family of rivals the ratio, the goal, the floors and the "
     "rival's command. A file type that loses more than 1 % of perplexity is shown, not counted."},
    {kBenchHeart, "bench heart", "", "Time pager and frame alone, against their goals.",
     "No model, no kernels: nanoseconds of each verb; edit + commit + publish against sequences "
     "and context; prefix match against the pool; and where pages lie after a million joins, forks "
     "and endings in a pool that is 90 % full, beside the usual free list of single pages."},
    {kBenchServe, "bench serve", "URL", "Put a workload on any OpenAI-compatible server.",
     "Streams completions as a workload file says (docs/load.md), open or closed loop, and prints "
     "TTFT, gaps, TPOT and end-to-end latency from the intended send times at p50 to max, goodput, "
     "tokens/s and errors by kind. URL is http://HOST[:PORT][/BASE]; without a path: /v1."},
    {kBenchReplay, "bench replay", "FILE.toml",
     "Put a workload on the engine itself, mode by mode.",
     "The load of `bench serve` in this process, without HTTP, in each mode (docs/modes.md): what "
     "its "
     "users would have seen, and what the mode reserved, kept in memory and can hold. With "
     "--strict-shape each mode also runs with all rows computed."},
    {kBenchTail, "bench tail", "", "The longest gaps beside other engines, in one sitting.",
     "Starts and stops the servers itself: kvrm with and without a gap budget, llama-server and "
     "OpenVINO GenAI as they come and tuned; streams with injected prompts, mixed chat and a "
     "trace's peak minute; prints each goal as met or missed. A run that others disturbed is "
     "repeated, twice at most; where kvrm's is still disturbed there is no verdict."},
    {kRecordShow, "record show", "FILE.kvrec", "Say what a record of a server holds.",
     "Settings, requests, steps, tokens, and whether the file is whole. A record holds the token "
     "ids of all prompts and answers (docs/record.md); they are printed only with --tokens."},
    {kRecordReplay, "record replay", "FILE.kvrec",
     "Run a record again: do the same commits and tokens come of it?",
     "Loads the model as it was loaded then, on as many threads as you like, and gives the engine "
     "the same events with the same readings of the clock. Exit code 1 at the first step that "
     "parts from the record, or whose entry was changed."},
    {kHelp, "help", "[COMMAND]", "Say how a command is used.",
     "--markdown, --man and --bash print all commands as docs/cli.md, a man page and a completion "
     "script."},
};

using enum OptionType;
using enum OptionScope;

constexpr uint32_t kJsonCommands = kGenerate | kInspect | kModels | kStepCommands | kBenchVersus |
                                   kBenchHeart | kBenchServe | kBenchReplay | kBenchTail |
                                   kRecordShow | kRecordReplay;
// Those that load a model as `serve` does.
constexpr uint32_t kInProcess = kEngineCommands | kBenchReplay;
// Those that put a workload on something.
constexpr uint32_t kLoadCommands = kBenchServe | kBenchReplay;
// Those whose user says how answers are made, and those that answer requests which may say it.
constexpr uint32_t kAskingCommands = kChat | kGenerate;
constexpr uint32_t kAnsweringCommands = kServe | kBatch;
constexpr uint32_t kSamplingCommands = kAskingCommands | kAnsweringCommands;
constexpr uint32_t kBenchCommands = kBenchDecode | kBenchPrefill | kBenchOps | kBenchGrowth |
                                    kBenchVersus | kBenchHeart | kLoadCommands | kBenchTail;
constexpr uint32_t kConfiguredCommands =
    kModelCommands | kModels | kBenchHeart | kBenchServe | kRecordShow;

// One row an option, in the order of `kvrm help`.
// clang-format off
constexpr OptionSpec kOptions[] = {
    // ---- the model and how it is held
    {"model", 'm', "", kText, kSetting, false, 0, 0, "", "", "FILE|NAME",
     "path, or the name of an installed model (`kvrm models`); default: the default model",
     kModelCommands},
    {"hf-repo", '\0', "-hf -hfr --hf", kText, kSetting, false, 0, 0, "", "", "ORG/REPO[@REV][:QUANT]",
     "model of a hub, fetched into the cache that hub tools share (docs/models.md)",
     kModelCommands},
    {"hf-revision", '\0', "--revision", kText, kSetting, false, 0, 0, "", "", "REV",
     "branch, tag or commit of -hf's repository; default: main", kModelCommands},
    {"weights", '\0', "", kChoice, kSetting, false, 0, 0, "auto|f32|q4|q8", "auto", "ENC",
     "weight encoding; auto is nearest to the file, f32 the exact oracle",
     kInProcess | kStepCommands},
    {"kv", '\0', "", kChoice, kSetting, false, 0, 0, "f16|int8|f32", "f16", "FMT",
     "format of keys and values; int8 halves what decoding reads, f32 is the oracle's",
     kInProcess | kStepCommands | kBenchTail},
    {"mode", '\0', "", kChoice, kSetting, false, 0, 0,
     "kvrm|pager|dynamic|static-lazy|static-live|static-bucket|static-full", "kvrm", "MODE",
     "how keys and values lie in memory and what steps read of them, for comparison (docs/modes.md)",
     kEngineCommands},
    {"view", '\0', "", kText, kSetting, false, 0, 0, "", "dense", "VIEW",
     "what of a sequence the decoder sees: dense, or sliding:W for the last W tokens alone, which "
     "changes answers unless the model asks for it (docs/modes.md)", kInProcess},
    {"strict-shape", '\0', "", kFlag, kSetting, false, 0, 0, "", "false", "",
     "compute all rows of a step's program, live or not, as a static backend must", kInProcess},
    {"kv-bytes", '\0', "", kBytes, kSetting, false, 0, 1125899906842624.0, "", "0", "SIZE",
     "memory for keys and values; 0: a quarter of what the cgroup allows", kInProcess},
    {"max-itl-ms", '\0', "", kInt, kSetting, false, 0, 3'600'000, "auto", "auto", "MS|auto",
     "gap between two tokens of a stream that prompts are cut for; 0: none; auto: the larger of 50 ms "
     "and 1.5 decode steps of all slots at half the context",
     kInProcess & ~kBatch},
    {"max-itl-ms", '\0', "", kInt, kSetting, false, 0, 3'600'000, "auto", "0", "MS|auto",
     "gap between two tokens of a stream that prompts are cut for; 0: none; auto: the larger of 50 ms "
     "and 1.5 decode steps of all slots at half the context",
     kBatch},
    {"kv-keep", '\0', "", kBytes, kSetting, false, 0, 1125899906842624.0, "", "32MiB", "SIZE",
     "of cached keys and values, what stays when nothing has come for a second", kInProcess},
    {"prefix-cache", '\0', "", kChoice, kSetting, false, 0, 0, "on|off", "on", "on|off",
     "keep the keys and values of earlier prompts and answers for requests that begin alike",
     kInProcess},
    {"ctx", 'c', "--ctx-size --max-model-len", kInt, kSetting, false, 0, kMaxTokens, "", "0", "N",
     "tokens of one sequence; 0: the model's, capped at what fits", kInProcess},
    {"ctx", 'c', "--ctx-size", kInt, kSetting, false, 8, 65536, "", "512", "N",
     "tokens of a window", kEvalPpl},
    {"slots", '\0', "-np --parallel --max-num-seqs", kInt, kSetting, false, 1, 256, "", "32", "N",
     "sequences that run at once; more requests wait in a queue", kInProcess},
    {"threads", 't', "", kInt, kSetting, false, 0, 256, "", "0", "N",
     "worker threads; 0: the CPUs allowed to this process",
     kInProcess | kStepCommands | kBenchVersus | kRecordReplay},
    {"chunk", '\0', "", kInt, kSetting, false, 0, kMaxTokens, "", "0", "N",
     "most prompt tokens of a sequence in one step; 0: automatic", kInProcess},
    {"simd", '\0', "", kChoice, kSetting, false, 0, 0, "auto|portable|avx2|avx512|amx", "auto", "LEVEL",
     "kernels to use; auto: the best that this CPU offers",
     kInProcess | kStepCommands | kRecordReplay},
    // ---- what to generate
    {"prompt", 'p', "", kText, kInvocation, true, 0, 0, "", "", "TEXT",
     "a prompt; give it several times for several requests in one batch", kGenerate},
    {"file", 'f', "", kText, kInvocation, true, 0, 0, "", "", "FILE",
     "a prompt from a file, `-` for standard input", kGenerate},
    {"file", 'f', "", kText, kInvocation, false, 0, 0, "", "", "FILE",
     "the text to evaluate", kEvalPpl},
    {"chat", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "take each prompt as a user's message in the model's chat template", kGenerate},
    {"system", '\0', "-sys --system-prompt", kText, kSetting, false, 0, 0, "", "", "TEXT",
     "system message of a chat; default: the template's own", kAskingCommands},
    {"max-tokens", 'n', "--predict --n-predict", kInt, kSetting, false, -1, kMaxTokens, "", "128",
     "N", "most tokens to generate; -1 or 0: to the end of the context", kGenerate},
    {"max-tokens", 'n', "--predict --n-predict", kInt, kSetting, false, -1, kMaxTokens, "", "-1",
     "N", "most tokens of an answer; -1 or 0: to the end of the context", kChat},
    {"max-tokens", 'n', "--predict --n-predict", kInt, kSetting, false, -1, kMaxTokens, "", "-1",
     "N", "most tokens of an answer whose request names no number; -1 or 0: to the end of the context, of "
     "/v1/completions 16", kAnsweringCommands},
    {"logprobs", '\0', "", kInt, kInvocation, false, 0, 20, "", "0", "K",
     "with --json: the K likeliest tokens at each place", kGenerate},
    {"ignore-eos", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "go on past the end token", kAskingCommands},
    {"frames", '\0', "", kInt, kInvocation, false, 0, kMaxTokens, "", "0", "N",
     "print the frames of the first N steps to standard error", kGenerate},
    {"frame-trace", '\0', "", kText, kInvocation, false, 0, 0, "", "", "FILE.kvft",
     "write every step's frame to a trace that `kvrm inspect` reads", kGenerate | kServe},
    {"record", '\0', "", kText, kInvocation, false, 0, 0, "", "", "FILE.kvrec",
     "write everything that decides, token ids of users included, to a record that `kvrm record "
     "replay` runs again (docs/record.md)", kGenerate | kServe},
    // ---- sampling: what a request does not say for itself
    {"temp", '\0', "--temperature", kFloat, kSetting, false, 0, 100, "", "0.8", "T",
     "temperature; 0: greedy", kSamplingCommands},
    {"seed", 's', "", kInt, kSetting, false, -1, kMaxInt, "", "0", "S",
     "seed of the draws: same seed, same text; -1: a fresh one each run", kAskingCommands},
    {"seed", 's', "", kInt, kSetting, false, -1, kMaxInt, "", "-1", "S",
     "seed of requests that bring none: same seed, same text; -1: a fresh one for each",
     kAnsweringCommands},
    {"top-k", '\0', "", kInt, kSetting, false, 0, kMaxTokens, "", "40", "N",
     "draw from the N likeliest tokens; 0: off", kSamplingCommands},
    {"top-p", '\0', "", kFloat, kSetting, false, 0.0001, 1, "", "0.95", "P",
     "draw from the likeliest tokens that hold P of the mass; 1: off", kSamplingCommands},
    {"min-p", '\0', "", kFloat, kSetting, false, 0, 1, "", "0.05", "P",
     "drop tokens less likely than P times the likeliest; 0: off", kSamplingCommands},
    {"typical", '\0', "--typical-p", kFloat, kSetting, false, 0.0001, 1, "", "1", "P",
     "draw from the tokens that are about as surprising as the whole, P of the mass; 1: off",
     kSamplingCommands},
    {"generation-config", '\0', "", kChoice, kSetting, false, 0, 0, "auto|none", "auto", "auto|none",
     "auto: temperature, top-k, top-p, min-p, repeat-penalty and end tokens as the model's "
     "generation_config.json or general.sampling keys have them, where nothing else is said",
     kInProcess},
    {"repeat-penalty", '\0', "", kFloat, kSetting, false, 0.01, 100, "", "1", "X",
     "penalty on tokens that came lately; 1: off", kSamplingCommands},
    {"repeat-last-n", '\0', "", kInt, kSetting, false, -1, kMaxTokens, "", "64", "N",
     "how many tokens the repeat penalty looks back at; -1: all, prompt included", kSamplingCommands},
    {"presence-penalty", '\0', "", kFloat, kSetting, false, -2, 2, "", "0", "X",
     "what each token of the answer so far loses", kSamplingCommands},
    {"frequency-penalty", '\0', "", kFloat, kSetting, false, -2, 2, "", "0", "X",
     "what each token of the answer loses for every time that it came", kSamplingCommands},
    {"logit-bias", 'l', "", kText, kInvocation, true, 0, 0, "", "", "ID+BIAS",
     "add BIAS (-100 to 100) to a token's logit, as in 15043+1.5 or 2-100; give it several times",
     kSamplingCommands},
    // ---- serving
    {"host", '\0', "", kText, kSetting, false, 0, 0, "", "127.0.0.1", "ADDR",
     "address to listen on", kServe},
    {"port", '\0', "", kInt, kSetting, false, 0, 65535, "", "8080", "N",
     "port to listen on; 0: any free one, printed", kServe},
    {"alias", 'a', "--served-model-name", kText, kSetting, false, 0, 0, "", "", "NAME",
     "the model's id in answers and /v1/models; default: its file's name", kServe | kBatch},
    {"strict-model", '\0', "", kFlag, kSetting, false, 0, 0, "", "false", "",
     "refuse requests for another model with 404", kServe},
    {"drain-seconds", '\0', "", kInt, kSetting, false, 0, 86400, "", "10", "N",
     "after SIGTERM: seconds that open answers may go on", kServe},
    {"api-key", '\0', "", kText, kInvocation, true, 0, 0, "", "", "KEY",
     "answer only to requests with one of these keys; other users of this machine can read it in "
     "the process list: prefer --api-key-file",
     kServe},
    {"api-key-file", '\0', "", kText, kSetting, false, 0, 0, "", "", "FILE",
     "keys, one a line: KEY [name=NAME] [max-requests=N] [max-priority=N]", kServe},
    {"cors", '\0', "", kText, kInvocation, true, 0, 0, "", "", "ORIGIN",
     "let pages of ORIGIN (https://host:port, or * for all) read answers", kServe},
    {"log-format", '\0', "", kChoice, kSetting, false, 0, 0, "text|json", "text", "FORMAT",
     "one line a request on standard error: text or JSON", kServe},
    // ---- tokenize, template
    {"chat-template", '\0', "--chat-template-file", kText, kSetting, false, 0, 0, "", "", "FILE|NAME",
     "chat template in place of the model's own: a Jinja file, or one of chatml, gemma, llama2, "
     "llama3, mistral, phi3, vicuna, zephyr",
     kInProcess | kTemplate},
    {"date", '\0', "", kText, kInvocation, false, 0, 0, "", "", "YYYY-MM-DD",
     "the day that templates ask for; default: today, UTC", kTemplate},
    {"json-lines", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "read one JSON value a line, write one a line", kTokenize | kTemplate},
    {"ids", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "print ids alone, separated by blanks", kTokenize},
    {"decode", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "read ids, write their text", kTokenize},
    // ---- frame traces
    {"epoch", '\0', "", kInt, kInvocation, false, 0, kMaxInt, "", "0", "N",
     "of a frame trace: show the frame of epoch N with its page tables; 0: none", kInspect},
    {"replay", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "of a frame trace: apply all deltas, check each frame and the hash chain", kInspect},
    {"diff", '\0', "", kText, kInvocation, false, 0, 0, "", "", "FILE.kvft",
     "of a frame trace: the first epoch and field in which this one differs", kInspect},
    // ---- records
    {"entries", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "print each entry", kRecordShow},
    {"tokens", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "print each entry with its token ids: what users wrote and got", kRecordShow},
    // ---- measuring
    {"windows", '\0', "--chunks", kInt, kInvocation, false, -1, kMaxTokens, "", "-1", "N",
     "windows to evaluate; -1 or 0: all", kEvalPpl},
    {"slots", '\0', "-np --parallel", kInt, kInvocation, false, 1, 256, "", "1", "B",
     "distinct sequences in the batch", kBenchDecode | kBenchOps},
    {"depth", 'd', "", kInt, kInvocation, false, 0, kMaxTokens, "", "0", "N",
     "tokens that each sequence holds before the timed steps", kBenchDecode | kBenchOps},
    {"synthetic", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "fill these tokens' keys and values with a pattern instead of computing them; the model's "
     "context does not bound them then", kBenchDecode},
    {"n-gen", 'n', "", kInt, kInvocation, false, 1, kMaxTokens, "", "128", "N",
     "timed steps of a repeat", kBenchDecode | kBenchOps | kBenchGrowth},
    {"n-prompt", 'p', "", kInt, kInvocation, false, 1, kMaxTokens, "", "512", "N",
     "tokens of the prompt", kBenchPrefill},
    {"n-prompt", 'p', "", kInt, kInvocation, false, 0, 512, "", "0", "N",
     "time a prompt of so many tokens (one step) instead of decoding", kBenchOps},
    {"repetitions", 'r', "", kInt, kInvocation, false, 1, 1000, "", "5", "N",
     "timed repeats", kBenchDecode | kBenchPrefill | kBenchOps | kBenchGrowth},
    {"repetitions", 'r', "", kInt, kInvocation, false, 1, 100, "", "3", "N",
     "interleaved rounds after the screening round", kBenchVersus},
    {"rivals", '\0', "", kText, kSetting, false, 0, 0, "", "", "DIR",
     "where llama-bench, llama-batched-bench and the models lie; default: where `tools/rivals` "
     "puts them", kBenchVersus},
    {"rows", '\0', "", kText, kInvocation, false, 0, 0, "", "default", "LIST",
     "rows by key, with commas; `default` (five) or `all` (with long prompts, deep caches, `ready` and "
     "`memory`) stand for several", kBenchVersus},
    {"out", '\0', "", kText, kInvocation, false, 0, 0, "", "", "FILE.json",
     "keep the rows there as they are done; rows that it holds are not run again", kBenchVersus},
    {"plot", '\0', "", kText, kInvocation, false, 0, 0, "", "", "FILE.svg",
     "write the ratios and their goals as a picture", kBenchVersus},
    {"modes", '\0', "", kText, kInvocation, false, 0, 0, "", "all", "LIST",
     "which modes to run, with commas between; all: each of them (docs/modes.md)", kBenchReplay},
    {"seconds", '\0', "", kInt, kInvocation, false, 5, 3600, "", "30", "N",
     "how long each run lasts", kBenchTail},
    {"scenario", '\0', "", kChoice, kInvocation, false, 0, 0, "all|a|b|c", "all", "NAME",
     "a: streams and injected prompts; b: mixed chat; c: Azure's peak minute (needs --data)", kBenchTail},
    {"slots", '\0', "-np --parallel", kInt, kInvocation, false, 9, 256, "", "16", "N",
     "sequences that each server runs at once", kBenchTail},
    {"ctx", 'c', "--ctx-size", kInt, kInvocation, false, 2048, kMaxTokens, "", "4096", "N",
     "tokens of one sequence, of both servers", kBenchTail},
    {"rival", '\0', "", kText, kInvocation, false, 0, 0, "", "llama,openvino", "LIST",
     "beside whom, with commas between: llama (llama-server), openvino (OpenVINO GenAI in a process "
     "of its own, without HTTP), vllm; the last two in scenario a alone", kBenchTail},
    {"rivals", '\0', "", kText, kSetting, false, 0, 0, "", "", "DIR",
     "where the rivals lie; default: where `tools/rivals` puts them", kBenchTail},
    {"quick", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "smaller sizes: seconds, not minutes", kBenchHeart},
    {"part", '\0', "", kChoice, kInvocation, false, 0, 0, "all|verbs|steps|match|churn", "all", "PART",
     "what to measure; a goal of another part is not measured", kBenchHeart},
    {"workload", 'w', "", kText, kInvocation, false, 0, 0, "", "", "FILE.toml",
     "which requests are due when (docs/load.md)", kBenchServe},
    {"set", '\0', "", kText, kInvocation, true, 0, 0, "", "", "KEY=VALUE",
     "a value of the workload in place of the file's; KEY or SOURCE.KEY", kLoadCommands},
    {"speed", '\0', "", kFloat, kInvocation, false, 0.000001, 1000000, "", "1", "X",
     "multiplies the rate of all open arrivals, of traces too", kLoadCommands},
    {"data", '\0', "", kText, kSetting, false, 0, 0, "", "", "DIR",
     "serve: where traces are looked up that do not lie beside the workload; versus: where "
     "wikitext2/wiki.test.raw lies, by which the rivals' files are judged",
     kLoadCommands | kBenchTail | kBenchVersus},
    {"model-id", '\0', "", kText, kInvocation, false, 0, 0, "", "", "NAME",
     "model to ask for; default: the first that the server lists", kBenchServe},
    {"header", '\0', "", kText, kInvocation, true, 0, 0, "", "", "'NAME: VALUE'",
     "a header of each request", kBenchServe},
    {"server-pid", '\0', "", kInt, kInvocation, false, 0, kMaxInt, "", "0", "PID",
     "the server's process, if it runs here: its CPU time is shown, and is not others'; 0: none",
     kBenchServe},
    {"samples", '\0', "", kText, kInvocation, false, 0, 0, "", "", "FILE.jsonl",
     "write every request's times, one JSON line each", kLoadCommands},
    {"html", '\0', "", kText, kInvocation, false, 0, 0, "", "", "FILE.html",
     "write one self-contained page with plots", kLoadCommands | kBenchTail},
    {"max-others", '\0', "", kFloat, kSetting, false, 0, 100, "", "5", "PCT",
     "share of the CPU taken by others above which a run is marked noisy", kBenchCommands},
    // ---- for all
    {"json", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "print JSON instead of text", kJsonCommands},
    {"markdown", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "print all commands as Markdown", kHelp},
    {"man", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "print all commands as a man page", kHelp},
    {"bash", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "print a completion script for bash", kHelp},
    {"config", '\0', "", kText, kInvocation, false, 0, 0, "", "", "FILE",
     "settings from a TOML file, `name = value` a line", kConfiguredCommands},
    {"print-config", '\0', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "print the settings in force and where each comes from, then exit", kConfiguredCommands},
    {"help", 'h', "", kFlag, kInvocation, false, 0, 0, "", "", "",
     "say how this command is used", kConfiguredCommands | kHelp},
};
// clang-format on

std::string Number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::span<const CommandSpec> CommandTable() { return kCommands; }
std::span<const OptionSpec> OptionTable() { return kOptions; }

const CommandSpec* FindCommand(std::string_view name) {
  for (const CommandSpec& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

const OptionSpec* FindOption(std::string_view name, CommandBit command) {
  for (const OptionSpec& option : kOptions) {
    if (option.name == name && (option.commands & command) != 0) return &option;
  }
  return nullptr;
}

bool IsSettingName(std::string_view name) {
  for (const OptionSpec& option : kOptions) {
    if (option.name == name && option.scope == OptionScope::kSetting) return true;
  }
  return false;
}

std::string EnvironmentName(const OptionSpec& option) {
  if (option.scope == OptionScope::kInvocation) return "";
  std::string name = "KVRM_";
  for (char c : option.name) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string Spellings(const OptionSpec& option) {
  std::string text;
  if (option.letter != '\0') text = std::string("-") + option.letter + ", ";
  text += "--" + std::string(option.name);
  for (const std::string& alias : Words(option.aliases)) text += ", " + alias;
  return text;
}

std::string ValueRule(const OptionSpec& option) {
  switch (option.type) {
    case OptionType::kFlag:
      return "no value";
    case OptionType::kInt:
      return "a whole number, " + Number(option.min) + " to " + Number(option.max) +
             (option.choices.empty() ? "" : ", or " + std::string(option.choices));
    case OptionType::kFloat:
      return "a number, " + Number(option.min) + " to " + Number(option.max);
    case OptionType::kBytes:
      return "a size such as 512MiB or 8GiB, at most 1PiB";
    case OptionType::kText:
      return "text";
    case OptionType::kChoice: {
      std::string text = "one of ";
      for (char c : option.choices) text += c == '|' ? std::string(", ") : std::string(1, c);
      return text;
    }
  }
  CheckFailed("option.type", "an option's type is one of OptionType", __FILE__, __LINE__);
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace kvrm::cli
