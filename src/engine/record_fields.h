// The one list of fields of everything that a record is made of (see frame/fields.h): it drives
// packing, text and the check that reserved bytes are zero; docs/record.md says the same as
// grammar.
//
// Constant data; thread-safe.
#pragma once

#include "engine/record_format.h"
#include "frame/fields.h"

namespace kvrm {

template <>
struct FieldsOf<RecordFileHead> {
  static constexpr const char* name = "header";
  static constexpr Field list[] = {
      KVRM_HEX(RecordFileHead, magic, 0),
      KVRM_FIELD(RecordFileHead, version, 4),
      KVRM_HEX(RecordFileHead, checksum, 8),
      KVRM_FIELD(RecordFileHead, header_bytes, 16),
      KVRM_FIELD(RecordFileHead, frame_version, 20),
      KVRM_FIELD(RecordFileHead, num_samples, 24),
      KVRM_FIELD(RecordFileHead, text_bytes, 28),
  };
};
static_assert(CoversWithoutGaps<RecordFileHead>() && sizeof(RecordFileHead) == 32);

template <>
struct FieldsOf<RecordSettings> {
  static constexpr const char* name = "settings";
  static constexpr Field list[] = {
      KVRM_HEX(RecordSettings, model_hash, 0),
      KVRM_FIELD(RecordSettings, kv_bytes, 16),
      KVRM_FIELD(RecordSettings, kv_keep_bytes, 24),
      KVRM_FIELD(RecordSettings, scatter_seed, 32),
      KVRM_FIELD(RecordSettings, max_itl_us, 40),
      KVRM_FIELD(RecordSettings, max_slots, 48),
      KVRM_FIELD(RecordSettings, max_seq_tokens, 52),
      KVRM_FIELD(RecordSettings, max_queued, 56),
      KVRM_FIELD(RecordSettings, chunk_rows, 60),
      KVRM_FIELD(RecordSettings, mixed_prompt_rows, 64),
      KVRM_FIELD(RecordSettings, prefill_rows, 68),
      KVRM_FIELD(RecordSettings, vocab, 72),
      KVRM_FIELD(RecordSettings, num_threads, 76),
      KVRM_FIELD(RecordSettings, weights, 80),
      KVRM_FIELD(RecordSettings, kv_format, 81),
      KVRM_FIELD(RecordSettings, prefix_cache, 82),
      KVRM_FIELD(RecordSettings, mode, 83),
      KVRM_FIELD(RecordSettings, strict_shape, 84),
      KVRM_RESERVED(RecordSettings, reserved0, 85),
      KVRM_FIELD(RecordSettings, view_tokens, 88),
      KVRM_RESERVED(RecordSettings, reserved1, 92),
  };
};
static_assert(CoversWithoutGaps<RecordSettings>() && sizeof(RecordSettings) == 120);

template <>
struct FieldsOf<RecordSample> {
  static constexpr const char* name = "sample";
  static constexpr Field list[] = {
      KVRM_FIELD(RecordSample, rows, 0),
      KVRM_FIELD(RecordSample, position, 4),
      KVRM_FIELD(RecordSample, us, 8),
  };
};
static_assert(CoversWithoutGaps<RecordSample>() && sizeof(RecordSample) == 16);

template <>
struct FieldsOf<RecordHead> {
  static constexpr const char* name = "record";
  static constexpr Field list[] = {
      KVRM_FIELD(RecordHead, payload_bytes, 0),
      KVRM_FIELD(RecordHead, kind, 4),
      KVRM_RESERVED(RecordHead, reserved, 6),
      KVRM_HEX(RecordHead, checksum, 8),
  };
};
static_assert(CoversWithoutGaps<RecordHead>() && sizeof(RecordHead) == 16);

template <>
struct FieldsOf<RecordSubmit> {
  static constexpr const char* name = "submit";
  static constexpr Field list[] = {
      KVRM_FIELD(RecordSubmit, id, 0),
      KVRM_FIELD(RecordSubmit, tenant, 8),
      KVRM_FIELD(RecordSubmit, seed, 16),
      KVRM_FIELD(RecordSubmit, fork_of, 24),
      KVRM_FIELD(RecordSubmit, submit_us, 32),
      KVRM_FIELD(RecordSubmit, prompt_tokens, 40),
      KVRM_FIELD(RecordSubmit, num_end_tokens, 44),
      KVRM_FIELD(RecordSubmit, num_biases, 48),
      KVRM_FIELD(RecordSubmit, flags, 52),
      KVRM_FIELD(RecordSubmit, max_new_tokens, 56),
      KVRM_FIELD(RecordSubmit, min_new_tokens, 60),
      KVRM_FIELD(RecordSubmit, priority, 64),
      KVRM_FIELD(RecordSubmit, choice, 68),
      KVRM_FIELD(RecordSubmit, num_logprobs, 72),
      KVRM_FIELD(RecordSubmit, num_prompt_logprobs, 76),
      KVRM_FIELD(RecordSubmit, top_k, 80),
      KVRM_FIELD(RecordSubmit, repetition_last_n, 84),
      KVRM_FIELD(RecordSubmit, temperature, 88),
      KVRM_FIELD(RecordSubmit, top_p, 92),
      KVRM_FIELD(RecordSubmit, min_p, 96),
      KVRM_FIELD(RecordSubmit, typical_p, 100),
      KVRM_FIELD(RecordSubmit, repetition_penalty, 104),
      KVRM_FIELD(RecordSubmit, presence_penalty, 108),
      KVRM_FIELD(RecordSubmit, frequency_penalty, 112),
      KVRM_RESERVED(RecordSubmit, reserved, 116),
  };
};
static_assert(CoversWithoutGaps<RecordSubmit>() && sizeof(RecordSubmit) == 160);

template <>
struct FieldsOf<RecordBias> {
  static constexpr const char* name = "bias";
  static constexpr Field list[] = {KVRM_FIELD(RecordBias, token, 0),
                                   KVRM_FIELD(RecordBias, bias, 4)};
};
static_assert(CoversWithoutGaps<RecordBias>());

template <>
struct FieldsOf<RecordId> {
  static constexpr const char* name = "id";
  static constexpr Field list[] = {KVRM_FIELD(RecordId, id, 0)};
};
template <>
struct FieldsOf<RecordClock> {
  static constexpr const char* name = "clock";
  static constexpr Field list[] = {KVRM_FIELD(RecordClock, now_us, 0)};
};
template <>
struct FieldsOf<RecordOutcome> {
  static constexpr const char* name = "outcome";
  static constexpr Field list[] = {KVRM_FIELD(RecordOutcome, num_tokens, 0),
                                   KVRM_FIELD(RecordOutcome, num_ends, 4)};
};
static_assert(CoversWithoutGaps<RecordOutcome>());

template <>
struct FieldsOf<RecordCommit> {
  static constexpr const char* name = "commit";
  static constexpr Field list[] = {
      KVRM_FIELD(RecordCommit, epoch, 0),         KVRM_HEX(RecordCommit, chain_hash, 8),
      KVRM_FIELD(RecordCommit, num_rows, 16),     KVRM_FIELD(RecordCommit, num_prompt_rows, 20),
      KVRM_FIELD(RecordCommit, num_admitted, 24), KVRM_FIELD(RecordCommit, num_preempted, 28),
      KVRM_FIELD(RecordCommit, num_deferred, 32), KVRM_RESERVED(RecordCommit, reserved, 36),
  };
};
static_assert(CoversWithoutGaps<RecordCommit>() && sizeof(RecordCommit) == 40);

template <>
struct FieldsOf<RecordToken> {
  static constexpr const char* name = "token";
  static constexpr Field list[] = {KVRM_FIELD(RecordToken, id, 0),
                                   KVRM_FIELD(RecordToken, token, 8),
                                   KVRM_RESERVED(RecordToken, reserved, 12)};
};
static_assert(CoversWithoutGaps<RecordToken>());
template <>
struct FieldsOf<RecordEnd> {
  static constexpr const char* name = "end";
  static constexpr Field list[] = {KVRM_FIELD(RecordEnd, id, 0), KVRM_FIELD(RecordEnd, reason, 8),
                                   KVRM_RESERVED(RecordEnd, reserved, 12)};
};
static_assert(CoversWithoutGaps<RecordEnd>());

}  // namespace kvrm
