#include "bench/load/local_exchange.h"

#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace kvrm::cli {

namespace asio = boost::asio;

LocalExchange::LocalExchange(asio::io_context& io, const Question& question, RequestRecord record,
                             OnText on_text, OnEnd on_end)
    : Exchange(std::move(record), std::move(on_text), std::move(on_end)),
      io_(io),
      timer_(io),
      timeout_s_(question.timeout_s),
      cancel_after_(question.cancel_after) {}

void LocalExchange::BeginAnswer() {
  record_.sent_us = NowUs();
  timer_.expires_after(std::chrono::microseconds(static_cast<int64_t>(timeout_s_ * 1e6)));
  timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->Abort(Outcome::kTimeout);
  });
}

void LocalExchange::Abort(Outcome outcome) {
  if (ended_) return;
  GiveUp();
  End(outcome, "", NowUs());
}

void LocalExchange::TakeText(const std::string& piece, int64_t now_us) {
  if (piece.empty()) return;
  text_ += piece;
  record_.events.push_back({now_us, std::nullopt});
  on_text_(record_);
  if (cancel_after_ && record_.events.size() >= *cancel_after_) Abort(Outcome::kCancelled);
}

void LocalExchange::End(Outcome outcome, std::string detail, int64_t now_us) {
  KVRM_CHECK(!ended_, "an exchange ends once");
  ended_ = true;
  record_.outcome = outcome;
  record_.detail = std::move(detail);
  record_.end_us = now_us;
  timer_.cancel();
  asio::post(io_, [self = shared_from_this()] { self->on_end_(*self); });
}

}  // namespace kvrm::cli
