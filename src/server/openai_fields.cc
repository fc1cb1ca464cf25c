#include "server/openai_fields.h"

#include <algorithm>
#include <iterator>

namespace kvrm {
namespace {

namespace json = boost::json;

// ---- fields that are not offered: the values that ask for nothing, and so pass
enum class NoOp : uint8_t {
  kNull,         // null alone
  kZero,         // 0
  kOne,          // 1
  kNotPositive,  // 0 and below
  kFalse,        // false
  kTrue,         // true
  kEmpty,        // "", [] or {}
  kNoneOrAuto,   // "none" or "auto", or {"type": one of them}: there is nothing to choose from
  kMedium,       // "medium"
  kNoEffort,     // "none", or an object of null and "none"
  kTextFormat,   // {"type": "text"}
  kTextOnly,     // ["text"]
  kTextPlain,    // {"format": {"type": "text"}, "verbosity": "medium"}, or some of it
  kDisabled,     // "disabled", {"type": "disabled"}
};

struct RefusedField {
  std::string_view name;
  uint8_t apis;
  NoOp no_op;
};

constexpr RefusedField kRefused[] = {
    // ---- tools, structured output
    {"tools", kAll, NoOp::kEmpty},
    {"tool_choice", kAll, NoOp::kNoneOrAuto},
    {"functions", kAll, NoOp::kEmpty},
    {"function_call", kAll, NoOp::kNoneOrAuto},
    {"response_format", kAll, NoOp::kTextFormat},
    {"grammar", kAll, NoOp::kEmpty},
    {"json_schema", kAll, NoOp::kNull},
    {"structured_outputs", kAll, NoOp::kNull},
    {"guided_json", kAll, NoOp::kNull},
    {"guided_regex", kAll, NoOp::kNull},
    {"guided_choice", kAll, NoOp::kNull},
    {"guided_grammar", kAll, NoOp::kNull},
    {"logits_processors", kAll, NoOp::kEmpty},
    // ---- other inputs and outputs than text
    {"modalities", kAll, NoOp::kTextOnly},
    {"audio", kAll, NoOp::kNull},
    {"images", kAll, NoOp::kEmpty},
    {"image_data", kAll, NoOp::kEmpty},
    {"prompt_embeds", kAll, NoOp::kEmpty},
    {"mm_processor_kwargs", kAll, NoOp::kEmpty},
    {"media_io_kwargs", kAll, NoOp::kEmpty},
    // ---- other models: adapters, drafts
    {"lora", kAll, NoOp::kEmpty},
    {"speculative.n_max", kAll, NoOp::kZero},
    {"speculative.n_min", kAll, NoOp::kZero},
    {"speculative.p_min", kAll, NoOp::kZero},
    {"num_assistant_tokens", kAll, NoOp::kZero},
    {"assistant_confidence_threshold", kAll, NoOp::kZero},
    {"max_ngram_size", kAll, NoOp::kZero},
    {"prediction", kAll, NoOp::kNull},
    // ---- choices and scores that an API has no room for
    {"n", kAll & ~kBoth, NoOp::kOne},
    {"n_cmpl", kAll, NoOp::kOne},
    {"best_of", kAll, NoOp::kOne},
    {"use_beam_search", kAll, NoOp::kFalse},
    {"num_beams", kAll, NoOp::kOne},
    {"num_return_sequences", kAll, NoOp::kOne},
    {"diversity_penalty", kAll, NoOp::kZero},
    {"length_penalty", kAll, NoOp::kOne},
    {"logprobs", kResponsesOnly | kMessagesOnly | kNativeOnly, NoOp::kFalse},
    {"top_logprobs", kMessagesOnly | kNativeOnly, NoOp::kZero},
    {"prompt_logprobs", kAll & ~kBoth, NoOp::kNull},
    {"post_sampling_probs", kAll, NoOp::kFalse},
    {"return_token_ids", kAll, NoOp::kFalse},
    {"return_tokens_as_token_ids", kAll, NoOp::kFalse},
    {"response_fields", kAll, NoOp::kEmpty},
    // ---- samplers
    {"samplers", kAll, NoOp::kEmpty},
    {"tfs_z", kAll, NoOp::kOne},
    {"top_a", kAll, NoOp::kZero},
    {"top_n_sigma", kAll, NoOp::kNotPositive},
    {"mirostat", kAll, NoOp::kZero},
    {"dynatemp_range", kAll, NoOp::kZero},
    {"dry_multiplier", kAll, NoOp::kZero},
    {"xtc_probability", kAll, NoOp::kZero},
    {"min_keep", kAll, NoOp::kZero},
    {"bad_words", kAll, NoOp::kEmpty},
    {"allowed_token_ids", kAll, NoOp::kNull},
    // ---- how a prompt is made, how much of it is kept
    {"suffix", kAll, NoOp::kEmpty},
    {"echo", kAll & ~kCompletionsOnly, NoOp::kFalse},
    {"add_special_tokens", kChatOnly, NoOp::kFalse},
    {"add_special_tokens", kAll & ~kChatOnly, NoOp::kTrue},
    {"add_generation_prompt", kChatOnly, NoOp::kTrue},
    {"continue_final_message", kChatOnly, NoOp::kFalse},
    {"chat_template", kChatOnly, NoOp::kNull},
    {"chat_template_kwargs", kChatOnly, NoOp::kEmpty},
    {"documents", kChatOnly, NoOp::kEmpty},
    {"truncate_prompt_tokens", kAll, NoOp::kNull},
    {"cache_salt", kAll, NoOp::kNull},
    {"kv_transfer_params", kAll, NoOp::kNull},
    {"n_keep", kAll, NoOp::kZero},
    {"n_discard", kAll, NoOp::kZero},
    {"n_indent", kAll, NoOp::kZero},
    {"t_max_predict_ms", kAll, NoOp::kZero},
    // ---- how an answer reads
    {"skip_special_tokens", kAll, NoOp::kTrue},
    {"include_stop_str_in_output", kAll, NoOp::kFalse},
    {"verbosity", kAll, NoOp::kMedium},
    {"reasoning_effort", kAll, NoOp::kNoEffort},
    {"reasoning_format", kAll, NoOp::kNoneOrAuto},
    {"thinking_token_budget", kAll, NoOp::kNull},
    {"web_search_options", kAll, NoOp::kNull},
    // ---- OpenAI's responses
    {"previous_response_id", kResponsesOnly, NoOp::kNull},
    {"conversation", kResponsesOnly, NoOp::kNull},
    {"background", kResponsesOnly, NoOp::kFalse},
    {"prompt", kResponsesOnly, NoOp::kNull},
    {"reasoning", kResponsesOnly, NoOp::kNoEffort},
    {"text", kResponsesOnly, NoOp::kTextPlain},
    {"truncation", kResponsesOnly, NoOp::kDisabled},
    {"context_management", kResponsesOnly | kMessagesOnly, NoOp::kEmpty},
    // ---- Anthropic's messages
    {"thinking", kMessagesOnly, NoOp::kDisabled},
    {"mcp_servers", kMessagesOnly, NoOp::kEmpty},
    {"container", kMessagesOnly, NoOp::kNull},
    {"output_format", kMessagesOnly, NoOp::kNull},
    {"output_config", kMessagesOnly, NoOp::kEmpty},
};

// Fields that change nothing in an answer: taken, not logged.
constexpr std::string_view kAccepted[] = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "cache_prompt",
    "cache_control",
    "safety_identifier",
    "request_id",
    "id_slot",
    "timings_per_token",
    // Parameters of what is off.
    "parallel_tool_calls",
    "max_tool_calls",
    "include_reasoning",
    "spaces_between_special_tokens",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
    "dynatemp_exponent",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "xtc_threshold",
    "mirostat_tau",
    "mirostat_eta",
};

bool IsNumber(const json::value& v, double number) {
  return v.is_number() && v.to_number<double>() == number;
}

bool IsText(const json::value& v, std::string_view text) {
  const auto* s = v.if_string();
  return s != nullptr && *s == text;
}

// The member `key` of an object, null when absent or when `v` is none.
const json::value* MemberOf(const json::value& v, std::string_view key) {
  const auto* o = v.if_object();
  return o == nullptr ? nullptr : o->if_contains(key);
}

bool IsTextFormat(const json::value& v) {
  const json::value* type = MemberOf(v, "type");
  return type != nullptr && IsText(*type, "text");
}

// Whether `v` is an object all members of which are null or pass `asks_for_nothing(key, value)`.
template <class Test>
bool EachMember(const json::value& v, Test asks_for_nothing) {
  const auto* o = v.if_object();
  return o != nullptr && std::all_of(o->begin(), o->end(), [&](const auto& member) {
           return member.value().is_null() || asks_for_nothing(member.key(), member.value());
         });
}

bool AsksForNothing(NoOp no_op, const json::value& v) {
  // Some are said as text or as the type of an object.
  const json::value* type = MemberOf(v, "type");
  const json::value& said = type == nullptr ? v : *type;
  switch (no_op) {
    case NoOp::kNull:
      return false;
    case NoOp::kZero:
      return IsNumber(v, 0);
    case NoOp::kOne:
      return IsNumber(v, 1);
    case NoOp::kNotPositive:
      return v.is_number() && v.to_number<double>() <= 0;
    case NoOp::kFalse:
      return v.is_bool() && !v.get_bool();
    case NoOp::kTrue:
      return v.is_bool() && v.get_bool();
    case NoOp::kEmpty:
      return IsEmptyValue(v);
    case NoOp::kNoneOrAuto:
      return IsText(said, "none") || IsText(said, "auto");
    case NoOp::kMedium:
      return IsText(v, "medium");
    case NoOp::kNoEffort:
      return IsText(v, "none") || EachMember(v, [](std::string_view, const json::value& member) {
               return IsText(member, "none");
             });
    case NoOp::kTextFormat:
      return IsTextFormat(v);
    case NoOp::kTextOnly:
      return v.is_array() && v.get_array().size() == 1 && IsText(v.get_array()[0], "text");
    case NoOp::kTextPlain:
      return EachMember(v, [](std::string_view key, const json::value& member) {
        return key == "format" ? IsTextFormat(member)
                               : key != "verbosity" || IsText(member, "medium");
      });
    case NoOp::kDisabled:
      return IsText(said, "disabled");
  }
  return false;
}

}  // namespace

bool IsEmptyValue(const json::value& v) {
  if (const auto* s = v.if_string()) return s->empty();
  if (const auto* a = v.if_array()) return a->empty();
  if (const auto* o = v.if_object()) return o->empty();
  return false;
}

FieldVerdict JudgeField(Api api, std::string_view name, const json::value& v) {
  for (const auto& field : kRefused) {
    if (field.name != name || (field.apis & ApiBit(api)) == 0) continue;
    return v.is_null() || AsksForNothing(field.no_op, v) ? FieldVerdict::kNoEffect
                                                         : FieldVerdict::kNotOffered;
  }
  const bool accepted =
      std::find(std::begin(kAccepted), std::end(kAccepted), name) != std::end(kAccepted);
  return accepted ? FieldVerdict::kNoEffect : FieldVerdict::kUnknown;
}

}  // namespace kvrm
