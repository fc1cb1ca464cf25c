// Request fields that say how an answer is made: its length and end, sampling, log-probabilities.
#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "server/openai_request_reader.h"

namespace kvrm {
namespace {

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

// A token id as a key of a JSON object: plain digits, written one way only ("7", never "07" or
// "7.0"), so that no two keys mean the same token.
bool ReadTokenKey(std::string_view key, TokenId& id) {
  const char* const begin = key.empty() ? nullptr : &key[0];
  const char* const end = begin + key.size();
  const auto [stop, error] = std::from_chars(begin, end, id);
  const bool canonical = !key.empty() && key[0] != '-' && (key[0] != '0' || key.size() == 1);
  return canonical && error == std::errc() && stop == end;
}

}  // namespace

void RequestReader::MaxTokens(std::string_view name, const Value& v) {
  int64_t tokens = 0;
  if (!reader_.Int(name, v, -1, kInt64Max, tokens)) return;
  if (tokens == 0 && HoldsMessages(out_.api)) {
    reader_.Fail(name, "0 is not at least 1, nor -1 for no limit");
    return;
  }
  constexpr int64_t kNoLimit = std::numeric_limits<uint32_t>::max();
  const auto wanted = static_cast<uint32_t>(tokens < 0 ? kNoLimit : std::min(tokens, kNoLimit));
  if (out_.max_tokens && *out_.max_tokens != wanted) {
    reader_.Fail(name, "max_tokens and max_completion_tokens disagree");
    return;
  }
  out_.max_tokens = wanted;
}

// Seconds, with fractions.
void RequestReader::Timeout(std::string_view name, const Value& v) {
  float seconds = 0;
  if (!reader_.Number(name, v, 0, JsonReader::Low::kExclusive, kMaxTimeoutSeconds, seconds)) return;
  out_.timeout_us = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(seconds) * 1e6));
}

void RequestReader::Priority(std::string_view name, const Value& v) {
  int64_t priority = 0;
  if (reader_.Int(name, v, -kMaxPriority, kMaxPriority, priority)) {
    out_.priority = static_cast<int32_t>(priority);
  }
}

void RequestReader::ReturnProgress(std::string_view name, const Value& v) {
  reader_.Bool(name, v, out_.return_progress);
}

void RequestReader::ReturnTokens(std::string_view name, const Value& v) {
  reader_.Bool(name, v, out_.return_tokens);
}

void RequestReader::Echo(std::string_view name, const Value& v) {
  reader_.Bool(name, v, out_.echo);
}

void RequestReader::PromptLogprobs(std::string_view name, const Value& v) {
  int64_t top = 0;
  if (reader_.Int(name, v, 0, kMaxLogprobs, top)) out_.prompt_logprobs = static_cast<uint32_t>(top);
}

void RequestReader::MinTokens(std::string_view name, const Value& v) {
  int64_t tokens = 0;
  if (reader_.Int(name, v, 0, std::numeric_limits<uint32_t>::max(), tokens)) {
    out_.min_tokens = static_cast<uint32_t>(tokens);
  }
}

void RequestReader::IgnoreEos(std::string_view name, const Value& v) {
  reader_.Bool(name, v, out_.ignore_eos);
}

void RequestReader::Stop(std::string_view name, const Value& v) {
  const auto* list = v.if_array();
  if (list == nullptr) {
    AddStop(std::string(name), v);
    return;
  }
  if (list->size() > kMaxStops) {
    reader_.Fail(name, std::to_string(list->size()) + " stop strings, at most " +
                           std::to_string(kMaxStops) + " are taken");
  }
  for (size_t i = 0; i < list->size() && reader_.ok(); ++i) AddStop(PathOf(name, i), (*list)[i]);
}

void RequestReader::AddStop(const std::string& path, const Value& v) {
  std::string stop;
  if (!reader_.String(path, v, stop)) return;
  if (stop.empty()) {
    reader_.Fail(path, "is empty");
  } else if (stop.size() > kMaxStopBytes) {
    reader_.Fail(path, std::to_string(stop.size()) + " bytes, at most " +
                           std::to_string(kMaxStopBytes) + " are taken");
  } else {
    out_.stop.push_back(std::move(stop));
  }
}

void RequestReader::StopTokenIds(std::string_view name, const Value& v) {
  if (const auto* list = v.if_array()) {
    reader_.TokenIds(name, *list, kMaxStopTokens, out_.stop_token_ids);
  } else {
    reader_.WrongType(name, "an array of token ids", v);
  }
}

void RequestReader::Temperature(std::string_view name, const Value& v) {
  reader_.Number(name, v, 0, JsonReader::Low::kInclusive, 100, out_.sampling.temperature);
}

void RequestReader::TopP(std::string_view name, const Value& v) {
  reader_.Number(name, v, 0, JsonReader::Low::kExclusive, 1, out_.sampling.top_p);
}

// 0 and -1 mean off; more than the vocabulary means off too.
void RequestReader::TopK(std::string_view name, const Value& v) {
  int64_t k = 0;
  if (!reader_.Int(name, v, -1, kInt64Max, k)) return;
  constexpr int64_t kMax = std::numeric_limits<uint32_t>::max();
  out_.sampling.top_k = static_cast<uint32_t>(std::clamp<int64_t>(k, 0, kMax));
}

void RequestReader::MinP(std::string_view name, const Value& v) {
  reader_.Number(name, v, 0, JsonReader::Low::kInclusive, 1, out_.sampling.min_p);
}

void RequestReader::TypicalP(std::string_view name, const Value& v) {
  reader_.Number(name, v, 0, JsonReader::Low::kExclusive, 1, out_.sampling.typical_p);
}

void RequestReader::RepetitionPenalty(std::string_view name, const Value& v) {
  float penalty = 1;
  if (!reader_.Number(name, v, 0, JsonReader::Low::kExclusive, 100, penalty)) return;
  if (repetition_penalty_ && *repetition_penalty_ != penalty) {
    reader_.Fail(name, "repetition_penalty and repeat_penalty disagree");
    return;
  }
  repetition_penalty_ = penalty;
  out_.sampling.repetition_penalty = penalty;
}

void RequestReader::RepeatLastN(std::string_view name, const Value& v) {
  int64_t tokens = 0;
  constexpr int64_t kWhole = std::numeric_limits<uint32_t>::max();  // -1: the whole context
  if (!reader_.Int(name, v, -1, kWhole, tokens)) return;
  out_.sampling.repetition_last_n = static_cast<uint32_t>(tokens < 0 ? kWhole : tokens);
}

void RequestReader::PresencePenalty(std::string_view name, const Value& v) {
  reader_.Number(name, v, -kMaxCountPenalty, JsonReader::Low::kInclusive, kMaxCountPenalty,
                 out_.sampling.presence_penalty);
}

void RequestReader::FrequencyPenalty(std::string_view name, const Value& v) {
  reader_.Number(name, v, -kMaxCountPenalty, JsonReader::Low::kInclusive, kMaxCountPenalty,
                 out_.sampling.frequency_penalty);
}

// {"50256": -100, ...}, or llama-server's [[50256, -100], [7, false], ...]. Whether an id is in the
// vocabulary is checked where that is known (B042).
void RequestReader::LogitBiases(std::string_view name, const Value& v) {
  const auto* map = v.if_object();
  const auto* pairs = v.if_array();
  if (map == nullptr && pairs == nullptr) {
    reader_.WrongType(name, "an object of token ids and numbers", v);
    return;
  }
  const size_t count = map != nullptr ? map->size() : pairs->size();
  if (count > kMaxLogitBiases) {
    reader_.Fail(name, std::to_string(count) + " entries, at most " +
                           std::to_string(kMaxLogitBiases) + " are taken");
    return;
  }
  out_.sampling.logit_bias.clear();
  for (size_t i = 0; pairs != nullptr && i < pairs->size() && reader_.ok(); ++i) {
    LogitBiasPair(PathOf(name, i), (*pairs)[i]);
  }
  if (map == nullptr) return;
  for (const auto& member : *map) {
    const std::string_view key(member.key().data(), member.key().size());
    TokenId id = -1;
    if (!ReadTokenKey(key, id)) {
      reader_.Fail(name, Quoted(key) + " is no token id");
      return;
    }
    if (!AddLogitBias(PathOf(name, key), id, member.value())) return;
  }
}

void RequestReader::LogitBiasPair(const std::string& path, const Value& v) {
  const auto* pair = v.if_array();
  if (pair == nullptr || pair->size() != 2) {
    reader_.WrongType(path, "a pair of token id and number", v);
    return;
  }
  int64_t id = 0;
  if ((*pair)[0].is_string()) {
    reader_.NotOffered(PathOf(path, 0), "text in place of a token id");
  } else if (reader_.Int(PathOf(path, 0), (*pair)[0], 0, std::numeric_limits<TokenId>::max(), id)) {
    AddLogitBias(PathOf(path, 1), static_cast<TokenId>(id), (*pair)[1]);
  }
}

// `false`: never.
bool RequestReader::AddLogitBias(const std::string& path, TokenId id, const Value& v) {
  LogitBias entry{id, -kMaxLogitBias};
  const bool never = v.is_bool() && !v.get_bool();
  if (!never && !reader_.Number(path, v, -kMaxLogitBias, JsonReader::Low::kInclusive, kMaxLogitBias,
                                entry.bias)) {
    return false;
  }
  out_.sampling.logit_bias.push_back(entry);
  return true;
}

void RequestReader::Seed(std::string_view name, const Value& v) {
  if (const auto* large = v.if_uint64()) {
    out_.seed = *large;
    return;
  }
  int64_t seed = 0;
  if (!reader_.Int(name, v, std::numeric_limits<int64_t>::min(), kInt64Max, seed)) return;
  // -1 asks for any seed, as llama-server has it.
  out_.seed.reset();
  if (seed != -1) out_.seed = static_cast<uint64_t>(seed);
}

void RequestReader::ChatLogprobs(std::string_view name, const Value& v) {
  bool wanted = false;
  if (reader_.Bool(name, v, wanted)) chat_logprobs_ = wanted;
}

void RequestReader::TopLogprobs(std::string_view name, const Value& v) {
  int64_t top = 0;
  if (reader_.Int(name, v, 0, kMaxLogprobs, top)) top_logprobs_ = static_cast<uint32_t>(top);
}

void RequestReader::CompletionLogprobs(std::string_view name, const Value& v) {
  int64_t top = 0;
  if (reader_.Int(name, v, 0, kMaxLogprobs, top)) out_.logprobs = static_cast<uint32_t>(top);
}

}  // namespace kvrm
