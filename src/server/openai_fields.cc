#include "server/openai_fields.h"

#include <algorithm>
#include <iterator>

namespace kvrm {
namespace {

namespace json = boost::json;

// ---- fields that are not offered: the values that ask for nothing, and so pass
enum class NoOp : uint8_t {
  kNull,        // null alone
  kZero,        // 0
  kOne,         // 1
  kFalse,       // false
  kTrue,        // true
  kEmpty,       // "", [] or {}
  kNoTool,      // "none" or "auto": there is no tool to choose
  kTextFormat,  // {"type": "text"}
  kTextOnly,    // ["text"]
  kTextPlain,   // {"format": {"type": "text"}}, or without a format
  kDisabled,    // "disabled", {"type": "disabled"}
};

struct RefusedField {
  std::string_view name;
  uint8_t apis;
  NoOp no_op;
};

constexpr RefusedField kRefused[] = {
    {"tools", kAll, NoOp::kEmpty},
    {"tool_choice", kAll, NoOp::kNoTool},
    {"functions", kAll, NoOp::kEmpty},
    {"function_call", kAll, NoOp::kNoTool},
    {"response_format", kAll, NoOp::kTextFormat},
    {"n", kAll & ~kBoth, NoOp::kOne},
    {"logprobs", kResponsesOnly | kMessagesOnly | kNativeOnly, NoOp::kFalse},
    {"top_logprobs", kResponsesOnly | kMessagesOnly, NoOp::kZero},
    {"best_of", kAll, NoOp::kOne},
    {"suffix", kAll, NoOp::kEmpty},
    {"echo", kAll & ~kCompletionsOnly, NoOp::kFalse},
    {"prompt_logprobs", kAll & ~kBoth, NoOp::kNull},
    {"modalities", kAll, NoOp::kTextOnly},
    {"audio", kAll, NoOp::kNull},
    {"prediction", kAll, NoOp::kNull},
    {"web_search_options", kAll, NoOp::kNull},
    {"reasoning_effort", kAll, NoOp::kNull},
    {"tfs_z", kAll, NoOp::kOne},
    {"top_a", kAll, NoOp::kZero},
    {"mirostat", kAll, NoOp::kZero},
    {"dynatemp_range", kAll, NoOp::kZero},
    {"dry_multiplier", kAll, NoOp::kZero},
    {"xtc_probability", kAll, NoOp::kZero},
    {"length_penalty", kAll, NoOp::kOne},
    {"use_beam_search", kAll, NoOp::kFalse},
    {"bad_words", kAll, NoOp::kEmpty},
    {"allowed_token_ids", kAll, NoOp::kNull},
    {"grammar", kAll, NoOp::kEmpty},
    {"json_schema", kAll, NoOp::kNull},
    {"structured_outputs", kAll, NoOp::kNull},
    {"guided_json", kAll, NoOp::kNull},
    {"guided_regex", kAll, NoOp::kNull},
    {"guided_choice", kAll, NoOp::kNull},
    {"guided_grammar", kAll, NoOp::kNull},
    {"lora", kAll, NoOp::kEmpty},
    {"skip_special_tokens", kAll, NoOp::kTrue},
    {"include_stop_str_in_output", kAll, NoOp::kFalse},
    {"add_generation_prompt", kChatOnly, NoOp::kTrue},
    {"continue_final_message", kChatOnly, NoOp::kFalse},
    {"chat_template", kChatOnly, NoOp::kNull},
    {"chat_template_kwargs", kChatOnly, NoOp::kEmpty},
    {"documents", kChatOnly, NoOp::kEmpty},
    // ---- llama-server
    {"image_data", kNativeOnly, NoOp::kEmpty},
    {"n_keep", kNativeOnly, NoOp::kZero},
    {"n_discard", kNativeOnly, NoOp::kZero},
    {"n_indent", kNativeOnly, NoOp::kZero},
    {"t_max_predict_ms", kNativeOnly, NoOp::kZero},
    {"min_keep", kNativeOnly, NoOp::kZero},
    {"samplers", kNativeOnly, NoOp::kEmpty},
    {"response_fields", kNativeOnly, NoOp::kEmpty},
    {"post_sampling_probs", kNativeOnly, NoOp::kFalse},
    // ---- OpenAI's responses
    {"previous_response_id", kResponsesOnly, NoOp::kNull},
    {"conversation", kResponsesOnly, NoOp::kNull},
    {"background", kResponsesOnly, NoOp::kFalse},
    {"include", kResponsesOnly, NoOp::kEmpty},
    {"prompt", kResponsesOnly, NoOp::kNull},
    {"reasoning", kResponsesOnly, NoOp::kEmpty},
    {"text", kResponsesOnly, NoOp::kTextPlain},
    {"truncation", kResponsesOnly, NoOp::kDisabled},
    // ---- Anthropic's messages
    {"thinking", kMessagesOnly, NoOp::kDisabled},
    {"mcp_servers", kMessagesOnly, NoOp::kEmpty},
    {"container", kMessagesOnly, NoOp::kNull},
};

// Fields that change nothing in an answer: taken, not logged.
constexpr std::string_view kAccepted[] = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "cache_prompt",
    "safety_identifier",
    "request_id",
    "id_slot",
    "parallel_tool_calls",
    "timings_per_token",
    // Parameters of samplers that are off.
    "dynatemp_exponent",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "xtc_threshold",
    "mirostat_tau",
    "mirostat_eta",
};

bool IsNumber(const json::value& v, double number) {
  return v.is_number() && v.to_number<double>() == number;
}

bool IsText(const json::value* v) {
  const auto* s = v == nullptr ? nullptr : v->if_string();
  return s != nullptr && *s == "text";
}

bool AsksForNothing(NoOp no_op, const json::value& v) {
  const bool* b = v.if_bool();
  const auto* s = v.if_string();
  switch (no_op) {
    case NoOp::kNull:
      return false;
    case NoOp::kZero:
      return IsNumber(v, 0);
    case NoOp::kOne:
      return IsNumber(v, 1);
    case NoOp::kFalse:
      return b != nullptr && !*b;
    case NoOp::kTrue:
      return b != nullptr && *b;
    case NoOp::kEmpty:
      return IsEmptyValue(v);
    case NoOp::kNoTool:
      return s != nullptr && (*s == "none" || *s == "auto");
    case NoOp::kTextFormat:
      return v.is_object() && IsText(v.get_object().if_contains("type"));
    case NoOp::kTextPlain: {
      const auto* o = v.if_object();
      const auto* format = o == nullptr ? nullptr : o->if_contains("format");
      return o != nullptr && (format == nullptr || AsksForNothing(NoOp::kTextFormat, *format));
    }
    case NoOp::kDisabled: {
      const auto* o = v.if_object();
      const auto* type = o == nullptr ? &v : o->if_contains("type");
      return type != nullptr && type->is_string() && type->get_string() == "disabled";
    }
    case NoOp::kTextOnly:
      return v.is_array() && v.get_array().size() == 1 && IsText(&v.get_array()[0]);
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
