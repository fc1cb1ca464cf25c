// One request as a command sees it: the sink that gathers its tokens and text, and the loop that
// steps the engine on the calling thread until all requests have ended. Engine-thread-only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace kvrm::cli {

class Generation final : public EventSink {
 public:
  // `on_text` gets each piece of text as soon as it may be shown; may be empty. `tokenizer`
  // outlives the object.
  Generation(const Tokenizer& tokenizer, std::function<void(std::string_view)> on_text)
      : tokenizer_(tokenizer), stream_(tokenizer, {}), on_text_(std::move(on_text)) {}

  void OnToken(RequestId id, const TokenEvent& event) override;
  void OnFinish(RequestId id, const FinishEvent& event) override;
  // The request was refused before it ran.
  void Refuse(const Error& error);

  bool finished() const { return finished_; }
  bool failed() const { return finish_.reason == StopReason::kError; }
  const std::vector<TokenId>& tokens() const { return tokens_; }  // the end token included
  const std::string& text() const { return text_; }               // without it
  // [tokens][K], best first; empty when none were asked for.
  const std::vector<std::vector<TokenLogprob>>& top() const { return top_; }
  const FinishEvent& finish() const { return finish_; }

 private:
  void Append(const std::string& piece);

  const Tokenizer& tokenizer_;
  TextStream stream_;
  std::function<void(std::string_view)> on_text_;
  std::vector<TokenId> tokens_;
  std::string text_;
  std::vector<std::vector<TokenLogprob>> top_;
  FinishEvent finish_;
  bool finished_ = false;
};

// Checks and submits `request` with `generation` as its sink; when it is refused, the generation
// ends with kError and the reason. Steps the engine while its queue is full.
// Returns the id, nothing when refused.
std::optional<RequestId> Start(Engine& engine, GenerateRequest request, Generation& generation);

// Steps until all of `generations` have finished. After each step calls `after_step`; when it
// returns false, or on Ctrl-C, cancels all of `ids`. Returns false when Ctrl-C ended it.
bool RunToEnd(Engine& engine, std::span<const std::unique_ptr<Generation>> generations,
              std::span<const RequestId> ids, const std::function<bool()>& after_step);

}  // namespace kvrm::cli
