// The load generator's other end without HTTP: questions become requests of an engine in this
// process, through the model's tokenizer and chat template as the server does it.
//
// A token is stamped on the engine thread when the sampler has it; an event is one whose text may
// be shown. What the load generator does with it happens on its own thread, which the engine never
// waits for.
#pragma once

#include <memory>
#include <thread>

#include "bench/load/exchange.h"
#include "session/session.h"

namespace kvrm::cli {

class EngineBackend final : public LoadBackend {
 public:
  // Starts the engine's thread; the destructor stops it. `session` outlives the object and has a
  // chat template if chats are asked.
  // `context_tokens`: that lengths are cut to; 0: the session's.
  EngineBackend(const Session& session, uint32_t context_tokens);
  ~EngineBackend() override;

  uint32_t context_tokens() const override { return context_tokens_; }
  std::shared_ptr<Exchange> Ask(boost::asio::io_context& io, const Question& question,
                                RequestRecord record, Exchange::OnText on_text,
                                Exchange::OnEnd on_end) override;

 private:
  const Session& session_;
  const uint32_t context_tokens_;
  std::thread engine_thread_;
};

}  // namespace kvrm::cli
