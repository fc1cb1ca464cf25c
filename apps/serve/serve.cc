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
#include "server/request_log.h"
#include "server/server.h"
#include "server/service.h"
#include "session/frame_tracer.h"
#include "session/model_path.h"
#include "session/output_path.h"
#include "session/recorder.h"
#include "session/session.h"
#include "session/tokenizer_source.h"

namespace kvrm::cli {
namespace {

// Standard error: a log in which every line has one form.
class ServeLog {
 public:
  explicit ServeLog(LogFormat format) : format_(format) {}
  // One that has its form.
  void Line(std::string_view line) {
    output_.Write((format_ == LogFormat::kText ? "kvrm serve: " : "") + std::string(line));
  }
  void Text(std::string_view text) { Line(LogLine(format_, text, WallNowUs())); }
  // Said once at start, to whoever looks on.
  void Show(const std::string& text) {
    if (format_ == LogFormat::kJson) return Text(text);
    std::fprintf(stderr, "%s\n", text.c_str());
  }

 private:
  const LogFormat format_;
  LogOutput output_{STDERR_FILENO,
                    [this](std::string_view text) { return LogLine(format_, text, WallNowUs()); }};
};

}  // namespace

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
  config.log_format = values.Text("log-format") == "json" ? LogFormat::kJson : LogFormat::kText;
  ServeLog log(config.log_format);
  config.log = [&log](std::string_view line) { log.Line(line); };
  const auto log_text = [&log](std::string_view text) { log.Text(text); };
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
    log.Show(Banner(runtime, *model_path));
    if (!record_path.empty()) {
      auto made = StartRecord(record_path, runtime, options, log_text);
      if (!made.ok()) log_text(made.error().message + "; serving without a record");
      if (made.ok()) recorder = std::move(made).value();
    }
    if (trace_path.empty()) return;
    auto made = FrameTracer::Create(trace_path, *runtime.engine, log_text);
    if (!made.ok()) return log_text(made.error().message + "; serving without a trace");
    tracer = std::move(made).value();
    runtime.engine->SetObserver(tracer.get());
  };
  config.on_ready = [&log](const std::string& url) { log.Show("serving on " + url); };
  const Result<int> code = RunServer(config, options);
  if (recorder != nullptr) (void)recorder->Close();
  if (tracer != nullptr) (void)tracer->Close();  // the log has said what went wrong
  if (code.ok()) return *code;
  if (config.log_format == LogFormat::kText) return Failed(values, code.error());
  log.Text(code.error().message);
  return kExitFailed;
}

}  // namespace kvrm::cli
