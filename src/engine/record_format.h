// The layout of a record (`.kvrec`): everything that decided what an engine did, in order, and what
// came of it. docs/record.md gives it as grammar.
//
// A record holds what the engine was told (requests, cancels, idle seconds, the wish to stop), the
// readings of the clock that a decision could depend on, and each step's commit, tokens and ends.
// Replayed (record_replay.h), the same inputs have to give the same commits and tokens.
//
// It holds the token ids of prompts and answers: whoever has it and the tokenizer has the text.
// record_fields.h lists the fields.
//
// Plain data and pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/step_sample.h"
#include "engine/engine.h"

namespace kvrm {

inline constexpr uint32_t kRecordMagic = 0x4352'564Bu;  // "KVRC"
inline constexpr uint32_t kRecordVersion = 1;
// Bound of all times: whatever two of them are, their difference can be computed.
inline constexpr int64_t kMaxRecordUs = int64_t{1} << 61;

struct RecordFileHead {
  uint32_t magic;
  uint32_t version;
  uint64_t checksum;       // XXH3-64 of the header, this field taken as 0
  uint32_t header_bytes;   // head, settings, samples, text, and zeros to a multiple of 8
  uint32_t frame_version;  // of the frames whose hashes it keeps
  uint32_t num_samples;
  uint32_t text_bytes;
  // followed by RecordSettings, RecordSample[num_samples], text
};

// What decisions depend on beside the events: as chosen, never "auto" but for the weights, where
// that is what the model's file says.
struct RecordSettings {
  uint64_t model_hash[2];  // XXH3-128 of the model's file; 0 without one
  uint64_t kv_bytes;
  uint64_t kv_keep_bytes;
  uint64_t scatter_seed;
  int64_t max_itl_us;
  uint32_t max_slots;
  uint32_t max_seq_tokens;
  uint32_t max_queued;
  uint32_t chunk_rows;
  uint32_t mixed_prompt_rows;
  uint32_t prefill_rows;  // rows of the widest program
  uint32_t vocab;
  uint32_t num_threads;  // decides nothing; for people
  uint8_t weights;       // WeightChoice
  uint8_t kv_format;     // KvFormat
  uint8_t prefix_cache;
  uint8_t mode;  // Mode
  uint8_t strict_shape;
  uint8_t reserved0[3];
  uint32_t view_tokens;  // ModelView::window_tokens
  uint32_t reserved1[7];
};

struct RecordSample {  // StepSample
  uint32_t rows;
  uint32_t position;
  int64_t us;
};

// Frozen enumerators.
enum class RecordKind : uint16_t {
  kSubmit = 1,    // a request came; RecordSubmit, prompt, end tokens, biases
  kCancel = 2,    // RecordId
  kIdle = 3,      // nothing had come for a while: one piece of tidying
  kStop = 4,      // the wish to stop
  kMaintain = 5,  // between steps the pager did a chore
  kPause = 6,     // what came gave no step, or there was nothing to do after one; RecordOutcome
  kStep = 7,      // a step begins; RecordClock
  kRollback = 8,  // it was rolled back
  kCommit = 9,    // it was committed and has run; RecordCommit
  kClosed = 10,   // the record was closed, not cut off
};

// Before each record. The checksum of one is the seed of the next, the header's of the first: no
// record can be changed, left out or put elsewhere unseen.
struct RecordHead {
  uint32_t payload_bytes;
  RecordKind kind;
  uint16_t reserved;
  uint64_t checksum;  // XXH3-64 of the 8 bytes before and the payload
};

// RecordSubmit::flags.
inline constexpr uint32_t kRecordGenerates = 1, kRecordScoresPrompt = 2;

struct RecordSubmit {
  uint64_t id;
  uint64_t tenant;
  uint64_t seed;
  uint64_t fork_of;  // 0 = none
  int64_t submit_us;
  uint32_t prompt_tokens;
  uint32_t num_end_tokens;
  uint32_t num_biases;
  uint32_t flags;
  uint32_t max_new_tokens;
  uint32_t min_new_tokens;
  int32_t priority;
  uint32_t choice;
  uint32_t num_logprobs;
  uint32_t num_prompt_logprobs;
  uint32_t top_k;
  uint32_t repetition_last_n;
  float temperature;
  float top_p;
  float min_p;
  float typical_p;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  uint32_t reserved[11];
  // followed by TokenId[prompt_tokens], TokenId[num_end_tokens], RecordBias[num_biases]
};

struct RecordBias {  // LogitBias
  int32_t token;
  float bias;
};

struct RecordId {
  uint64_t id;
};
struct RecordClock {
  int64_t now_us;
};

// What requests got since the last outcome.
struct RecordOutcome {
  uint32_t num_tokens;
  uint32_t num_ends;
  // followed by RecordToken[num_tokens], RecordEnd[num_ends]
};
struct RecordCommit {
  uint64_t epoch;
  uint64_t chain_hash;  // of the frame: head, rows, deltas and all frames before it
  uint32_t num_rows;
  uint32_t num_prompt_rows;
  uint32_t num_admitted;
  uint32_t num_preempted;
  uint32_t num_deferred;
  uint32_t reserved;
  // followed by RecordOutcome
};
struct RecordToken {
  uint64_t id;
  int32_t token;
  uint32_t reserved;
};
struct RecordEnd {
  uint64_t id;
  uint32_t reason;  // StopReason
  uint32_t reserved;
};

// What a record says of the engine that it was taken from.
struct RecordHeader {
  RecordSettings settings{};
  std::vector<StepSample> step_samples;  // of the scheduler's cost model
  std::string text;                      // for people: program, model, executor, machine
};

// What an engine knows of its settings: all but the model, its weights and its memory.
RecordSettings SettingsOf(const Engine& engine);

// The header's bytes. Requires: at most 4096 samples, and 64 KiB of text.
std::vector<std::byte> PackRecordHeader(const RecordHeader& header);
// From the first bytes of a file, the whole header among them; sets *header_bytes to its size and
// *checksum to what the first record's is seeded with. Errors name field, value and limit.
Result<RecordHeader> UnpackRecordHeader(std::span<const std::byte> bytes, uint64_t* header_bytes,
                                        uint64_t* checksum);

// Of a header's bytes, the field `checksum` taken as 0. Requires: a RecordFileHead at least.
uint64_t RecordHeaderChecksum(std::span<const std::byte> header);
// Of a record whose head says `payload_bytes` and `kind`.
uint64_t RecordChecksum(const RecordHead& head, std::span<const std::byte> payload, uint64_t seed);

// A request as it stands in a record; its lists follow it there.
RecordSubmit ToRecordSubmit(RequestId id, int64_t submit_us, const GenerateRequest& request);
// The request of a record, without its lists and without a sink.
GenerateRequest FromRecordSubmit(const RecordSubmit& submit);

const char* RecordKindName(RecordKind kind);  // "submit"; "?" where there is none

}  // namespace kvrm
