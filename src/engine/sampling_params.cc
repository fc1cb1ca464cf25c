#include <cmath>
#include <cstdio>
#include <string>

#include "engine/sampler.h"

namespace kvrm {
namespace {

// Bounds that only a message and a test need to know; the header states the ranges.
constexpr float kMaxTemperature = 100.0f;

std::string Show(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

Error OutOfRange(const char* name, double value, const char* range) {
  return InvalidInput(std::string(name) + " is " + Show(value) + ", but must be " + range);
}

Status CheckBiases(const std::vector<LogitBias>& biases) {
  if (biases.size() > kMaxLogitBiases) {
    return OutOfRange("logit_bias", static_cast<double>(biases.size()), "at most 300 entries");
  }
  for (const LogitBias& entry : biases) {
    if (std::abs(entry.bias) <= kMaxLogitBias) continue;
    const std::string name = "logit_bias of token " + std::to_string(entry.id);
    return OutOfRange(name.c_str(), entry.bias, "a number from -100 to 100");
  }
  return Ok();
}

}  // namespace

// Each test has the form "not inside the range": NaN fails every comparison and is refused (B040).
Status CheckSampling(const SamplingParams& params) {
  if (!(params.temperature >= 0.0f && params.temperature <= kMaxTemperature)) {
    return OutOfRange("temperature", params.temperature, "a number from 0 to 100");
  }
  if (!(params.top_p > 0.0f && params.top_p <= 1.0f)) {
    return OutOfRange("top_p", params.top_p, "a number above 0 and at most 1");
  }
  if (!(params.min_p >= 0.0f && params.min_p <= 1.0f)) {
    return OutOfRange("min_p", params.min_p, "a number from 0 to 1");
  }
  if (!(params.repetition_penalty > 0.0f && std::isfinite(params.repetition_penalty))) {
    return OutOfRange("repetition_penalty", params.repetition_penalty, "a finite number above 0");
  }
  if (!(params.typical_p > 0.0f && params.typical_p <= 1.0f)) {
    return OutOfRange("typical_p", params.typical_p, "a number above 0 and at most 1");
  }
  if (!(std::abs(params.presence_penalty) <= kMaxCountPenalty)) {
    return OutOfRange("presence_penalty", params.presence_penalty, "a number from -2 to 2");
  }
  if (!(std::abs(params.frequency_penalty) <= kMaxCountPenalty)) {
    return OutOfRange("frequency_penalty", params.frequency_penalty, "a number from -2 to 2");
  }
  if (params.num_logprobs > kMaxTopLogprobs) {
    return OutOfRange("num_logprobs", params.num_logprobs, "at most 20");
  }
  return CheckBiases(params.logit_bias);
}

namespace {

// A full-avalanche 64-bit finaliser (xor-shift, multiply, three times over with odd constants).
constexpr uint64_t Avalanche(uint64_t x) {
  x ^= x >> 32;
  x *= 0xD6E8'FEB8'6659'FD93u;
  x ^= x >> 32;
  x *= 0xD6E8'FEB8'6659'FD93u;
  x ^= x >> 32;
  return x;
}

}  // namespace

float UniformDraw(uint64_t seed, uint32_t choice, uint32_t output_idx) {
  // Two chained rounds: the counter pair is spread by an odd multiplier first, so that neither
  // (seed + 1, idx) nor (seed, idx + 1) is near (seed, idx) after the first round.
  const uint64_t counter = (uint64_t{choice} << 32) | output_idx;
  const uint64_t key = Avalanche(seed + 0x9E37'79B9'7F4A'7C15u);
  const uint64_t bits = Avalanche(Avalanche(key ^ (counter * 0xA076'1D64'78BD'642Fu)) + key);
  return static_cast<float>(bits >> 40) * 0x1p-24f;
}

}  // namespace kvrm
