// An exchange whose answer is no byte stream: another thread of this process has it and hands each
// part of it over by a post to the io_context. What is common to such exchanges: the time limit,
// the wish to give up after some texts, and one end.
//
// Single-threaded like its base: all calls come on the io_context's thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>

#include "bench/load/exchange.h"

namespace kvrm::cli {

class LocalExchange : public Exchange, public std::enable_shared_from_this<LocalExchange> {
 public:
  LocalExchange(boost::asio::io_context& io, const Question& question, RequestRecord record,
                OnText on_text, OnEnd on_end);

  void Abort(Outcome outcome) final;

 protected:
  // Stamps the sending; the time limit counts from now.
  void BeginAnswer();
  // An event with text. May end the exchange, when it is the one after which we give up.
  void TakeText(const std::string& piece, int64_t now_us);
  // Posts on_end. Requires: not ended.
  void End(Outcome outcome, std::string detail, int64_t now_us);
  bool ended() const { return ended_; }

  // Nobody waits for the rest: the other side is told, if it knows of the request.
  virtual void GiveUp() = 0;

  boost::asio::io_context& io_;

 private:
  boost::asio::steady_timer timer_;
  const double timeout_s_;
  const std::optional<uint32_t> cancel_after_;  // text events
  bool ended_ = false;
};

}  // namespace kvrm::cli
