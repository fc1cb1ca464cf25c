// kvrm generate: one or more prompts, one batch, text or JSON lines.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "kvrm/commands.h"
#include "options/read_all.h"
#include "session/frame_tracer.h"
#include "session/generation.h"
#include "session/interrupt.h"
#include "session/output_path.h"
#include "session/recorder.h"
#include "session/session.h"

namespace kvrm::cli {
namespace {

// The prompts in the order that the command documents: -p, then -f.
Result<std::vector<std::string>> ReadPrompts(const OptionValues& values) {
  std::vector<std::string> prompts = values.Texts("prompt");
  for (const std::string& path : values.Texts("file")) {
    KVRM_ASSIGN_OR_RETURN(std::string text, ReadAll("--file", path));
    // A file's last line end is no part of what its author says to the model; raw text is exact.
    if (values.Flag("chat") && text.ends_with('\n')) text.pop_back();
    prompts.push_back(std::move(text));
  }
  return prompts;
}

struct Request {
  std::vector<TokenId> prompt;
  std::string refused;  // why it never started
};

Request MakeRequest(const Session& session, const OptionValues& values, const std::string& text) {
  Request request;
  if (!values.Flag("chat")) {
    request.prompt = EncodePrompt(*session.tokenizer, text);
    return request;
  }
  std::vector<ChatMessage> messages;
  if (!values.Text("system").empty()) messages.push_back({"system", values.Text("system")});
  messages.push_back({"user", text});
  auto ids = EncodeChat(session, messages);
  if (ids.ok()) {
    request.prompt = std::move(ids).value();
  } else {
    request.refused = ids.error().message;
  }
  return request;
}

GenerateRequest EngineRequest(const Session& session, const OptionValues& values,
                              const std::vector<TokenId>& prompt) {
  GenerateRequest request;
  request.prompt = prompt;
  request.sampling =
      SamplingOf(values, SamplingBy(session.defaults)).value();  // RunGenerate has looked at them
  request.sampling.num_logprobs = static_cast<uint32_t>(values.Int("logprobs"));
  request.max_new_tokens = static_cast<uint32_t>(std::max<int64_t>(0, values.Int("max-tokens")));
  if (!values.Flag("ignore-eos")) request.end_tokens = session.tokenizer->end_tokens();
  return request;
}

boost::json::object TimingsJson(const RequestTimings& timings) {
  const double decode_s = static_cast<double>(timings.decode_us) / 1e6;
  boost::json::object json{
      {"queued_us", timings.queued_us},         {"prompt_us", timings.prompt_us},
      {"decode_us", timings.decode_us},         {"longest_gap_us", timings.longest_gap_us},
      {"prompt_tokens", timings.prompt_tokens}, {"output_tokens", timings.output_tokens},
      {"preemptions", timings.preemptions}};
  // Over the gaps between tokens: the first one belongs to the prompt.
  if (timings.output_tokens > 1 && decode_s > 0) {
    json["decode_tokens_per_s"] = (timings.output_tokens - 1) / decode_s;
  }
  return json;
}

std::string JsonLine(const std::vector<TokenId>& prompt, const Generation& generation) {
  boost::json::object json;
  json["prompt_tokens"] = boost::json::array(prompt.begin(), prompt.end());
  json["tokens"] = boost::json::array(generation.tokens().begin(), generation.tokens().end());
  json["text"] = generation.text();
  json["finish_reason"] = StopReasonName(generation.finish().reason);
  if (generation.failed()) json["error"] = SanitizeUtf8(generation.finish().message);
  json["timings"] = TimingsJson(generation.finish().timings);
  if (!generation.top().empty()) {
    boost::json::array places;
    for (const auto& top : generation.top()) {
      boost::json::array pairs;
      for (const TokenLogprob& entry : top) {
        pairs.push_back(boost::json::array{entry.id, entry.logprob});
      }
      places.push_back(std::move(pairs));
    }
    json["logprobs"] = std::move(places);
  }
  return boost::json::serialize(json);
}

bool Write(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

// Prints finished requests in the order given, each as soon as all before it have ended.
class OrderedOutput {
 public:
  OrderedOutput(const OptionValues& values, const std::vector<Request>& requests,
                const std::vector<std::unique_ptr<Generation>>& generations)
      : values_(values), requests_(requests), generations_(generations) {}

  // False when standard output is gone.
  bool PrintFinished() {
    while (writable_ && next_ < generations_.size() && generations_[next_]->finished()) {
      Print(next_++);
    }
    return writable_;
  }
  void set_broken() { writable_ = false; }
  bool writable() const { return writable_; }

 private:
  void Print(size_t index) {
    const Generation& generation = *generations_[index];
    if (values_.Flag("json")) {
      writable_ = Write(JsonLine(requests_[index].prompt, generation) + "\n");
    } else if (generations_.size() == 1) {
      writable_ = Write("\n");  // the text has been streamed
    } else {
      writable_ = Write("--- " + std::to_string(index + 1) + "\n" + generation.text() + "\n");
    }
    if (generation.failed()) {
      const std::string where =
          generations_.size() == 1 ? "" : "prompt " + std::to_string(index + 1) + ": ";
      Failed(values_, {ErrorKind::kInvalidInput, where + generation.finish().message});
    }
  }

  const OptionValues& values_;
  const std::vector<Request>& requests_;
  const std::vector<std::unique_ptr<Generation>>& generations_;
  size_t next_ = 0;
  bool writable_ = true;
};

// Prints the frames of the first steps, as their programs have just replayed them, and hands each
// to the trace, if there is one.
class FrameWatcher final : public StepObserver {
 public:
  FrameWatcher(const KvGeometry& geometry, int64_t num_steps, FrameTracer* tracer)
      : geometry_(geometry), left_(num_steps), tracer_(tracer) {}
  void OnStep(const StepPlan& plan, const FrameView& frame, const StepResult& result) override {
    if (left_-- > 0) std::fputs(DumpFrame(geometry_, frame).c_str(), stderr);
    if (tracer_ != nullptr) tracer_->OnStep(plan, frame, result);
  }

 private:
  const KvGeometry& geometry_;
  int64_t left_;
  FrameTracer* const tracer_;
};

// Runs all requests in one batch. Done when each of them ended well and was printed.
int RunBatch(Session& session, const OptionValues& values, const std::vector<Request>& requests) {
  std::vector<std::unique_ptr<Generation>> generations;
  OrderedOutput output(values, requests, generations);
  std::function<void(std::string_view)> stream;
  if (requests.size() == 1 && !values.Flag("json")) {
    stream = [&output](std::string_view text) {
      if (!Write(text)) output.set_broken();
    };
  }
  std::vector<RequestId> ids;
  Engine& engine = *session.runtime->engine;
  for (const Request& request : requests) {
    generations.push_back(std::make_unique<Generation>(*session.tokenizer, stream));
    if (!request.refused.empty()) {
      generations.back()->Refuse(InvalidInput(request.refused));
    } else if (const auto id = Start(engine, EngineRequest(session, values, request.prompt),
                                     *generations.back())) {
      ids.push_back(*id);
    }
  }
  const bool to_the_end =
      RunToEnd(engine, generations, ids, [&output] { return output.PrintFinished(); });
  output.PrintFinished();
  if (!output.writable()) return OutputFailed(values);
  if (!to_the_end) return Failed(values, Unavailable("interrupted"));
  const bool all_well = std::none_of(generations.begin(), generations.end(),
                                     [](const auto& generation) { return generation->failed(); });
  return all_well ? kExitDone : kExitFailed;
}

// The record that the options ask for; nullptr where they ask for none.
Result<std::unique_ptr<RecordWriter>> RecordOf(const OptionValues& values, const Session& session) {
  if (values.Text("record").empty()) return std::unique_ptr<RecordWriter>();
  return StartRecord(
      values.Text("record"), *session.runtime, RuntimeOptionsOf(values, session.model_path),
      [&values](std::string_view line) { (void)Failed(values, Unavailable(std::string(line))); });
}

// Before a model is loaded for them.
Status CheckOutputs(const OptionValues& values) {
  KVRM_RETURN_IF_ERROR(FrameTracer::CheckPath(values.Text("frame-trace")));
  return CheckOutputPath("--record", values.Text("record"));
}

}  // namespace

int RunGenerate(const OptionValues& values) {
  if (values.Texts("prompt").empty() && values.Texts("file").empty()) {
    return UsageError(values, "no prompt: give -p TEXT, -f FILE or -f -");
  }
  if (values.Int("logprobs") > 0 && !values.Flag("json")) {
    return UsageError(values, "--logprobs needs --json");
  }
  const auto prompts = ReadPrompts(values);
  if (!prompts.ok()) return Failed(values, prompts.error());
  if (const Status writable = CheckOutputs(values); !writable.ok()) {
    return Failed(values, writable.error());
  }
  if (const auto sampling = SamplingOf(values); !sampling.ok()) {
    return UsageError(values, sampling.error().message);
  }
  auto session = OpenSession(values, values.Flag("chat") ? ChatUse::kRequired : ChatUse::kNone);
  if (!session.ok()) return Failed(values, session.error());
  CatchInterrupts();
  std::vector<Request> requests;
  for (const std::string& prompt : *prompts) {
    requests.push_back(MakeRequest(*session, values, prompt));
  }
  Engine& engine = *session->runtime->engine;
  const auto recorder = RecordOf(values, *session);
  if (!recorder.ok()) return Failed(values, recorder.error());
  std::unique_ptr<FrameTracer> tracer;
  if (!values.Text("frame-trace").empty()) {
    auto made = FrameTracer::Create(
        values.Text("frame-trace"), engine,
        [&values](std::string_view line) { (void)Failed(values, Unavailable(std::string(line))); });
    if (!made.ok()) return Failed(values, made.error());
    tracer = std::move(made).value();
  }
  FrameWatcher watcher(engine.pager().geometry(), values.Int("frames"), tracer.get());
  engine.SetObserver(&watcher);
  const int code = RunBatch(*session, values, requests);
  engine.SetObserver(nullptr);
  const bool traced = tracer == nullptr || tracer->Close();
  const bool recorded = *recorder == nullptr || (*recorder)->Close().ok();
  return traced && recorded ? code : kExitFailed;
}

}  // namespace kvrm::cli
