// One broken file a check, named after it; the fuzz targets begin with them.
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "base/broken_corpus.h"
#include "model/generation_defaults.h"
#include "model/hub_config.h"
#include "model/safetensors.h"
#include "model/safetensors_index.h"

namespace kvrm {
namespace {

constexpr testing::BrokenFile kBrokenFolderFiles[] = {
    {"no_header.safetensors", "has no header"},
    {"header_past_the_end.safetensors", "header has 3 bytes, the file 10 in all"},
    {"header_past_2_63.safetensors", "header has 18446744073709551615 bytes"},
    {"header_no_json.safetensors", "header is no JSON object"},
    {"header_no_object.safetensors", "header is no JSON object"},
    {"tensor_no_object.safetensors", "tensor 'a' is no JSON object"},
    {"no_dtype.safetensors", "tensor 'a' has no dtype"},
    {"dtype_unknown.safetensors", "has dtype 'F8_E4M3', readable: F32 F16 BF16"},
    {"no_shape.safetensors", "has no shape"},
    {"no_dimensions.safetensors", "has 0 dimensions"},
    {"five_dimensions.safetensors", "has 5 dimensions"},
    {"dimension_no_number.safetensors", "shape holds what is no whole number"},
    {"dimension_negative.safetensors", "shape holds what is no whole number"},
    {"dimension_zero.safetensors", "has a dimension of 0"},
    {"values_past_2_64.safetensors", "has 2^64 values or more"},
    {"bytes_past_2_64.safetensors", "need 4 each"},
    {"no_offsets.safetensors", "has no data_offsets of two numbers"},
    {"one_offset.safetensors", "has no data_offsets of two numbers"},
    {"offset_no_number.safetensors", "data_offsets holds what is no whole number"},
    {"offsets_backwards.safetensors", "lies at 4 to 0"},
    {"offsets_past_the_end.safetensors", "the file's data has 4 bytes"},
    {"bytes_of_another_shape.safetensors", "has 4 bytes, 2 values of F32 need 4 each"},
    {"hole_between.safetensors", "begins at 8, the one before ends at 4"},
    {"overlap.safetensors", "begins at 0, the one before ends at 4"},
    {"hole_at_the_end.safetensors", "tensors fill 4 of 8 bytes of data"},
    {"name_twice.safetensors", "the one before ends at 0"},
    {"no_json.index.json", "is no JSON object"},
    {"no_object.index.json", "is no JSON object"},
    {"no_weight_map.index.json", "has no weight_map"},
    {"weight_map_no_object.index.json", "has no weight_map"},
    {"file_no_name.index.json", "lies in ''"},
    {"file_elsewhere.index.json", "lies in '/etc/passwd'"},
    {"file_above.index.json", "lies in '../m.safetensors'"},
    {"file_is_the_folder.index.json", "lies in '..'"},
    {"no_json.config.json", "is no JSON object"},
    {"no_object.config.json", "is no JSON object"},
    {"no_model_type.config.json", "model_type is ''"},
    {"model_type_no_string.config.json", "field 'model_type' is no string"},
    {"model_type_unknown.config.json", "model_type is 'gpt_neox', known: "},
    {"another_activation.config.json", "field 'hidden_act' is 'relu', family llama has silu"},
    {"count_negative.config.json", "field 'num_hidden_layers' is no whole number"},
    {"count_with_fraction.config.json", "field 'hidden_size' is no whole number"},
    {"number_no_number.config.json", "field 'rms_norm_eps' is no number"},
    {"flag_no_bool.config.json", "field 'tie_word_embeddings' is no bool"},
    {"layer_types_no_list.config.json", "field 'layer_types' is no list"},
    {"layer_type_unknown.config.json", "field 'layer_types' holds"},
    {"no_rope_layers_no_list.config.json", "field 'no_rope_layers' is no list"},
    {"rope_scaling_no_object.config.json", "field 'rope_scaling' is no object"},
    {"rope_kind_unknown.config.json", "RoPE scaling is 'longrope'"},
    {"rope_kind_without_factor.config.json", "RoPE scaling is 'linear'"},
    {"no_json.generation_config.json", "is no JSON object"},
    {"no_object.generation_config.json", "is no JSON object"},
    {"temperature_no_number.generation_config.json", "field 'temperature' is no number"},
    {"top_k_with_fraction.generation_config.json", "field 'top_k' is no whole number"},
    {"end_token_no_id.generation_config.json", "field 'eos_token_id' is no token id"},
    {"end_token_negative.generation_config.json", "field 'eos_token_id' is no token id"},
    {"end_tokens_past_64.generation_config.json", "list of at most 64 ids"},
    {"nested_too_deep.safetensors", "header is no JSON object"},
    {"rope_yarn_without_factor.config.json",
     "RoPE scaling is 'yarn', built: default, linear, llama3 and yarn, with their factor"},
    {"rope_yarn_without_truncate.config.json", "field 'truncate' of RoPE scaling yarn"},
    {"rope_local_kind.config.json", "RoPE scaling of sliding_attention is 'linear'"},
    {"window_null_of_gemma.config.json",
     "field 'sliding_window' is null, family gemma2 needs a number"},
    {"attention_both_ways.config.json", "field 'use_bidirectional_attention' is true"},
    {"no_rope_layer_interval_0.config.json", "field 'no_rope_layer_interval' is 0"},
    {"rope_of_full_layers_no_object.config.json",
     "field 'rope_parameters.full_attention' is no object"},
    {"rope_of_sliding_layers_no_object.config.json",
     "field 'rope_parameters.sliding_attention' is no object"},
    {"rope_parameters_no_object.config.json", "field 'rope_parameters' is no object"},
    {"rope_yarn_truncate_null.config.json", "field 'truncate' of RoPE scaling yarn"},
    {"partial_rotary_factor.config.json", "field 'partial_rotary_factor' is 0.5"},
    {"partial_rotary_factor_of_rope.config.json", "field 'partial_rotary_factor' is 0.5"},
    {"sliding_layers_unknown.config.json",
     "field 'use_sliding_window' is true, but no layer_types"},
    {"rope_llama3_without_bands.config.json", "RoPE scaling llama3 needs low_freq_factor"},
};

// What the reader of a file of such a name says.
std::string RefusalOfFolderFile(const std::string& name, const std::string& text) {
  const auto message = [](const auto& result) { return result.ok() ? "" : result.error().message; };
  if (name.ends_with(".safetensors"))
    return message(ParseSafetensors(std::as_bytes(std::span(text))));
  if (name.ends_with(".index.json")) return message(ParseSafetensorsIndex(text));
  if (name.ends_with(".generation_config.json")) return message(ReadHubGeneration(text));
  return message(ReadHubConfig(text, "broken"));
}

TEST(BrokenFolder, EachFileIsRefusedByTheCheckThatItIsNamedAfter) {
  testing::ExpectEachRefusedByItsCheck("safetensors/broken", "", kBrokenFolderFiles,
                                       RefusalOfFolderFile);
}

}  // namespace
}  // namespace kvrm
