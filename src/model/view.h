// A view: what of a sequence the decoder sees. Dense is all that the model asks for; `sliding:W`
// lays a window of the last W tokens over every layer, so that what is older leaves memory. Where a
// layer asks for more, that changes answers: the view is lossy there, and whoever serves it says
// so.
//
// Plain data and pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/config.h"

namespace kvrm {

// Below it what is left of a prompt is no context any more.
inline constexpr uint32_t kMinViewTokens = 64;

struct ModelView {
  uint32_t window_tokens = 0;  // that a row sees at most, its own included; 0: dense
};

// "dense", "sliding:512". Errors name value and limit: another name; a window below kMinViewTokens
// or that is no multiple of a page of KV.
Result<ModelView> ParseView(std::string_view text);
std::string ViewName(const ModelView& view);  // as ParseView reads it

// Whether a layer sees less of a sequence of `ctx` tokens than `config` asks for.
bool IsLossy(const ModelView& view, const ModelConfig& config, uint32_t ctx);
// Every layer that sees more gets the view's window. Not one that no sequence outgrows.
void ApplyView(const ModelView& view, ModelConfig& config);

}  // namespace kvrm
