// One broken GGUF file a check, named after it; the fuzz target begins with them.
// tools/oracle/broken_gguf.py writes them.
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "base/broken_corpus.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace kvrm {
namespace {

constexpr testing::BrokenFile kBrokenGgufs[] = {
    {"magic_cut_off.gguf", "truncated at magic"},
    {"magic_of_another_format.gguf", "must be 'GGUF': not a GGUF file"},
    {"version_cut_off.gguf", "truncated at version"},
    {"version_unknown.gguf", "version is 1, must be 2 or 3"},
    {"version_big_endian.gguf", "(a big-endian file)"},
    {"tensor_count_cut_off.gguf", "truncated at tensor count"},
    {"key_count_cut_off.gguf", "truncated at key count"},
    {"key_count_past_the_end.gguf", "key count is 1000000000000000000"},
    {"tensor_count_past_the_end.gguf", "tensor count is 1000000000000000000"},
    {"key_empty.gguf", "key 0 has length 0, must be 1 to 65535"},
    {"key_too_long.gguf", "key 0 has length 65536, must be 1 to 65535"},
    {"key_cut_off.gguf", "truncated at key 0: needs 100 bytes"},
    {"value_type_unknown.gguf", "key 'k' has value type 13, must be below 13"},
    {"value_cut_off.gguf", "truncated at key 'key': needs 4 bytes"},
    {"bool_of_2.gguf", "key 'k' is bool 2"},
    {"string_past_the_end.gguf", "truncated at key 'k': needs 18446744073709551615 bytes"},
    {"array_type_unknown.gguf", "array of key 'k' has value type 77"},
    {"array_of_arrays.gguf", "key 'k' is an array of arrays"},
    {"array_length_past_the_end.gguf", "length of array of key 'k' is 9223372036854775808"},
    {"array_string_cut_off.gguf", "truncated at array of key 'k': needs 9 bytes"},
    {"array_number_past_2_63.gguf", "array of key 'k' holds 9223372036854775808"},
    {"alignment_no_unsigned.gguf", "'general.alignment' has another type"},
    {"alignment_no_power_of_two.gguf", "'general.alignment' is 3, must be a power of two"},
    {"tensor_name_empty.gguf", "tensor 0 has length 0, must be 1 to 64"},
    {"tensor_name_too_long.gguf", "tensor 0 has length 65, must be 1 to 64"},
    {"dimensions_none.gguf", "tensor 't' has 0 dimensions"},
    {"dimensions_five.gguf", "tensor 't' has 5 dimensions"},
    {"dimension_0.gguf", "tensor 't' has dimension 1 of 0"},
    {"values_past_2_64.gguf", "tensor 't' has 2^64 values or more"},
    {"tensor_type_unknown.gguf", "tensor 't' has type 99"},
    {"row_of_no_whole_blocks.gguf", "tensor 't' has row length 33, must be a multiple of 32"},
    {"offset_unaligned.gguf", "tensor 't' has offset 4, must be a multiple of 32"},
    {"tensor_cut_off.gguf", "truncated at tensor 'a tensor of a long name': needs 8 bytes"},
    {"data_past_the_end.gguf", "tensor 't' needs 68 bytes at offset 0"},
    {"data_past_2_64.gguf", "tensor 't' needs over 2^64 bytes"},
    {"tensors_overlap.gguf", "tensor 'b' begins at offset 32, within tensor 'a', which ends at 36"},
    {"key_twice.gguf", "key 'k' stands twice"},
    {"tensor_twice.gguf", "tensor 't' stands twice"},
    {"architecture_missing.config.gguf", "key 'general.architecture' is missing"},
    {"architecture_no_string.config.gguf", "key 'general.architecture' has another type"},
    {"architecture_unknown.config.gguf", "general.architecture is 'mamba', known: llama"},
    {"name_no_string.config.gguf", "key 'general.name' has another type"},
    {"block_count_missing.config.gguf", "key 'llama.block_count' is missing"},
    {"block_count_no_integer.config.gguf", "key 'llama.block_count' has another type"},
    {"block_count_negative.config.gguf", "key 'llama.block_count' is -1, must be at least 0"},
    {"block_count_0.config.gguf", "key 'llama.block_count' is 0, must be 1 to 1024"},
    {"block_count_past_1024.config.gguf", "key 'llama.block_count' is 1025, must be 1 to 1024"},
    {"width_no_multiple_of_16.config.gguf",
     "key 'llama.embedding_length' is 24, must be a multiple of 16"},
    {"head_count_0.config.gguf", "key 'llama.attention.head_count' is 0"},
    {"heads_no_multiple_of_kv_heads.config.gguf",
     "must be a multiple of llama.attention.head_count_kv = 3"},
    {"width_no_multiple_of_heads.config.gguf",
     "must be a multiple of llama.attention.head_count = 3"},
    {"value_length_of_its_own.config.gguf", "key 'llama.attention.value_length' is 16, must equal"},
    {"rope_dimensions_odd.config.gguf", "key 'llama.rope.dimension_count' is 7, must be even"},
    {"rope_dimensions_past_the_head.config.gguf",
     "key 'llama.rope.dimension_count' is 34, must be 1 to 32"},
    {"epsilon_missing.config.gguf", "key 'llama.attention.layer_norm_rms_epsilon' is missing"},
    {"epsilon_no_number.config.gguf",
     "key 'llama.attention.layer_norm_rms_epsilon' has another type"},
    {"epsilon_0.config.gguf",
     "key 'llama.attention.layer_norm_rms_epsilon' is 0.000000, must be a finite"},
    {"rope_base_not_a_number.config.gguf", "key 'llama.rope.freq_base' is nan"},
    {"rope_scaling_unknown.config.gguf", "key 'llama.rope.scaling.type' is 'longrope', built: "},
    {"rope_attention_factor_without_yarn.config.gguf",
     "key 'llama.rope.scaling.attn_factor' is 0.5"},
    {"yarn_without_factor.config.gguf", "key 'llama.rope.scaling.factor' is missing"},
    {"yarn_bands_backwards.config.gguf", "must be above llama.rope.scaling.yarn_beta_slow"},
    {"yarn_base_1.config.gguf", "key 'llama.rope.freq_base' is 1.000000, must be above 1 for yarn"},
    {"yarn_by_half.config.gguf", "keys 'llama.rope.scaling.yarn_ext_factor' and"},
    {"window_1.config.gguf", "sliding window is 1"},
    {"window_pattern_no_number.config.gguf",
     "key 'llama.attention.sliding_window_pattern' has another type"},
    {"rotated_layers_no_list.config.gguf", "key 'llama.rope.rotated_layers' is no list"},
    {"rotated_layers_of_other_layers.config.gguf", "list of rotating layers has 2 entries"},
    {"window_pattern_of_other_layers.config.gguf", "list of sliding layers has 2 entries"},
    {"soft_cap_0.config.gguf", "key 'llama.attn_logit_softcapping' is 0.000000"},
    {"embedding_missing.config.gguf", "tensor 'token_embd.weight' is missing"},
    {"vocabulary_of_another_size.config.gguf",
     "key 'llama.vocab_size' is 2, must equal the 1 rows"},
    {"tokens_of_another_size.config.gguf",
     "key 'tokenizer.ggml.tokens' has 2 entries, must equal the 1 rows"},
    {"experts.config.gguf", "key 'llama.expert_count' is 8, must be 0"},
    {"rope_factors_long.config.gguf",
     "tensor 'rope_factors_long.weight' asks for long-context RoPE factors"},
    {"tensor_missing.config.gguf", "tensor 'blk.0.ffn_norm.weight' is missing"},
    {"tensor_of_another_shape.config.gguf",
     "'blk.0.attn_q.weight' has shape [32, 16], must be [32, 32]"},
    {"tensor_type_not_readable.config.gguf",
     "tensor 'blk.0.attn_q.weight' has type MXFP4, readable: "},
    {"tensor_of_another_family.config.gguf",
     "tensor 'blk.0.attn_q.bias' is not one of family llama"},
    {"rope_factor_0.config.gguf", "tensor 'rope_freqs.weight' holds 0.000000 at 0"},
    {"model_missing.tokenizer.gguf", "key 'tokenizer.ggml.model' is missing"},
    {"pre_no_string.tokenizer.gguf", "key 'tokenizer.ggml.pre' has another type"},
    {"chat_template_no_string.tokenizer.gguf", "key 'tokenizer.chat_template' has another type"},
    {"tokens_missing.tokenizer.gguf", "key 'tokenizer.ggml.tokens' is missing or empty"},
    {"tokens_no_strings.tokenizer.gguf", "key 'tokenizer.ggml.tokens' has another type"},
    {"tokens_past_the_rows.tokenizer.gguf",
     "key 'tokenizer.ggml.tokens' has 2 entries, must be at most the 1 rows"},
    {"types_no_integers.tokenizer.gguf", "key 'tokenizer.ggml.token_type' has another type"},
    {"types_of_another_length.tokenizer.gguf",
     "key 'tokenizer.ggml.token_type' has 1 entries, must have 2"},
    {"type_unknown.tokenizer.gguf", "key 'tokenizer.ggml.token_type' entry 1 is 9, must be 1 to 6"},
    {"scores_no_floats.tokenizer.gguf", "key 'tokenizer.ggml.scores' has another type"},
    {"scores_of_another_length.tokenizer.gguf",
     "key 'tokenizer.ggml.scores' has 1 entries, must have 2"},
    {"score_infinite.tokenizer.gguf", "key 'tokenizer.ggml.scores' entry 1 is inf"},
    {"merges_no_strings.tokenizer.gguf", "key 'tokenizer.ggml.merges' has another type"},
    {"start_token_past_the_tokens.tokenizer.gguf",
     "key 'tokenizer.ggml.bos_token_id' is 2, must be below 2"},
    {"start_token_no_integer.tokenizer.gguf", "key 'tokenizer.ggml.bos_token_id' has another type"},
    {"flag_no_bool.tokenizer.gguf", "key 'tokenizer.ggml.add_bos_token' has another type"},
    {"model_unknown.tokenizer.gguf", "tokenizer.ggml.model: \"t5\" (unigram) is not supported"},
    {"pre_unknown.tokenizer.gguf", "tokenizer.ggml.pre: \"nosuch\" is not supported; known: "},
    {"token_too_long.tokenizer.gguf", "tokenizer.ggml.tokens[0]: 2049 bytes; at most 2048"},
    {"merge_no_pair.tokenizer.gguf",
     "tokenizer.ggml.merges[0]: \"ab\" is not two tokens with a blank between them"},
    {"merge_unknown.tokenizer.gguf",
     "tokenizer.ggml.merges[0]: \"a c\": a part or the whole is no token of the vocabulary"},
    {"scores_missing.tokenizer.gguf", "tokenizer.ggml.scores: missing"},
    {"byte_token_not_of_a_byte.tokenizer.gguf",
     "tokenizer.ggml.tokens[1]: \"b\" is of type byte, but not written <0xNN>"},
    {"outputs_of_no_whole_panel.load.gguf",
     "tensor 'blk.0.ffn_gate.weight' has 24 outputs, must be a multiple of 16"},
    {"row_of_no_whole_group.load.gguf",
     "tensor 'blk.0.ffn_down.weight' has row length 48, must be a multiple of 32"},
    {"minimum_past_fp16.load.gguf",
     "tensor 'blk.0.attn_q.weight', rows from 0: weight group minimum -8 d = -524032"},
    {"scale_past_fp16.load.gguf", "tensor 'token_embd.weight', rows from 0: weight group scale"},
    {"head_length_no_multiple_of_16.load.gguf", "head length 8 is not a multiple of 16"},
};

template <class T>
std::string RefusalIn(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

// Of a file that the parser takes: what a server does with it, in that order, up to an error.
std::string RefusalOfLoad(const GgufFile& file) {
  const auto model = Model::Load(file, {.weights = WeightChoice::kAuto, .num_threads = 1});
  if (!model.ok()) return model.error().message;
  const std::string refusal = RefusalIn(KvGeometryOf((*model)->config(), KvFormat::kF16));
  return refusal.empty() ? RefusalIn(Tokenizer::Create((*model)->tokenizer_spec())) : refusal;
}

std::string RefusalOfTokenizer(const GgufFile& file) {
  auto spec = ReadTokenizerSpec(file);
  if (!spec.ok()) return spec.error().message;
  return RefusalIn(Tokenizer::Create(std::move(spec).value()));
}

// What the reader that a file's name ends with says of it.
std::string RefusalOfGguf(const std::string& name, const std::string& bytes) {
  const auto file = GgufFile::Parse(std::as_bytes(std::span(bytes)), "broken");
  const auto ends = [&](std::string_view ending) { return name.ends_with(ending); };
  if (!ends(".config.gguf") && !ends(".tokenizer.gguf") && !ends(".load.gguf")) {
    return RefusalIn(file);
  }
  EXPECT_TRUE(file.ok()) << name << ": " << RefusalIn(file);
  if (!file.ok()) return "";
  if (ends(".load.gguf")) return RefusalOfLoad(**file);
  return ends(".config.gguf") ? RefusalIn(ReadConfig(**file)) : RefusalOfTokenizer(**file);
}

// Of what no file is named in: the vocabulary, which may be a folder's, and the shape of keys.
bool NamesNoFile(const std::string& refusal) {
  return refusal.starts_with("tokenizer.ggml.") || refusal.starts_with("head length ");
}

TEST(BrokenGguf, EachFileIsRefusedByTheCheckThatItIsNamedAfter) {
  testing::ExpectEachRefusedByItsCheck(
      "gguf/broken", "", kBrokenGgufs, [](const std::string& name, const std::string& bytes) {
        const std::string refusal = RefusalOfGguf(name, bytes);
        EXPECT_TRUE(refusal.starts_with("broken: ") || NamesNoFile(refusal))
            << name << ": " << refusal;
        return refusal;
      });
}

TEST(BrokenGguf, WithNothingWrongTheModelIsTaken) {
  const auto file = GgufFile::Open(std::string(KVRM_SOURCE_DIR) + "/tests/fuzz/gguf/minimal.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(RefusalOfLoad(**file), "");
}

}  // namespace
}  // namespace kvrm
