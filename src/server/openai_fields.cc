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
};

struct RefusedField {
  std::string_view name;
  uint8_t apis;
  NoOp no_op;
};

constexpr RefusedField kRefused[] = {
    {"tools", kBoth, NoOp::kEmpty},
    {"tool_choice", kBoth, NoOp::kNoTool},
    {"functions", kBoth, NoOp::kEmpty},
    {"function_call", kBoth, NoOp::kNoTool},
    {"response_format", kBoth, NoOp::kTextFormat},
    {"best_of", kBoth, NoOp::kOne},
    {"suffix", kBoth, NoOp::kEmpty},
    {"echo", kBoth, NoOp::kFalse},
    {"prompt_logprobs", kBoth, NoOp::kNull},
    {"modalities", kBoth, NoOp::kTextOnly},
    {"audio", kBoth, NoOp::kNull},
    {"prediction", kBoth, NoOp::kNull},
    {"web_search_options", kBoth, NoOp::kNull},
    {"reasoning_effort", kBoth, NoOp::kNull},
    {"tfs_z", kBoth, NoOp::kOne},
    {"top_a", kBoth, NoOp::kZero},
    {"mirostat", kBoth, NoOp::kZero},
    {"dynatemp_range", kBoth, NoOp::kZero},
    {"dry_multiplier", kBoth, NoOp::kZero},
    {"xtc_probability", kBoth, NoOp::kZero},
    {"length_penalty", kBoth, NoOp::kOne},
    {"use_beam_search", kBoth, NoOp::kFalse},
    {"bad_words", kBoth, NoOp::kEmpty},
    {"allowed_token_ids", kBoth, NoOp::kNull},
    {"grammar", kBoth, NoOp::kEmpty},
    {"json_schema", kBoth, NoOp::kNull},
    {"structured_outputs", kBoth, NoOp::kNull},
    {"guided_json", kBoth, NoOp::kNull},
    {"guided_regex", kBoth, NoOp::kNull},
    {"guided_choice", kBoth, NoOp::kNull},
    {"guided_grammar", kBoth, NoOp::kNull},
    {"lora", kBoth, NoOp::kEmpty},
    {"skip_special_tokens", kBoth, NoOp::kTrue},
    {"include_stop_str_in_output", kBoth, NoOp::kFalse},
    {"add_generation_prompt", kChatOnly, NoOp::kTrue},
    {"continue_final_message", kChatOnly, NoOp::kFalse},
    {"chat_template", kChatOnly, NoOp::kNull},
    {"chat_template_kwargs", kChatOnly, NoOp::kEmpty},
    {"documents", kChatOnly, NoOp::kEmpty},
};

// Fields that change nothing in an answer: taken, not logged.
constexpr std::string_view kAccepted[] = {
    "user",     "metadata",         "store",        "service_tier",
    "n_probs",  "prompt_cache_key", "cache_prompt", "safety_identifier",
    "priority", "request_id",       "id_slot",      "parallel_tool_calls",
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
