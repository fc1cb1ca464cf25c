#include "text/hub_decoder.h"

#include <string>

#include "text/json_fields.h"

namespace kvrm {
namespace {

namespace json = boost::json;

constexpr std::string_view kDecoderBlank = "\u2581";

// What the steps of a decoder do between them.
class DecoderReader {
 public:
  Status Read(const json::value& value, const std::string& path) {
    if (!value.is_object()) return hub::Invalid(path + " is no object");
    const json::object& step = value.get_object();
    KVRM_ASSIGN_OR_RETURN(const std::string type, hub::String(step, "type", path));
    if (type == "Sequence") return Each(step, path);
    if (type == "ByteLevel") {
      bytes_ = true;
    } else if (type == "ByteFallback") {
      byte_fallback_ = true;
    } else if (type == "Replace") {
      return Replace(step, path);
    } else if (type == "Metaspace") {
      KVRM_ASSIGN_OR_RETURN(const std::string blank, hub::String(step, "replacement", path));
      if (blank != kDecoderBlank) return Odd(path, "Metaspace with", blank);
      blanks_ = true;
    } else if (type == "Strip") {
      return Strip(step, path);
    } else if (type != "Fuse") {  // joins, as all of them do at the end
      return hub::NotOffered(path + " \"" + ForMessage(type) + "\"");
    }
    return Ok();
  }

  Status Finish(const TokenizerSpec& spec, bool byte_fallback) const {
    const bool by_characters = spec.model == "llama";
    if (bytes_ == by_characters || blanks_ != by_characters) {
      return hub::NotOffered(by_characters ? "decoder without blanks for U+2581"
                                           : "decoder without ByteLevel, or with blanks beside it");
    }
    if (byte_fallback != byte_fallback_) {
      return hub::NotOffered(byte_fallback ? "decoder without ByteFallback beside byte_fallback"
                                           : "decoder with ByteFallback without byte_fallback");
    }
    return Ok();
  }

 private:
  static Error Odd(const std::string& path, const std::string& what, std::string_view text) {
    return hub::NotOffered(path + ": " + what + " \"" + ForMessage(text) + "\"");
  }

  Status Each(const json::object& sequence, const std::string& path) {
    const std::string list_path = hub::PathOf(path, "decoders");
    const json::value* list = hub::Find(sequence, "decoders");
    if (list == nullptr || !list->is_array()) return hub::Invalid(list_path + " is no list");
    size_t i = 0;
    for (const json::value& step : list->get_array()) {
      KVRM_RETURN_IF_ERROR(Read(step, list_path + "[" + std::to_string(i++) + "]"));
    }
    return Ok();
  }

  Status Replace(const json::object& step, const std::string& path) {
    const json::value* pattern = hub::Find(step, "pattern");
    if (pattern == nullptr || !pattern->is_object()) {
      return hub::Invalid(path + ".pattern is no object");
    }
    KVRM_ASSIGN_OR_RETURN(const std::string from,
                          hub::String(pattern->get_object(), "String", path + ".pattern"));
    KVRM_ASSIGN_OR_RETURN(const std::string to, hub::String(step, "content", path));
    if (from != kDecoderBlank || to != " ") return Odd(path, "Replace of", from);
    blanks_ = true;
    return Ok();
  }

  // The blank that encoding put before a text: Tokenizer::Decode takes it away by that rule.
  static Status Strip(const json::object& step, const std::string& path) {
    KVRM_ASSIGN_OR_RETURN(const std::string content, hub::String(step, "content", path));
    const json::value* start = hub::Find(step, "start");
    const json::value* stop = hub::Find(step, "stop");
    const bool one = start != nullptr && (*start == 0 || *start == 1);
    const bool none = stop == nullptr || *stop == 0;
    if (content != " " || !one || !none) return Odd(path, "Strip of", content);
    return Ok();
  }

  bool bytes_ = false, blanks_ = false, byte_fallback_ = false;
};

}  // namespace

Status CheckHubDecoder(const json::value& decoder, const TokenizerSpec& spec, bool byte_fallback) {
  if (decoder.is_null()) return Ok();
  DecoderReader reader;
  KVRM_RETURN_IF_ERROR(reader.Read(decoder, "decoder"));
  return reader.Finish(spec, byte_fallback);
}

}  // namespace kvrm
