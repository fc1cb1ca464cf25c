// One request and its answer, whatever answers: the seam between the load generator's run and a
// server (http_exchange.h) or an engine in this process (bench/replay).
//
// Single-threaded: everything is called on the io_context's thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/load/request_record.h"

namespace kvrm::cli {

// Microseconds of the monotonic clock.
int64_t NowUs();

struct Message {
  std::string role, content;
};

// What is asked. All that was said before it is part of it.
struct Question {
  bool chat = true;
  std::vector<Message> messages;  // chat
  std::string text;               // completions
  uint32_t output_tokens = 0;
  double temperature = 0;
  bool ignore_eos = true;
  double timeout_s = 0;
  std::optional<uint32_t> cancel_after;  // text events
};

class Exchange {
 public:
  using OnText = std::function<void(const RequestRecord&)>;
  using OnEnd = std::function<void(Exchange&)>;

  // `on_text` after each event with text; `on_end` once, when record() is complete, from no call of
  // this class. `record` brings what is known of the request.
  Exchange(RequestRecord record, OnText on_text, OnEnd on_end)
      : on_text_(std::move(on_text)), on_end_(std::move(on_end)), record_(std::move(record)) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  virtual void Start() = 0;
  // Ends it now, if it has not ended.
  virtual void Abort(Outcome outcome) = 0;

  RequestRecord& record() { return record_; }
  const std::string& text() const { return text_; }  // of the answer, so far

 protected:
  const OnText on_text_;
  const OnEnd on_end_;
  RequestRecord record_;
  std::string text_;
};

// Whoever answers. Outlives its exchanges.
class LoadBackend {
 public:
  virtual ~LoadBackend() = default;
  virtual uint32_t context_tokens() const = 0;  // of a request and its answer; 0: not known
  virtual std::shared_ptr<Exchange> Ask(boost::asio::io_context& io, const Question& question,
                                        RequestRecord record, Exchange::OnText on_text,
                                        Exchange::OnEnd on_end) = 0;
  // After its on_end: what it leaves may serve another.
  virtual void Ended(Exchange& /*exchange*/) {}
  // No more will be asked; what is kept for that goes.
  virtual void Close() {}
  virtual uint64_t reused_connections() const { return 0; }
};

}  // namespace kvrm::cli
