#include "bench/load/server_probe.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <limits>
#include <optional>

#include "bench/load/answer_event.h"

namespace kvrm::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace json = boost::json;
using Tcp = asio::ip::tcp;

constexpr auto kTimeout = std::chrono::seconds(10);

// A few plain requests over one connection, one after the other.
class Questions {
 public:
  explicit Questions(const LoadTarget& target) : target_(target), stream_(io_) {}

  // The JSON of a 200. Errors: no connection, no answer in time, another status, no JSON.
  Result<json::value> Ask(http::verb verb, const std::string& path, const std::string& body) {
    KVRM_ASSIGN_OR_RETURN(const std::string text, AskForText(verb, path, body));
    json::value root = json::parse(text, error_);
    if (error_) return Unavailable(path + " of '" + target_.host + "': the answer is no JSON");
    return root;
  }

  // The body of a 200. Errors: no connection, no answer in time, another status.
  Result<std::string> AskForText(http::verb verb, const std::string& path,
                                 const std::string& body) {
    request_ = {verb, path, 11};
    request_.set(http::field::host, target_.host + ":" + std::to_string(target_.port));
    request_.set(http::field::content_type, "application/json");
    for (const auto& [name, value] : target_.headers) request_.set(name, value);
    request_.body() = body;
    request_.prepare_payload();
    answer_ = {};
    if (!open_) KVRM_RETURN_IF_ERROR(Connect());
    Exchange();
    const std::string at = "http://" + target_.host + ":" + std::to_string(target_.port) + path;
    if (error_) return Unavailable(at + ": " + error_.message());
    if (answer_.result_int() != 200) {
      return Unavailable(at + ": status " + std::to_string(answer_.result_int()) + ": " +
                         ErrorMessage(answer_.body()));
    }
    return answer_.body();
  }

 private:
  Status Connect() {
    Tcp::resolver resolver(io_);
    std::string host = target_.host;
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    const auto found = resolver.resolve(host, std::to_string(target_.port), error_);
    if (error_) return NotFound("host '" + target_.host + "': " + error_.message());
    stream_.expires_after(kTimeout);
    stream_.async_connect(
        found, [this](const beast::error_code& error, const Tcp::endpoint&) { error_ = error; });
    io_.restart();
    io_.run();
    if (!error_) {
      open_ = true;
      return Ok();
    }
    return Unavailable("http://" + target_.host + ":" + std::to_string(target_.port) + ": " +
                       error_.message());
  }

  void Exchange() {
    stream_.expires_after(kTimeout);
    http::async_write(stream_, request_, [this](const beast::error_code& error, size_t) {
      error_ = error;
      if (error) return;
      http::async_read(stream_, buffer_, answer_,
                       [this](const beast::error_code& read, size_t) { error_ = read; });
    });
    io_.restart();
    io_.run();
    if (!error_ && answer_.keep_alive()) return;
    open_ = false;
    stream_.close();
    buffer_.clear();
  }

  const LoadTarget& target_;
  asio::io_context io_{1};
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  beast::error_code error_;
  http::request<http::string_body> request_;
  http::response<http::string_body> answer_;
  bool open_ = false;
};

// Where servers say how long a request may be: vLLM and kvrm, llama-server.
uint32_t ContextOf(const json::object& model) {
  const json::value* length = model.if_contains("max_model_len");
  if (const json::value* meta = model.if_contains("meta"); meta != nullptr && meta->is_object()) {
    for (const char* name : {"n_ctx", "n_ctx_train"}) {
      if (length == nullptr) length = meta->get_object().if_contains(name);
    }
  }
  json::error_code error;
  if (length == nullptr || !length->is_number()) return 0;
  const auto tokens = length->to_number<int64_t>(error);
  const bool fits = !error && tokens > 0 && tokens <= std::numeric_limits<uint32_t>::max();
  return fits ? static_cast<uint32_t>(tokens) : 0;
}

// How many tokens `text` is; nullopt: the server does not say. Both spellings of each field, of
// llama-server and of vLLM, are sent.
std::optional<size_t> CountTokens(Questions& questions, const LoadTarget& target,
                                  const std::string& text) {
  const json::object body{{"model", target.model},
                          {"content", text},
                          {"prompt", text},
                          {"add_special", false},
                          {"add_special_tokens", false}};
  const auto answer = questions.Ask(http::verb::post, "/tokenize", json::serialize(body));
  if (!answer.ok() || !answer->is_object()) return std::nullopt;
  const json::value* tokens = answer->get_object().if_contains("tokens");
  if (tokens == nullptr || !tokens->is_array()) return std::nullopt;
  return tokens->get_array().size();
}

}  // namespace

Result<ServerFacts> AskModels(const LoadTarget& target) {
  Questions questions(target);
  KVRM_ASSIGN_OR_RETURN(const json::value root,
                        questions.Ask(http::verb::get, target.base_path + "/models", ""));
  const json::value* data = root.is_object() ? root.get_object().if_contains("data") : nullptr;
  if (data == nullptr || !data->is_array() || data->get_array().empty() ||
      !data->get_array()[0].is_object()) {
    return Unavailable(target.base_path + "/models of '" + target.host + "' lists no model");
  }
  const json::object& model = data->get_array()[0].get_object();
  const json::value* id = model.if_contains("id");
  if (id == nullptr || !id->is_string()) {
    return Unavailable(target.base_path + "/models of '" + target.host + "': the model has no id");
  }
  return ServerFacts{std::string(id->get_string()), ContextOf(model)};
}

std::string AskText(const LoadTarget& target, const std::string& path) {
  Questions questions(target);
  const auto text = questions.AskForText(http::verb::get, path, "");
  return text.ok() ? *text : "";
}

CountedWords CountWords(const LoadTarget& target) {
  Questions questions(target);
  CountedWords all;
  std::string text;
  for (std::string_view word : all.words.words()) text += " " + std::string(word);
  const auto together = CountTokens(questions, target, text);
  if (!together) return all;
  all.counted = true;
  if (*together == all.words.words().size()) return all;
  std::vector<std::string_view> kept;
  for (std::string_view word : all.words.words()) {
    // Two, because some tokenizers put a blank before the first.
    const std::string twice = " " + std::string(word) + " " + std::string(word);
    if (CountTokens(questions, target, twice) == size_t{2}) kept.push_back(word);
  }
  if (kept.empty()) return CountedWords{};
  return {PromptWords(std::move(kept)), /*counted=*/true};
}

}  // namespace kvrm::cli
