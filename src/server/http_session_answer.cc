// The answering half of a session: from a complete request to the last byte of its response.
#include <boost/asio/write.hpp>
#include <utility>

#include "server/answer_formats.h"
#include "server/http_session.h"
#include "server/read_routes.h"

namespace kvrm {
namespace {

namespace net = boost::asio;

constexpr std::string_view kEvents = "text/event-stream; charset=utf-8";

}  // namespace

// ---- answering
void HttpSession::AnswerGet() {
  const auto answer = AnswerRead(facts_.match, server_.read_context());
  if (const auto* error = std::get_if<ApiError>(&answer)) return RespondError(*error);
  const ReadAnswer& read = std::get<ReadAnswer>(answer);
  Respond(200, read.content_type, read.body);
}

// What a page of an allowed origin may send is told to its browser; nothing is served.
void HttpSession::AnswerPreflight() {
  HeadFields head;
  head.status = 204;
  head.keep_alive = facts_.keep_alive;
  head.request_id = facts_.id;
  head.cors_origin = facts_.cors_origin;
  head.preflight = true;
  out_ = HeadText(head);
  NoteResponse(head.status);
  last_write_ = true;
  Write();
}

void HttpSession::BeginAnswer() {
  // The server may have begun to drain while the body was read.
  if (server_.phase() != ServerPhase::kReady) {
    ReleaseBodyBudget();
    return RespondError(NotReadyError(server_.phase()));
  }
  if (KindOf(facts_.match.route) == RouteKind::kGenerate && !server_.TakeKeySlot(facts_.key)) {
    ReleaseBodyBudget();
    return RespondError(server_.KeyBusyError(*facts_.key));
  }
  state_ = State::kAnswering;
  answering_ = true;
  server_.AnswerBegan();
  Watch();
  if (KindOf(facts_.match.route) == RouteKind::kConvert) return BeginConversion();
  holds_key_slot_ = true;
  const Api api = ApiOf(facts_.match.route);
  server_.Prepare(api, facts_.key, std::move(parser_->get().body()),
                  [self = shared_from_this()](HttpServer::Prepared prepared) {
                    self->EndComputing();
                    self->Run([&] { self->OnPrepared(std::move(prepared)); });
                  });
  computing_ = true;
}

void HttpSession::EndComputing() noexcept {
  computing_ = false;
  ReleaseBodyBudget();
}

void HttpSession::BeginConversion() {
  server_.Convert(facts_.match.route, std::move(parser_->get().body()),
                  [self = shared_from_this()](HttpServer::Converted converted) {
                    self->EndComputing();
                    self->Run([&] {
                      const auto* error = std::get_if<ApiError>(&converted);
                      if (error != nullptr) return self->RespondError(*error);
                      self->Respond(200, kJsonType, std::get<std::string>(converted));
                    });
                  });
  computing_ = true;
}

void HttpSession::OnPrepared(HttpServer::Prepared prepared) {
  if (const auto* error = std::get_if<ApiError>(&prepared)) return RespondError(*error);
  auto started = server_.service()->Start(std::move(std::get<PreparedRequest>(prepared)), this,
                                          record_.begun_us);
  if (const auto* error = std::get_if<ApiError>(&started)) return RespondError(*error);
  generation_ = std::move(std::get<std::shared_ptr<Generation>>(started));
  written_us_ = SteadyNowUs();
  sent_gaps_ = SentGaps(server_.service()->engine().config().max_itl_us);
  server_.ArmDeadline();
}

void HttpSession::OnOutput(Generation&) noexcept {
  Run([this] { Pump(); });
}

void HttpSession::Pump() {
  if (generation_->dropped()) return Close();
  if (writing_) {
    if (generation_->output_bytes() <= server_.config().max_outbox_bytes) return;
    ++server_.counters().outbox_overflows;
    return Close();
  }
  if (const auto& error = generation_->error()) {
    const ApiError copy = *error;
    ReleaseGeneration();
    return RespondError(copy);
  }
  if (generation_->stream()) return PumpStream();
  if (!generation_->complete()) return;
  const std::string body = generation_->TakeOutput();
  ReleaseGeneration();
  Respond(200, kJsonType, body);
}

// Everything made since the last write goes out in one write; the head travels with the first text.
void HttpSession::PumpStream() {
  const bool complete = generation_->complete();
  std::string events = generation_->TakeOutput();
  if (events.empty()) return;
  if (facts_.send_stamps) {
    events.insert(0, ": sent-us=" + std::to_string(SteadyNowUs()) + "\n");
  }
  if (!record_.first_output_us) record_.first_output_us = SteadyNowUs() - record_.begun_us;
  sent_gaps_.Begin(generation_->TakeStamps());
  if (complete) ReleaseGeneration();
  SendEvents(events, complete);
}

// A comment, which every client reads over. The head is sent for it if it has to; the role is not.
void HttpSession::KeepAlive(int64_t now_us) noexcept {
  const auto interval = std::chrono::microseconds(server_.config().keep_alive_interval);
  if (state_ != State::kAnswering || generation_ == nullptr || !generation_->stream() || writing_ ||
      now_us - written_us_ < interval.count()) {
    return;
  }
  generation_->StreamBegan();
  Run([this] { SendEvents(": keep-alive\n\n", /*complete=*/false); });
}

// Of what was generated or scored; other answers are the same under any view.
std::string_view HttpSession::LossyView() const {
  const Service* service = server_.service();
  if (service == nullptr || KindOf(facts_.match.route) != RouteKind::kGenerate) return {};
  return service->engine().config().lossy_view;
}

// The head of a stream, into out_.
void HttpSession::BeginStream() {
  HeadFields head;
  head.content_type = kEvents;
  head.framing = facts_.chunked ? HeadFields::Framing::kChunked : HeadFields::Framing::kUntilClose;
  if (!facts_.chunked) facts_.keep_alive = false;
  head.keep_alive = facts_.keep_alive;
  head.event_stream = true;
  head.request_id = facts_.id;
  head.lossy_view = LossyView();
  head.cors_origin = facts_.cors_origin;
  out_ = HeadText(head);
  head_sent_ = true;
  NoteResponse(head.status);
}

void HttpSession::SendEvents(const std::string& events, bool complete) {
  out_.clear();
  if (!head_sent_) BeginStream();
  if (facts_.chunked) {
    AppendChunk(out_, events);
    if (complete) out_ += kLastChunk;
  } else {
    out_ += events;
  }
  last_write_ = complete;
  Write();
}

void HttpSession::ReleaseGeneration() noexcept {
  if (generation_ == nullptr) return;
  record_.answer = generation_->Record();
  server_.service()->Release(*generation_);
  generation_.reset();
}

void HttpSession::EndAnswer() noexcept {
  if (std::exchange(holds_key_slot_, false)) server_.ReturnKeySlot(facts_.key);
  if (std::exchange(answering_, false)) server_.AnswerEnded();
}

// One line of the log for each request; what only watches the server is not worth one.
void HttpSession::EndRequest(bool client_gone) noexcept {
  if (!std::exchange(record_.open, false)) return;
  if (KindOf(facts_.match.route) == RouteKind::kState && record_.status == 200) return;
  RequestRecord record;
  record.id = facts_.id;
  record.trace = facts_.trace;
  record.route = RouteName(facts_.match.route);
  if (facts_.key) record.key = server_.keys()[*facts_.key].name;
  record.status = record_.status;
  record.client_gone = client_gone;
  record.error_code = record_.error_code;
  record.total_us = SteadyNowUs() - record_.begun_us;
  record.first_output_us = record_.first_output_us;
  record.answer = record_.answer;
  try {
    server_.LogRequest(record);
  } catch (const std::bad_alloc&) {
    return;  // a line is lost
  }
}

// ---- writing
void HttpSession::Respond(int status, std::string_view content_type, const std::string& body) {
  HeadFields head;
  head.status = status;
  head.content_type = content_type;
  head.content_length = body.size();
  if (server_.phase() == ServerPhase::kDraining) facts_.keep_alive = false;
  head.keep_alive = facts_.keep_alive;
  head.request_id = facts_.id;
  head.lossy_view = LossyView();
  head.cors_origin = facts_.cors_origin;
  head.challenge = status == 401;
  if (status == 405) head.allow = AllowedMethods(facts_.match.route);
  if (status == 429 || status == 503) head.retry_after_s = retry_after_s_;
  out_ = HeadText(head);
  if (!facts_.head_only) out_ += body;
  NoteResponse(status);
  last_write_ = true;
  Write();
}

void HttpSession::NoteResponse(int status) {
  record_.status = status;
  ++server_.counters().responses[{std::string(RouteName(facts_.match.route)), status}];
}

void HttpSession::RespondError(const ApiError& error) {
  HttpCounters& counters = server_.counters();
  if (error.status == 401) ++counters.refused_no_key;
  if (error.code == "key_limit") ++counters.refused_key_limit;
  if (error.code == "loading" || error.code == "shutting_down") ++counters.refused_not_ready;
  if (error.code == "out_of_memory") ++counters.refused_no_memory;
  retry_after_s_ = error.code == "queue_full" ? server_.service()->RetryAfterSeconds() : 1;
  record_.error_code = error.code.empty() ? error.type : error.code;
  const bool anthropic =
      facts_.match.route == Route::kMessages || facts_.match.route == Route::kCountTokens;
  Respond(error.status, kJsonType, anthropic ? MessagesErrorBody(error) : ErrorBody(error));
}

void HttpSession::Write() {
  if (!answering_) state_ = State::kWriting;
  writing_ = true;
  written_us_ = SteadyNowUs();
  stream_.expires_after(server_.config().write_timeout);
  net::async_write(stream_, net::buffer(out_),
                   Guarded([](HttpSession& self, const Error& ec, size_t) { self.OnWritten(ec); }));
}

// It left, or it was given up: either way its text waits no more.
void HttpSession::EndWrite() noexcept {
  writing_ = false;
  const LateText late = sent_gaps_.End(SteadyNowUs());
  server_.counters().late_gaps += late.gaps;
  server_.counters().late_gap_us += late.excess_us;
}

void HttpSession::OnWritten(const Error& ec) {
  EndWrite();
  if (ec == boost::beast::error::timeout) {
    ++server_.counters().outbox_too_old;
    return Close();
  }
  if (ec) return ClientGone();
  if (!last_write_) return Pump();
  EndAnswer();
  EndRequest(/*client_gone=*/false);
  if (state_ == State::kClosed) return;  // the last answer of a drain closes what is left
  out_ = {};
  if (facts_.keep_alive && server_.phase() != ServerPhase::kDraining) return AwaitRequest();
  Linger();
}

}  // namespace kvrm
