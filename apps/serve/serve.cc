// kvrm serve: the HTTP server over one model, until SIGTERM or Ctrl-C.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "kvrm/commands.h"
#include "serve/request_defaults.h"
#include "server/log_output.h"
#include "server/server.h"
#include "session/frame_tracer.h"
#include "session/model_path.h"
#include "session/output_path.h"
#include "session/recorder.h"
#include "session/session.h"
#include "session/tokenizer_source.h"

namespace kvrm::cli {

int RunServe(const OptionValues& values) {
  const auto model_path = ModelPathOf(values);
  if (!model_path.ok()) return Failed(values, model_path.error());
  ServerConfig config;
  config.host = values.Text("host");
  config.port = static_cast<uint16_t>(values.Int("port"));
  config.alias = values.Text("alias").empty() ? ModelNameOf(*model_path) : values.Text("alias");
  config.strict_model = values.Flag("strict-model");
  const auto source = ChatTemplateSource(values, {});
  if (!source.ok()) return Failed(values, source.error());
  config.chat_template = *source;
  // Read once more at load; here, so that a broken one is told before the port is taken.
  if (const auto parsed = ChatTemplate::Parse(*source); !parsed.ok()) {
    return Failed(values, parsed.error());
  }
  if (const auto usable = RequestDefaultsOf(values); !usable.ok()) {
    return UsageError(values, usable.error().message);
  }
  const auto by_model = DefaultsOf(values, *model_path);
  if (!by_model.ok()) return Failed(values, by_model.error());
  const auto defaults = RequestDefaultsOf(values, SamplingBy(*by_model));
  if (!defaults.ok()) return Failed(values, defaults.error());
  config.defaults = *defaults;
  config.drain_timeout = std::chrono::seconds(values.Int("drain-seconds"));
  config.api_keys = values.Texts("api-key");
  config.api_key_file = values.Text("api-key-file");
  config.cors_origins = values.Texts("cors");
  const bool json = values.Text("log-format") == "json";
  config.log_format = json ? LogFormat::kJson : LogFormat::kText;
  LogOutput output(STDERR_FILENO);
  config.log = [&output, prefix = json ? "" : "kvrm serve: "](std::string_view line) {
    output.Write(prefix + std::string(line));
  };
  const std::string& trace_path = values.Text("frame-trace");
  if (const Status writable = FrameTracer::CheckPath(trace_path); !writable.ok()) {
    return Failed(values, writable.error());
  }
  const std::string& record_path = values.Text("record");
  if (const Status writable = CheckOutputPath("--record", record_path); !writable.ok()) {
    return Failed(values, writable.error());
  }
  RuntimeOptions options = RuntimeOptionsOf(values, *model_path);
  if (const Status taken = TakeFolderTokenizer(*by_model, &options); !taken.ok()) {
    return Failed(values, taken.error());
  }
  std::unique_ptr<FrameTracer> tracer;
  std::unique_ptr<RecordWriter> recorder;
  config.on_loaded = [&](const Runtime& runtime) {
    std::fprintf(stderr, "%s\n", Banner(runtime, *model_path).c_str());
    if (!record_path.empty()) {
      auto made = StartRecord(record_path, runtime, options, config.log);
      if (!made.ok()) config.log(made.error().message + "; serving without a record");
      if (made.ok()) recorder = std::move(made).value();
    }
    if (trace_path.empty()) return;
    auto made = FrameTracer::Create(trace_path, *runtime.engine, config.log);
    if (!made.ok()) return config.log(made.error().message + "; serving without a trace");
    tracer = std::move(made).value();
    runtime.engine->SetObserver(tracer.get());
  };
  config.on_ready = [](const std::string& url) {
    std::fprintf(stderr, "serving on %s\n", url.c_str());
  };
  const Result<int> code = RunServer(config, options);
  if (recorder != nullptr) (void)recorder->Close();
  if (tracer != nullptr) (void)tracer->Close();  // the log has said what went wrong
  return code.ok() ? *code : Failed(values, code.error());
}

}  // namespace kvrm::cli
