#include "server/read_routes.h"

#include <utility>

#include "base/check.h"
#include "server/http_error.h"
#include "server/json_writer.h"
#include "server/openapi.h"
#include "server/text_routes.h"

namespace kvrm {
namespace {

using Answer = std::variant<ReadAnswer, ApiError>;

constexpr std::string_view kPrometheusType = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::string_view kIcon =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 4 4\">"
    "<path d=\"M0 0h1v4H0zM2 1h1v1H2zM3 0h1v1H3zM1 2h1v1H1zM2 3h1v1H2z\"/></svg>";
constexpr std::string_view kOk = "{\"status\":\"ok\"}";

Answer Json(std::string body) { return ReadAnswer{kJsonType, std::move(body)}; }

Answer Ready(const ReadContext& context) {
  if (context.phase != ServerPhase::kReady) return NotReadyError(context.phase);
  context.service->Tick(SteadyNowUs());
  if (context.service->stalled()) {
    return HttpError(503, "the engine makes no progress", "stalled");
  }
  return Json(std::string(kOk));
}

std::string VersionBody() {
  std::string out;
  JsonWriter(out).BeginObject().Key("version").String(KVRM_VERSION).EndObject();
  return out;
}

// Made once: it takes as long as some steps do.
const std::string& OpenApi() {
  static const std::string body = OpenApiBody(KVRM_VERSION);
  return body;
}

// llama-server's /props, as far as it means something here. `params` are the defaults of fields
// that a request leaves out.
std::string PropsBody(const Service& service) {
  const EngineConfig& engine = service.engine().config();
  const RequestDefaults& defaults = service.config().defaults;
  const SamplingParams& sampling = defaults.sampling;
  const TokenizerSpec& spec = service.encoder().tokenizer().spec();
  std::string out;
  JsonWriter json(out);
  json.BeginObject().Key("default_generation_settings").BeginObject();
  json.Key("n_ctx").Uint(engine.max_seq_tokens).Key("params").BeginObject();
  json.Key("seed").Int(defaults.seed ? static_cast<int64_t>(*defaults.seed) : -1);
  json.Key("n_predict").Int(defaults.max_tokens ? int64_t{*defaults.max_tokens} : -1);
  json.Key("temperature").Float(sampling.temperature).Key("top_k").Uint(sampling.top_k);
  json.Key("top_p").Float(sampling.top_p).Key("min_p").Float(sampling.min_p);
  json.Key("typical_p").Float(sampling.typical_p);
  json.Key("repeat_penalty").Float(sampling.repetition_penalty);
  json.Key("repeat_last_n").Uint(sampling.repetition_last_n);
  json.Key("presence_penalty").Float(sampling.presence_penalty);
  json.Key("frequency_penalty").Float(sampling.frequency_penalty).EndObject().EndObject();
  json.Key("total_slots").Uint(engine.max_slots);
  json.Key("model_alias").String(service.config().model);
  json.Key("chat_template").String(SanitizeUtf8(spec.chat_template));
  json.Key("bos_token").String(TokenText(service.encoder().tokenizer(), spec.bos));
  json.Key("eos_token").String(TokenText(service.encoder().tokenizer(), spec.eos));
  json.Key("modalities").BeginObject().Key("vision").Bool(false).Key("audio").Bool(false);
  json.EndObject().Key("build_info").String("kvrm " KVRM_VERSION).EndObject();
  return out;
}

// Which sequence holds which slot is the engine's own business: the busy ones are listed first.
Answer Slots(const RouteMatch& match, const Service& service) {
  const EngineConfig& engine = service.engine().config();
  const uint32_t running = service.engine().Metrics().running;
  if (match.fail_on_no_slot && running >= engine.max_slots) {
    return HttpError(503, "all " + std::to_string(engine.max_slots) + " slots are busy", "no_slot");
  }
  std::string out;
  JsonWriter json(out);
  json.BeginArray();
  for (uint32_t i = 0; i < engine.max_slots; ++i) {
    json.BeginObject().Key("id").Uint(i).Key("n_ctx").Uint(engine.max_seq_tokens);
    json.Key("is_processing").Bool(i < running).EndObject();
  }
  json.EndArray();
  return Json(std::move(out));
}

Answer Model(const RouteMatch& match, const Service& service) {
  if (match.model == service.config().model) return Json(service.ModelJson());
  ApiError error =
      HttpError(404, "the model does not exist, only '" + service.config().model + "' is served",
                "model_not_found");
  error.param = "model";
  return error;
}

}  // namespace

Answer AnswerRead(const RouteMatch& match, const ReadContext& context) {
  switch (match.route) {
    case Route::kHealth:
    case Route::kReady:
      return Ready(context);
    case Route::kLive:
      return Json(std::string(kOk));
    case Route::kVersion:
      return Json(VersionBody());
    case Route::kOpenApi:
      return Json(OpenApi());
    case Route::kMetrics:
      return ReadAnswer{kPrometheusType,
                        MetricsText(context.counters, context.phase, context.service)};
    case Route::kIcon:
      return ReadAnswer{kIconType, std::string(kIcon)};
    case Route::kModels:
      return Json(context.service->ModelListJson());
    case Route::kModel:
      return Model(match, *context.service);
    case Route::kProps:
      return Json(PropsBody(*context.service));
    case Route::kSlots:
      return Slots(match, *context.service);
    default:
      KVRM_CHECK(match.route == Route::kTokenizerInfo, "each route that is read has its function");
      return Json(TokenizerInfoBody(context.service->encoder()));
  }
}

}  // namespace kvrm
