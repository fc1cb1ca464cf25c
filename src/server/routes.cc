#include "server/routes.h"

#include <algorithm>

#include "base/check.h"
#include "server/http_text.h"

namespace kvrm {
namespace {

// Other servers have the same API below other roots: OpenVINO Model Server below /v3.
constexpr std::string_view kModelPrefixes[] = {"/v1/models/", "/v3/models/"};
constexpr std::string_view kScheme = "http://";

constexpr RouteInfo kRoutes[] = {
    {Route::kChat, RouteKind::kGenerate, "/v1/chat/completions", "answer a conversation"},
    {Route::kChat, RouteKind::kGenerate, "/chat/completions", ""},
    {Route::kChat, RouteKind::kGenerate, "/v3/chat/completions", ""},
    {Route::kCompletions, RouteKind::kGenerate, "/v1/completions", "continue a text"},
    {Route::kCompletions, RouteKind::kGenerate, "/v3/completions", ""},
    {Route::kCompletion, RouteKind::kGenerate, "/completion", "the same, as llama-server words it"},
    {Route::kCompletion, RouteKind::kGenerate, "/completions", ""},
    {Route::kResponses, RouteKind::kGenerate, "/v1/responses", "answer an input"},
    {Route::kResponses, RouteKind::kGenerate, "/responses", ""},
    {Route::kMessages, RouteKind::kGenerate, "/v1/messages",
     "answer a conversation, as Anthropic words it"},
    {Route::kTokenize, RouteKind::kConvert, "/tokenize", "text or a conversation to token ids"},
    {Route::kDetokenize, RouteKind::kConvert, "/detokenize", "token ids to text"},
    {Route::kApplyTemplate, RouteKind::kConvert, "/apply-template",
     "a conversation as the text that the model reads"},
    {Route::kCountTokens, RouteKind::kConvert, "/v1/messages/count_tokens",
     "how many tokens a conversation has"},
    {Route::kModels, RouteKind::kRead, "/v1/models", "the model that is served"},
    {Route::kModels, RouteKind::kRead, "/models", ""},
    {Route::kModels, RouteKind::kRead, "/v3/models", ""},
    {Route::kModel, RouteKind::kRead, "/v1/models/{id}", "the same by its id"},
    {Route::kProps, RouteKind::kRead, "/props", "defaults, slots and chat template"},
    {Route::kSlots, RouteKind::kRead, "/slots", "slots, busy ones first"},
    {Route::kTokenizerInfo, RouteKind::kRead, "/tokenizer_info",
     "control tokens and chat template, for clients without tokenizer files"},
    {Route::kHealth, RouteKind::kState, "/health", "as /ready", true},
    {Route::kHealth, RouteKind::kState, "/v1/health", "", true},
    {Route::kHealth, RouteKind::kState, "/ping", "", true},
    {Route::kReady, RouteKind::kState, "/ready", "200 when a request would be answered, else 503",
     true},
    {Route::kReady, RouteKind::kState, "/v2/health/ready", "", true},
    {Route::kLive, RouteKind::kState, "/live", "200 as long as the process answers", true},
    {Route::kLive, RouteKind::kState, "/v2/health/live", "", true},
    {Route::kVersion, RouteKind::kState, "/version", "of this server"},
    {Route::kOpenApi, RouteKind::kState, "/openapi.json", "this document"},
    {Route::kMetrics, RouteKind::kState, "/metrics", "in Prometheus' text format"},
    {Route::kIcon, RouteKind::kState, "/favicon.ico", "what browsers ask for beside a page"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/embeddings", "embeddings"},
    {Route::kNotOffered, RouteKind::kNone, "/embeddings", "embeddings"},
    {Route::kNotOffered, RouteKind::kNone, "/embedding", "embeddings"},
    {Route::kNotOffered, RouteKind::kNone, "/v3/embeddings", "embeddings"},
    {Route::kNotOffered, RouteKind::kNone, "/pooling", "embeddings"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/rerank", "reranking"},
    {Route::kNotOffered, RouteKind::kNone, "/v2/rerank", "reranking"},
    {Route::kNotOffered, RouteKind::kNone, "/v3/rerank", "reranking"},
    {Route::kNotOffered, RouteKind::kNone, "/reranking", "reranking"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/reranking", "reranking"},
    {Route::kNotOffered, RouteKind::kNone, "/rerank", "reranking"},
    {Route::kNotOffered, RouteKind::kNone, "/score", "scoring"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/score", "scoring"},
    {Route::kNotOffered, RouteKind::kNone, "/classify", "classification"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/moderations", "moderation"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/images/generations", "images"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/images/edits", "images"},
    {Route::kNotOffered, RouteKind::kNone, "/v3/images/generations", "images"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/audio/speech", "audio"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/audio/transcriptions", "audio"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/audio/translations", "audio"},
    {Route::kNotOffered, RouteKind::kNone, "/infill", "infilling"},
    {Route::kNotOffered, RouteKind::kNone, "/lora-adapters", "LoRA adapters"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/load_lora_adapter", "LoRA adapters"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/unload_lora_adapter", "LoRA adapters"},
    {Route::kNotOffered, RouteKind::kNone, "/api/chat",
     "Ollama's API (here: /v1/chat/completions)"},
    {Route::kNotOffered, RouteKind::kNone, "/api/generate", "Ollama's API (here: /v1/completions)"},
    {Route::kNotOffered, RouteKind::kNone, "/api/tags", "Ollama's API (here: /v1/models)"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/files", "files (`kvrm batch` reads local ones)"},
    {Route::kNotOffered, RouteKind::kNone, "/v1/batches", "batches (`kvrm batch` runs them)"},
};

constexpr RouteInfo kOther{Route::kNone, RouteKind::kNone, "other", ""};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string PercentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
        HexDigit(text[i + 2]) >= 0) {
      out += static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Whether `query` ("a=1&b") has "name" without a value, or with one other than 0.
bool IsSet(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair == name) return true;
    if (pair.starts_with(name) && pair[name.size()] == '=') {
      return pair.substr(name.size() + 1) != "0";
    }
  }
  return false;
}

}  // namespace

std::span<const RouteInfo> AllRoutes() { return kRoutes; }

const RouteInfo& InfoOf(Route route) {
  const auto* found = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                   [route](const RouteInfo& info) { return info.route == route; });
  return found == std::end(kRoutes) ? kOther : *found;
}

std::string_view TargetHost(std::string_view target) {
  if (!EqualsIgnoreCase(target.substr(0, kScheme.size()), kScheme)) return {};
  target.remove_prefix(kScheme.size());
  return target.substr(0, target.find_first_of("/?"));
}

RouteMatch MatchRoute(std::string_view target) {
  if (const std::string_view host = TargetHost(target); !host.empty()) {
    target.remove_prefix(kScheme.size() + host.size());
  }
  const std::string_view raw_path = target.substr(0, target.find('?'));
  const std::string_view query = target.substr(std::min(target.size(), raw_path.size() + 1));
  const std::string decoded = PercentDecode(raw_path);
  RouteMatch match;
  for (const std::string_view prefix : kModelPrefixes) {
    if (!decoded.starts_with(prefix) || decoded.size() == prefix.size()) continue;
    match.route = Route::kModel;
    match.model = decoded.substr(prefix.size());
    return match;
  }
  std::string_view path = decoded;
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);  // as a client may join URLs
  const auto* found = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                   [path](const RouteInfo& info) { return info.path == path; });
  if (found == std::end(kRoutes)) return match;
  match.route = found->route;
  if (match.route == Route::kNotOffered) match.not_offered = found->summary;
  match.fail_on_no_slot = match.route == Route::kSlots && IsSet(query, "fail_on_no_slot");
  return match;
}

Api ApiOf(Route route) {
  switch (route) {
    case Route::kChat:
      return Api::kChat;
    case Route::kCompletions:
      return Api::kCompletions;
    case Route::kCompletion:
      return Api::kNative;
    case Route::kResponses:
      return Api::kResponses;
    default:
      KVRM_CHECK(route == Route::kMessages, "each route of kind kGenerate has its API");
      return Api::kMessages;
  }
}

std::string_view RouteName(Route route) {
  return route == Route::kNotOffered ? kOther.path : InfoOf(route).path;
}

}  // namespace kvrm
