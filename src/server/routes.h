// The table of routes: what is served where, in which phase, by which method. Dispatch, metrics,
// `Allow` and /openapi.json all read it; nothing else lists paths. Pure, thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/openai_types.h"

namespace kvrm {

enum class Route : uint8_t {
  kNone,
  kNotOffered,  // known from other servers: refused by name, not as an unknown path
  // ---- answers of the engine
  kChat,
  kCompletions,
  kCompletion,
  kResponses,
  kMessages,
  // ---- text and tokens, without the engine
  kTokenize,
  kDetokenize,
  kApplyTemplate,
  kCountTokens,
  // ---- what is served
  kModels,
  kModel,
  kProps,
  kSlots,
  kTokenizerInfo,
  // ---- state of the server
  kHealth,
  kReady,
  kLive,
  kVersion,
  kOpenApi,
  kMetrics,
  kIcon,
};

enum class RouteKind : uint8_t {
  kState,     // GET, HEAD: answered in every phase, while the model loads too
  kRead,      // GET, HEAD: needs the model
  kConvert,   // POST: JSON in, JSON out, on a thread of its own
  kGenerate,  // POST: an answer of the engine
  kNone,      // no route of ours
};

struct RouteInfo {
  Route route = Route::kNone;
  RouteKind kind = RouteKind::kNone;
  std::string_view path;     // the first of a route is its name; others are aliases
  std::string_view summary;  // of kNotOffered: what is not offered
  bool open = false;         // answered without an API key
};

// By route, names before aliases. The path of kModel has a parameter: "/v1/models/{id}".
std::span<const RouteInfo> AllRoutes();
const RouteInfo& InfoOf(Route route);

struct RouteMatch {
  Route route = Route::kNone;
  std::string model;             // of kModel, percent-decoded; any bytes
  std::string_view not_offered;  // of kNotOffered: what is asked for
  bool fail_on_no_slot = false;  // of kSlots: "?fail_on_no_slot=1"
};
// `target` as in the request line, a path or (absolute form) `http://HOST/path`, percent-decoded
// once, with or without a `/` at its end; of a query only what RouteMatch names is read.
RouteMatch MatchRoute(std::string_view target);
// HOST of a target in absolute form, else empty.
std::string_view TargetHost(std::string_view target);

inline RouteKind KindOf(Route route) { return InfoOf(route).kind; }
Api ApiOf(Route route);                   // requires: a route of kind kGenerate
std::string_view RouteName(Route route);  // for metrics and logs
inline bool IsPost(Route route) {
  return KindOf(route) == RouteKind::kConvert || KindOf(route) == RouteKind::kGenerate;
}
inline std::string_view AllowedMethods(Route route) { return IsPost(route) ? "POST" : "GET, HEAD"; }

}  // namespace kvrm
