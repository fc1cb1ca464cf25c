#include "model/view.h"

#include <algorithm>
#include <charconv>

#include "tensor/kv_tile.h"

namespace kvrm {
namespace {

constexpr std::string_view kDense = "dense", kSliding = "sliding:";

bool SeesMore(const LayerConfig& layer, const ModelView& view) {
  return layer.window == 0 || layer.window > view.window_tokens;
}

}  // namespace

Result<ModelView> ParseView(std::string_view text) {
  if (text == kDense) return ModelView{};
  const std::string shown = "view '" + std::string(text.substr(0, 40)) + "'";
  ModelView view;
  const std::string_view number =
      text.starts_with(kSliding) ? text.substr(kSliding.size()) : std::string_view();
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), view.window_tokens);
  if (number.empty() || error != std::errc() || end != number.data() + number.size()) {
    return InvalidInput(shown + ": takes dense or sliding:W, W the number of tokens");
  }
  if (view.window_tokens < kMinViewTokens) {
    return InvalidInput(shown + ": a window of " + std::to_string(view.window_tokens) +
                        " tokens, must be at least " + std::to_string(kMinViewTokens));
  }
  if (view.window_tokens % kKvTileTokens != 0) {
    return InvalidInput(shown + ": a window of " + std::to_string(view.window_tokens) +
                        " tokens, must be a multiple of a page, " + std::to_string(kKvTileTokens));
  }
  return view;
}

std::string ViewName(const ModelView& view) {
  if (view.window_tokens == 0) return std::string(kDense);
  return std::string(kSliding) + std::to_string(view.window_tokens);
}

bool IsLossy(const ModelView& view, const ModelConfig& config, uint32_t ctx) {
  return view.window_tokens != 0 && view.window_tokens < ctx &&
         std::any_of(
             config.layers.begin(), config.layers.end(),
             [&](const LayerConfig& layer) { return SeesMore(layer, view); });
}

void ApplyView(const ModelView& view, ModelConfig& config) {
  if (view.window_tokens == 0 || view.window_tokens >= config.max_context) return;
  for (LayerConfig& layer : config.layers) {
    if (SeesMore(layer, view)) layer.window = view.window_tokens;
  }
}

}  // namespace kvrm
