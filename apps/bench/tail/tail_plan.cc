#include "bench/tail/tail_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvrm::cli {
namespace {

constexpr uint64_t kVllmBytesOfAToken = 40'000;  // keys and values of the default model, amply

std::string Head(const char* name, const char* api, uint32_t seconds) {
  return fmt::format("name = \"{}\"\napi = \"{}\"\nduration-s = {}\nwarmup-s = {}\ndrain-s = 8\n",
                     name, api, seconds, std::min(seconds / 5, 4u));
}

// What a chat service sees: mostly short talk, some documents.
std::string MixedSources(double rate) {
  return fmt::format(
      "[talk]\narrivals = \"poisson\"\nrate = {}\nprompt-tokens = \"lognormal 120 0.8\"\n"
      "output-tokens = \"lognormal 90 0.6\"\n"
      "[documents]\narrivals = \"poisson\"\nrate = {}\nprompt-tokens = \"uniform 600 1500\"\n"
      "output-tokens = \"uniform 50 200\"\n",
      0.85 * rate, 0.15 * rate);
}

std::string TraceSource(double speed) {
  return fmt::format(
      "[conversations]\narrivals = \"trace\"\ntrace = \"{}\"\nspeed = {}\n"
      "prompt-tokens = \"trace\"\noutput-tokens = \"trace\"\n",
      kTailTrace, speed);
}

// Everything is due at once, and as many are open as there are slots. The warm-up is for the first
// prompts, which all stand at the beginning: what follows is the mix that a server is to keep up.
std::string CapacityHead(const char* name, const char* api, uint32_t seconds, uint32_t warmup,
                         uint32_t slots) {
  return fmt::format(
      "name = \"{}\"\napi = \"{}\"\nduration-s = {}\nwarmup-s = {}\ndrain-s = 0\nmax-open = {}\n",
      name, api, seconds, warmup, slots);
}

void Add(std::string name, TailSide side, std::vector<std::string> command,
         const std::vector<std::string>& flags, std::vector<TailServer>& servers) {
  command.insert(command.end(), flags.begin(), flags.end());
  servers.push_back({std::move(name), side, std::move(command)});
}

void AddLlamaServers(const TailSetup& setup, std::vector<TailServer>& servers) {
  if (setup.llama_server.empty()) return;
  const std::vector<std::string> command = {setup.llama_server,
                                            "-m",
                                            setup.model,
                                            "-np",
                                            std::to_string(setup.slots),
                                            "-c",
                                            std::to_string(uint64_t{setup.slots} * setup.ctx)};
  Add("llama-server", TailSide::kLlamaDefault, command, {}, servers);
  Add("llama-server -b 128", TailSide::kLlamaTuned, command,
      {"-b", "128", "-ub", "128", "-fa", "off"}, servers);
  Add("llama-server -b 128 -fa on", TailSide::kLlamaTuned, command,
      {"-b", "128", "-ub", "128", "-fa", "on"}, servers);
}

// As it comes, it takes 256 tokens a step.
void AddOpenVino(const TailSetup& setup, std::vector<TailServer>& servers) {
  if (setup.open_vino_driver.empty()) return;
  const std::vector<std::string> command = {setup.open_vino_driver,
                                            "-m",
                                            setup.model,
                                            "-t",
                                            std::to_string(setup.threads),
                                            "-np",
                                            std::to_string(setup.slots),
                                            "-c",
                                            std::to_string(setup.ctx)};
  const size_t first = servers.size();
  Add("OpenVINO GenAI", TailSide::kOpenVino, command, {}, servers);
  for (const char* budget : {"128", "64"}) {
    Add(fmt::format("OpenVINO GenAI, {} a step", budget), TailSide::kOpenVino, command,
        {"-b", budget}, servers);
  }
  for (size_t i = first; i < servers.size(); ++i) servers[i].piped = true;
}

// It would take nine tenths of the machine's memory, and does not start where they are not free.
void AddVllm(const TailSetup& setup, std::vector<TailServer>& servers) {
  if (setup.vllm.empty() || setup.vllm_model.empty()) return;
  const std::vector<std::string> command = {
      setup.vllm,
      "serve",
      setup.vllm_model,
      "--max-model-len",
      std::to_string(setup.ctx),
      "--max-num-seqs",
      std::to_string(setup.slots),
      "--kv-cache-memory-bytes",
      std::to_string(kVllmBytesOfAToken * setup.slots * setup.ctx)};
  Add("vLLM", TailSide::kVllm, command, {}, servers);
  Add("vLLM, 128 a step", TailSide::kVllm, command, {"--max-num-batched-tokens", "128"}, servers);
}

}  // namespace

std::vector<TailServer> TailServers(const TailSetup& setup) {
  const std::string slots = std::to_string(setup.slots), ctx = std::to_string(setup.ctx);
  const auto own = [&](std::string name, TailSide side, const char* budget) {
    return TailServer{std::move(name),
                      side,
                      {setup.own_program, "serve", "-m", setup.model, "--slots", slots, "--ctx",
                       ctx, "--kv", setup.kv, "--max-itl-ms", budget}};
  };
  std::vector<TailServer> servers = {own("kvrm", TailSide::kOurs, "auto"),
                                     own("kvrm, no budget", TailSide::kOursWithoutBudget, "0")};
  AddLlamaServers(setup, servers);
  AddOpenVino(setup, servers);
  AddVllm(setup, servers);
  return servers;
}

std::string InjectedScenario(uint32_t seconds) {
  return Head("a: 8 streams, a prompt of 1,500 tokens every 8 s", "completions", seconds) +
         "[streams]\narrivals = \"closed\"\nclients = 8\nprompt-tokens = 64\n"
         "output-tokens = \"uniform 300 500\"\n"
         "[injected]\narrivals = \"constant\"\nrate = 0.125\n"
         "start-s = 2\nprompt-tokens = 1500\noutput-tokens = 16\n";
}

std::string MixedScenario(uint32_t seconds, double rate) {
  return Head("b: mixed chat at 60 % of the slower side's capacity", "chat", seconds) +
         MixedSources(rate);
}

std::string TraceScenario(uint32_t seconds, double speed) {
  return Head("c: Azure conversations, peak minute, at 60 % of our capacity", "completions",
              seconds) +
         TraceSource(speed);
}

std::string MixedCapacity(uint32_t seconds, uint32_t slots) {
  return CapacityHead("capacity of mixed chat", "chat", seconds, seconds / 3, slots) +
         MixedSources(1000);
}

std::string TraceCapacity(uint32_t seconds, uint32_t slots) {
  return CapacityHead("capacity of Azure conversations", "completions", seconds, seconds / 2,
                      slots) +
         TraceSource(1000);
}

double RateAtShare(double share, double tokens_per_s, const LoadRun& run) {
  double tokens = 0;
  for (const RequestRecord& record : run.records) tokens += record.asked_output_tokens;
  return tokens == 0 ? 0 : share * tokens_per_s * static_cast<double>(run.records.size()) / tokens;
}

double TraceRate(const Trace& trace) {
  if (trace.rows.size() < 2) return 0;
  const int64_t span_us = trace.rows.back().arrival_us - trace.rows.front().arrival_us;
  return span_us <= 0
             ? 0
             : static_cast<double>(trace.rows.size() - 1) * 1e6 / static_cast<double>(span_us);
}

}  // namespace kvrm::cli
