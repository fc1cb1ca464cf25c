#include "engine/record_format.h"

#include <algorithm>
#include <utility>

#include "engine/record_fields.h"
#include "frame/field_codec.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvrm {
namespace {

constexpr uint32_t kMaxSamples = 4096;
constexpr uint32_t kMaxTextBytes = 64 * 1024;

Error RefuseHeader(const std::string& field, uint64_t value, const std::string& range) {
  return InvalidInput("record header: " + field + " is " + std::to_string(value) + ", must be " +
                      range);
}

uint64_t HeaderBytes(uint64_t num_samples, uint64_t text_bytes) {
  const uint64_t bytes = sizeof(RecordFileHead) + sizeof(RecordSettings) +
                         num_samples * sizeof(RecordSample) + text_bytes;
  return (bytes + 7) / 8 * 8;
}

Status CheckHead(const RecordFileHead& head, uint64_t file_bytes) {
  if (head.magic != kRecordMagic)
    return RefuseHeader("magic", head.magic, std::to_string(kRecordMagic));
  if (head.version != kRecordVersion) {
    return RefuseHeader("version", head.version, std::to_string(kRecordVersion));
  }
  if (head.frame_version != kFrameVersion) {
    return RefuseHeader("frame_version", head.frame_version, std::to_string(kFrameVersion));
  }
  if (head.num_samples > kMaxSamples) {
    return RefuseHeader("num_samples", head.num_samples, "at most " + std::to_string(kMaxSamples));
  }
  if (head.text_bytes > kMaxTextBytes) {
    return RefuseHeader("text_bytes", head.text_bytes, "at most " + std::to_string(kMaxTextBytes));
  }
  const uint64_t expected = HeaderBytes(head.num_samples, head.text_bytes);
  if (head.header_bytes != expected) {
    return RefuseHeader("header_bytes", head.header_bytes, std::to_string(expected));
  }
  if (head.header_bytes > file_bytes) {
    return RefuseHeader("header_bytes", head.header_bytes,
                        "at most " + std::to_string(file_bytes) + ", the bytes of the file");
  }
  return Ok();
}

}  // namespace

uint64_t RecordHeaderChecksum(std::span<const std::byte> header) {
  std::vector<std::byte> bytes(header.begin(), header.end());
  std::fill_n(bytes.begin() + offsetof(RecordFileHead, checksum), sizeof(uint64_t), std::byte{0});
  return XXH3_64bits(bytes.data(), bytes.size());
}

RecordSettings SettingsOf(const Engine& engine) {
  const EngineConfig& config = engine.config();
  RecordSettings settings{};
  settings.max_itl_us = config.max_itl_us;
  settings.max_slots = config.max_slots;
  settings.max_seq_tokens = config.max_seq_tokens;
  settings.max_queued = config.max_queued;
  settings.chunk_rows = config.chunk_rows;
  settings.mixed_prompt_rows = config.mixed_prompt_rows;
  settings.prefill_rows = engine.executor_info().max_rows[kNumPrograms - 1];
  settings.vocab = engine.executor_info().vocab;
  settings.prefix_cache = config.prefix_cache ? 1 : 0;
  return settings;
}

std::vector<std::byte> PackRecordHeader(const RecordHeader& header) {
  KVRM_CHECK(header.step_samples.size() <= kMaxSamples && header.text.size() <= kMaxTextBytes,
             "a record's header is small");
  RecordFileHead head{};
  head.magic = kRecordMagic;
  head.version = kRecordVersion;
  head.frame_version = kFrameVersion;
  head.num_samples = static_cast<uint32_t>(header.step_samples.size());
  head.text_bytes = static_cast<uint32_t>(header.text.size());
  head.header_bytes = static_cast<uint32_t>(HeaderBytes(head.num_samples, head.text_bytes));

  std::vector<std::byte> bytes(head.header_bytes);
  std::byte* to = bytes.data() + sizeof head;
  Pack(&header.settings, 1, to);
  to += sizeof header.settings;
  for (const StepSample& sample : header.step_samples) {
    const RecordSample packed{sample.rows, sample.position, sample.us};
    Pack(&packed, 1, to);
    to += sizeof packed;
  }
  std::transform(header.text.begin(), header.text.end(), to,
                 [](char c) { return static_cast<std::byte>(c); });
  Pack(&head, 1, bytes.data());
  head.checksum = RecordHeaderChecksum(bytes);
  Pack(&head, 1, bytes.data());
  return bytes;
}

Result<RecordHeader> UnpackRecordHeader(std::span<const std::byte> bytes, uint64_t* header_bytes,
                                        uint64_t* checksum) {
  RecordFileHead head;
  if (bytes.size() < sizeof head) {
    return InvalidInput("record header: " + std::to_string(bytes.size()) + " bytes, must be " +
                        std::to_string(sizeof head) + " or more");
  }
  Unpack(bytes.data(), 1, &head);
  KVRM_RETURN_IF_ERROR(CheckHead(head, bytes.size()));
  if (RecordHeaderChecksum(bytes.first(head.header_bytes)) != head.checksum) {
    return InvalidInput("record header: checksum is not that of its " +
                        std::to_string(head.header_bytes) + " bytes");
  }
  RecordHeader header;
  const std::byte* from = bytes.data() + sizeof head;
  Unpack(from, 1, &header.settings);
  from += sizeof header.settings;
  if (const auto reserved = NonzeroReserved(header.settings)) {
    return InvalidInput("record header: " + reserved->name + " is " + reserved->value +
                        ", must be 0");
  }
  if (header.settings.max_itl_us < 0 || header.settings.max_itl_us > kMaxRecordUs) {
    return InvalidInput("record header: max_itl_us is " +
                        std::to_string(header.settings.max_itl_us) + ", must be 0 to " +
                        std::to_string(kMaxRecordUs));
  }
  for (uint32_t i = 0; i < head.num_samples; ++i, from += sizeof(RecordSample)) {
    RecordSample sample;
    Unpack(from, 1, &sample);
    if (sample.rows == 0 || sample.us < 0 || sample.us > kMaxRecordUs) {
      return InvalidInput("record header: sample " + std::to_string(i) + " has " +
                          std::to_string(sample.rows) + " rows and " + std::to_string(sample.us) +
                          " us, must have 1 or more and 0 to " + std::to_string(kMaxRecordUs));
    }
    header.step_samples.push_back({sample.rows, sample.position, sample.us});
  }
  for (uint32_t i = 0; i < head.text_bytes; ++i) header.text += static_cast<char>(from[i]);
  *header_bytes = head.header_bytes;
  *checksum = head.checksum;
  return header;
}

uint64_t RecordChecksum(const RecordHead& head, std::span<const std::byte> payload, uint64_t seed) {
  std::byte bytes[sizeof head];
  Pack(&head, 1, bytes);
  const uint64_t of_head = XXH3_64bits_withSeed(bytes, offsetof(RecordHead, checksum), seed);
  return XXH3_64bits_withSeed(payload.data(), payload.size(), of_head);
}

RecordSubmit ToRecordSubmit(RequestId id, int64_t submit_us, const GenerateRequest& request) {
  // Names each field, so that one which is added and not recorded does not compile.
  const auto& [prompt, sampling, max_new_tokens, min_new_tokens, generate, score_prompt,
               num_prompt_logprobs, fork_of, report_progress, end_tokens, sink, tenant, priority] =
      request;
  const auto& [temperature, top_k, top_p, min_p, typical_p, repetition_penalty, repetition_last_n,
               presence_penalty, frequency_penalty, logit_bias, seed, choice, num_logprobs] =
      sampling;
  (void)sink;             // what it is told
  (void)report_progress;  // decides nothing
  return {.id = id.value,
          .tenant = tenant,
          .seed = seed,
          .fork_of = fork_of ? fork_of->value : 0,
          .submit_us = submit_us,
          .prompt_tokens = static_cast<uint32_t>(prompt.size()),
          .num_end_tokens = static_cast<uint32_t>(end_tokens.size()),
          .num_biases = static_cast<uint32_t>(logit_bias.size()),
          .flags = (generate ? kRecordGenerates : 0) | (score_prompt ? kRecordScoresPrompt : 0),
          .max_new_tokens = max_new_tokens,
          .min_new_tokens = min_new_tokens,
          .priority = priority,
          .choice = choice,
          .num_logprobs = num_logprobs,
          .num_prompt_logprobs = num_prompt_logprobs,
          .top_k = top_k,
          .repetition_last_n = repetition_last_n,
          .temperature = temperature,
          .top_p = top_p,
          .min_p = min_p,
          .typical_p = typical_p,
          .repetition_penalty = repetition_penalty,
          .presence_penalty = presence_penalty,
          .frequency_penalty = frequency_penalty,
          .reserved = {}};
}

GenerateRequest FromRecordSubmit(const RecordSubmit& submit) {
  GenerateRequest request;
  request.sampling = {.temperature = submit.temperature,
                      .top_k = submit.top_k,
                      .top_p = submit.top_p,
                      .min_p = submit.min_p,
                      .typical_p = submit.typical_p,
                      .repetition_penalty = submit.repetition_penalty,
                      .repetition_last_n = submit.repetition_last_n,
                      .presence_penalty = submit.presence_penalty,
                      .frequency_penalty = submit.frequency_penalty,
                      .logit_bias = {},
                      .seed = submit.seed,
                      .choice = submit.choice,
                      .num_logprobs = submit.num_logprobs};
  request.max_new_tokens = submit.max_new_tokens;
  request.min_new_tokens = submit.min_new_tokens;
  request.generate = (submit.flags & kRecordGenerates) != 0;
  request.score_prompt = (submit.flags & kRecordScoresPrompt) != 0;
  request.num_prompt_logprobs = submit.num_prompt_logprobs;
  if (submit.fork_of != 0) request.fork_of = RequestId{submit.fork_of};
  request.tenant = submit.tenant;
  request.priority = submit.priority;
  return request;
}

const char* RecordKindName(RecordKind kind) {
  static constexpr const char* kNames[] = {"?",        "submit",   "cancel", "idle",
                                           "stop",     "maintain", "pause",  "step",
                                           "rollback", "commit",   "closed"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : kNames[0];
}

}  // namespace kvrm
