#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/retry_memory.h"

namespace kvrm {
namespace {

constexpr uint32_t kPanelColumns = 256;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

struct Candidate {
  float logit;
  TokenId id;
};

// The one order of tokens: higher logit first, ties to the lowest id. Total, so that every
// selection below has one answer whatever algorithm finds it.
bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// A row of logits with the maximum of each panel of 256 columns: what all stages read.
struct View {
  const float* logits;
  const float* panel_max;
};

float ClampFinite(float value) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return std::clamp(value, -kMax, kMax);
}

}  // namespace

struct Sampler::State {
  explicit State(uint32_t vocab_size)
      : vocab(vocab_size),
        num_panels((vocab_size + kPanelColumns - 1) / kPanelColumns),
        edited(vocab_size),
        raw_panels(num_panels),
        edited_panels(num_panels),
        panel_order(num_panels),
        candidates(vocab_size),
        weights(vocab_size),
        surprise(vocab_size),
        counts(vocab_size, 0),
        dirty(num_panels, 0),
        marks((vocab_size + 63) / 64, 0) {}

  const uint32_t vocab;
  const uint32_t num_panels;
  std::vector<float> edited;         // [vocab] logits after penalties and masks, when there are any
  std::vector<float> raw_panels;     // [num_panels] maxima made here when no hint was given
  std::vector<float> edited_panels;  // [num_panels] maxima of `edited`
  std::vector<float> panel_order;    // [num_panels] scratch of TopThreshold
  std::vector<Candidate> candidates;  // [vocab]
  std::vector<double> weights;        // [vocab] exp((logit - max) / T) of candidates, by id
  std::vector<double> surprise;       // [vocab] |-log p - entropy| of candidates, by id
  std::vector<uint32_t> counts;       // [vocab] how often an id came; all zero between uses
  std::vector<uint8_t> dirty;         // [num_panels] `edited` changed there; all zero between uses
  std::vector<uint64_t> marks;        // bitmap over ids; all zero between uses

  std::pair<uint32_t, uint32_t> PanelRange(uint32_t panel) const {
    return {panel * kPanelColumns, std::min((panel + 1) * kPanelColumns, vocab)};
  }
  bool Mark(TokenId id) {
    uint64_t& word = marks[static_cast<uint32_t>(id) / 64];
    const uint64_t bit = uint64_t{1} << (id % 64);
    const bool fresh = (word & bit) == 0;
    word |= bit;
    return fresh;
  }
  bool ValidId(TokenId id) const { return id >= 0 && static_cast<uint32_t>(id) < vocab; }

  bool MakePanels(const float* logits);
  bool ReadRow(const float* logits, const float* panel_max, View* raw);
  View Edit(const SamplingParams& params, const View& raw, std::span<const TokenId> history,
            uint32_t output_idx, std::span<const TokenId> banned, const TokenMask* mask);
  void Change(TokenId id, float logit);
  void PenaliseRepetition(const SamplingParams& params, std::span<const TokenId> history);
  void PenaliseOutput(const SamplingParams& params, std::span<const TokenId> output);
  void ApplyMask(const TokenMask& mask);
  void RefreshPanels();
  float Max(const View& view) const;
  TokenId Greedy(const View& view) const;
  float TopThreshold(const View& view, uint32_t k);
  uint32_t GatherTop(const View& view, uint32_t k);
  uint32_t GatherAbove(const View& view, double temperature, double min_weight, double* mass);
  double MassOfAll(const View& view) const;
  template <class Order>
  uint32_t CutByMass(uint32_t count, double target, Order before);
  uint32_t KeepTypical(uint32_t count, double typical_p, double temperature, double* mass);
  uint32_t KeepLikely(uint32_t count, double min_p);
  TokenId DrawFrom(uint32_t count, float uniform);
  TokenId Draw(const SamplingParams& params, const View& view, uint32_t output_idx);
  void ReportLogprobs(const View& raw, uint32_t num_top, Sample* sample);
};

// Fills raw_panels; false when a logit is not finite.
bool Sampler::State::MakePanels(const float* logits) {
  for (uint32_t panel = 0; panel < num_panels; ++panel) {
    const auto [begin, end] = PanelRange(panel);
    float best = logits[begin];
    float sum = 0;  // x * 0 is 0 for every finite x and NaN for the others
    for (uint32_t i = begin; i < end; ++i) {
      best = logits[i] > best ? logits[i] : best;
      sum += logits[i] * 0.0f;
    }
    if (!(sum == 0.0f)) return false;
    raw_panels[panel] = best;
  }
  return true;
}

// The maxima to select by: the given ones, or made here. False when a logit is not finite.
bool Sampler::State::ReadRow(const float* logits, const float* panel_max, View* raw) {
  *raw = {logits, panel_max == nullptr ? raw_panels.data() : panel_max};
  if (panel_max == nullptr) return MakePanels(logits);
  return std::all_of(panel_max, panel_max + num_panels,
                     [](float value) { return std::isfinite(value); });
}

void Sampler::State::Change(TokenId id, float logit) {
  edited[static_cast<uint32_t>(id)] = logit;
  dirty[static_cast<uint32_t>(id) / kPanelColumns] = 1;
}

void Sampler::State::RefreshPanels() {
  for (uint32_t panel = 0; panel < num_panels; ++panel) {
    if (dirty[panel] == 0) continue;
    dirty[panel] = 0;
    const auto [begin, end] = PanelRange(panel);
    edited_panels[panel] = *std::max_element(edited.begin() + begin, edited.begin() + end);
  }
}

void Sampler::State::PenaliseRepetition(const SamplingParams& params,
                                        std::span<const TokenId> history) {
  const auto recent = history.last(std::min<size_t>(params.repetition_last_n, history.size()));
  for (const TokenId id : recent) {
    if (!ValidId(id) || !Mark(id)) continue;  // each id once, however often it stands there
    const float logit = edited[static_cast<uint32_t>(id)];
    Change(id, ClampFinite(logit > 0 ? logit / params.repetition_penalty
                                     : logit * params.repetition_penalty));
  }
  for (const TokenId id : recent) {
    if (ValidId(id)) marks[static_cast<uint32_t>(id) / 64] = 0;
  }
}

void Sampler::State::PenaliseOutput(const SamplingParams& params, std::span<const TokenId> output) {
  for (const TokenId id : output) {
    if (ValidId(id)) ++counts[static_cast<uint32_t>(id)];
  }
  for (const TokenId id : output) {
    if (!ValidId(id) || counts[static_cast<uint32_t>(id)] == 0) continue;
    const auto count = static_cast<float>(std::exchange(counts[static_cast<uint32_t>(id)], 0));
    const float loss = count * params.frequency_penalty + params.presence_penalty;
    Change(id, ClampFinite(edited[static_cast<uint32_t>(id)] - loss));
  }
}

void Sampler::State::ApplyMask(const TokenMask& mask) {
  const auto allowed = mask.allowed();
  KVRM_CHECK(allowed.size() >= (vocab + 63) / 64, "a token mask covers the vocabulary");
  for (uint32_t i = 0; i < vocab; ++i) {
    if (((allowed[i / 64] >> (i % 64)) & 1) == 0) edited[i] = kMasked;
  }
  std::fill(dirty.begin(), dirty.end(), uint8_t{1});
}

// Bias and penalties, then bans and the mask, on a copy; the row itself when there are none.
View Sampler::State::Edit(const SamplingParams& params, const View& raw,
                          std::span<const TokenId> history, uint32_t output_idx,
                          std::span<const TokenId> banned, const TokenMask* mask) {
  const auto output = history.last(std::min<size_t>(output_idx, history.size()));
  const bool repetition =
      params.repetition_penalty != 1.0f && params.repetition_last_n > 0 && !history.empty();
  const bool counted =
      (params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f) && !output.empty();
  const bool restricted = !banned.empty() || mask != nullptr;
  if (!repetition && !counted && !restricted && params.logit_bias.empty()) return raw;
  std::copy_n(raw.logits, vocab, edited.begin());
  std::copy_n(raw.panel_max, num_panels, edited_panels.begin());
  for (const LogitBias& entry : params.logit_bias) {
    if (!ValidId(entry.id)) continue;
    Change(entry.id, ClampFinite(edited[static_cast<uint32_t>(entry.id)] + entry.bias));
  }
  if (repetition) PenaliseRepetition(params, history);
  if (counted) PenaliseOutput(params, output);
  for (const TokenId id : banned) {
    if (ValidId(id)) Change(id, kMasked);
  }
  if (mask != nullptr) ApplyMask(*mask);
  RefreshPanels();
  return {edited.data(), edited_panels.data()};
}

float Sampler::State::Max(const View& view) const {
  return *std::max_element(view.panel_max, view.panel_max + num_panels);
}

TokenId Sampler::State::Greedy(const View& view) const {
  const float best = Max(view);
  for (uint32_t panel = 0; panel < num_panels; ++panel) {
    if (view.panel_max[panel] != best) continue;
    const auto [begin, end] = PanelRange(panel);
    const float* found = std::find(view.logits + begin, view.logits + end, best);
    if (found != view.logits + end) return static_cast<TokenId>(found - view.logits);
  }
  // A hint above every logit: it is only a hint, so look for ourselves.
  return static_cast<TokenId>(std::max_element(view.logits, view.logits + vocab) - view.logits);
}

// A value that at least k logits reach: the k-th largest panel maximum, each panel holding one.
float Sampler::State::TopThreshold(const View& view, uint32_t k) {
  if (k > num_panels) return kMasked;
  std::copy_n(view.panel_max, num_panels, panel_order.begin());
  const auto nth = panel_order.begin() + (k - 1);
  std::nth_element(panel_order.begin(), nth, panel_order.end(), std::greater<float>());
  return *nth;
}

// The k best tokens that are not masked, in candidates[0, count), in no order.
uint32_t Sampler::State::GatherTop(const View& view, uint32_t k) {
  const float threshold = TopThreshold(view, k);
  uint32_t count = 0;
  for (uint32_t panel = 0; panel < num_panels; ++panel) {
    if (view.panel_max[panel] < threshold) continue;
    const auto [begin, end] = PanelRange(panel);
    for (uint32_t i = begin; i < end; ++i) {
      // Written so that a NaN, too, is passed over: it would break the order that selection needs.
      if (!(view.logits[i] >= threshold) || view.logits[i] == kMasked) continue;
      candidates[count++] = {view.logits[i], static_cast<TokenId>(i)};
    }
  }
  if (count <= k) return count;
  const auto first = candidates.begin();
  std::nth_element(first, first + (k - 1), first + count, Better);
  return k;
}

// All tokens whose weight is at least `min_weight`, ascending ids; panels below it are skipped.
// With `mass` each token is looked at, and it receives the weight of all.
uint32_t Sampler::State::GatherAbove(const View& view, double temperature, double min_weight,
                                     double* mass) {
  const double best = Max(view);
  uint32_t count = 0;
  for (uint32_t panel = 0; panel < num_panels; ++panel) {
    const double most = std::exp((view.panel_max[panel] - best) / temperature);
    if (mass == nullptr && most < min_weight) continue;
    const auto [begin, end] = PanelRange(panel);
    for (uint32_t i = begin; i < end; ++i) {
      if (view.logits[i] == kMasked) continue;
      const double weight = std::exp((view.logits[i] - best) / temperature);
      if (mass != nullptr) *mass += weight;
      if (!(weight >= min_weight)) continue;
      weights[i] = weight;
      candidates[count++] = {view.logits[i], static_cast<TokenId>(i)};
    }
  }
  return count;
}

// Sum of exp(logit - max) over the vocabulary.
double Sampler::State::MassOfAll(const View& view) const {
  const double best = Max(view);
  double sum = 0;
  for (uint32_t i = 0; i < vocab; ++i) {
    if (view.logits[i] != kMasked) sum += std::exp(view.logits[i] - best);
  }
  return sum;
}

// Moves to the front of candidates[0, count) the fewest first ones, by `before`, whose weights
// reach `target`, and returns how many. Halves by selection instead of sorting: linear in count.
template <class Order>
uint32_t Sampler::State::CutByMass(uint32_t count, double target, Order before) {
  constexpr uint32_t kSmall = 32;
  const auto first = candidates.begin();
  uint32_t begin = 0;
  uint32_t end = count;
  double mass = 0;  // of [0, begin)
  while (end - begin > kSmall) {
    const uint32_t middle = begin + (end - begin) / 2;
    std::nth_element(first + begin, first + middle, first + end, before);
    double half = 0;
    for (uint32_t i = begin; i < middle; ++i) {
      half += weights[static_cast<uint32_t>(candidates[i].id)];
    }
    if (mass + half >= target) {
      end = middle;
    } else {
      mass += half;
      begin = middle;
    }
  }
  std::sort(first + begin, first + end, before);
  while (begin < end) {
    mass += weights[static_cast<uint32_t>(candidates[begin++].id)];
    if (mass >= target) break;
  }
  return begin;
}

// Locally typical: the fewest candidates whose surprise is nearest to the entropy of all of them
// and whose weights reach the share `typical_p`. Replaces `mass` by that of what is kept.
uint32_t Sampler::State::KeepTypical(uint32_t count, double typical_p, double temperature,
                                     double* mass) {
  double best = kMasked;
  for (uint32_t i = 0; i < count; ++i) best = std::max<double>(best, candidates[i].logit);
  const double log_mass = std::log(*mass);
  double entropy = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const auto id = static_cast<uint32_t>(candidates[i].id);
    surprise[id] = log_mass - (candidates[i].logit - best) / temperature;
    entropy += weights[id] / *mass * surprise[id];
  }
  for (uint32_t i = 0; i < count; ++i) {
    double& distance = surprise[static_cast<uint32_t>(candidates[i].id)];
    distance = std::abs(distance - entropy);
  }
  const auto nearer = [this](const Candidate& a, const Candidate& b) {
    const double x = surprise[static_cast<uint32_t>(a.id)];
    const double y = surprise[static_cast<uint32_t>(b.id)];
    return x < y || (x == y && a.id < b.id);
  };
  const uint32_t kept = CutByMass(count, typical_p * *mass, nearer);
  *mass = 0;
  for (uint32_t i = 0; i < kept; ++i) *mass += weights[static_cast<uint32_t>(candidates[i].id)];
  return kept;
}

// Those of candidates[0, count) whose weight is at least min_p times the largest of them.
uint32_t Sampler::State::KeepLikely(uint32_t count, double min_p) {
  const auto weight = [this](const Candidate& c) { return weights[static_cast<uint32_t>(c.id)]; };
  double most = 0;
  for (uint32_t i = 0; i < count; ++i) most = std::max(most, weight(candidates[i]));
  const auto end = std::remove_if(candidates.begin(), candidates.begin() + count,
                                  [&](const Candidate& c) { return weight(c) < min_p * most; });
  return static_cast<uint32_t>(end - candidates.begin());
}

// Inverse distribution function over candidates[0, count) in ascending id order. A bitmap brings
// them into that order without a sort; it is left clear.
TokenId Sampler::State::DrawFrom(uint32_t count, float uniform) {
  for (uint32_t i = 0; i < count; ++i) Mark(candidates[i].id);
  double total = 0;
  for (size_t w = 0; w < marks.size(); ++w) {
    for (uint64_t word = marks[w]; word != 0; word &= word - 1) {
      total += weights[w * 64 + static_cast<uint32_t>(std::countr_zero(word))];
    }
  }
  const double target = static_cast<double>(uniform) * total;
  double sum = 0;
  TokenId chosen = -1;
  bool found = false;
  for (size_t w = 0; w < marks.size(); ++w) {
    for (uint64_t word = marks[w]; word != 0 && !found; word &= word - 1) {
      const size_t id = w * 64 + static_cast<uint32_t>(std::countr_zero(word));
      if (weights[id] <= 0) continue;  // underflowed: cannot be drawn, not even by rounding
      chosen = static_cast<TokenId>(id);
      sum += weights[id];
      found = sum > target;
    }
    marks[w] = 0;
  }
  return chosen;
}

TokenId Sampler::State::Draw(const SamplingParams& params, const View& view, uint32_t output_idx) {
  const double temperature = params.temperature;
  const double best = Max(view);
  const bool limited = params.top_k > 0 && params.top_k < vocab;
  const bool typical = params.typical_p < 1.0f;
  // What top-k, top-p and min-p keep are prefixes of one order, so together they keep the
  // shortest; min-p may therefore be applied first. Only the mass that top_p is a share of has to
  // be that of the top-k survivors. Typical-p keeps no prefix: then min-p waits for its turn.
  const double early_min_p = typical ? 0.0 : params.min_p;
  uint32_t count = 0;
  double mass = 0;
  if (limited) {
    const uint32_t gathered = GatherTop(view, params.top_k);
    for (uint32_t i = 0; i < gathered; ++i) {
      const Candidate candidate = candidates[i];
      const double weight = std::exp((candidate.logit - best) / temperature);
      mass += weight;
      if (weight < early_min_p) continue;
      weights[static_cast<uint32_t>(candidate.id)] = weight;
      candidates[count++] = candidate;
    }
  } else {
    const bool needs_mass = typical || params.top_p < 1.0f;
    count = GatherAbove(view, temperature, early_min_p, needs_mass ? &mass : nullptr);
  }
  if (typical) {
    count = KeepTypical(count, params.typical_p, temperature, &mass);
    count = KeepLikely(count, params.min_p);
  }
  if (params.top_p < 1.0f) count = CutByMass(count, double{params.top_p} * mass, Better);
  return DrawFrom(count, UniformDraw(params.seed, params.choice, output_idx));
}

// Of the raw logits: what the model said, before penalties, masks and temperature.
void Sampler::State::ReportLogprobs(const View& raw, uint32_t num_top, Sample* sample) {
  const double best = Max(raw);
  const double log_sum = std::log(MassOfAll(raw));
  const auto logprob = [&](float logit) { return static_cast<float>(logit - best - log_sum); };
  sample->logprob = logprob(raw.logits[sample->id]);
  const uint32_t count = num_top == 0 ? 0 : GatherTop(raw, std::min(num_top, vocab));
  std::sort(candidates.begin(), candidates.begin() + count, Better);
  RetryUntilMemory([&] { sample->top.reserve(count); });
  for (uint32_t i = 0; i < count; ++i) {
    sample->top.push_back({candidates[i].id, logprob(candidates[i].logit)});
  }
}

Sampler::Sampler(uint32_t vocab) : state_(std::make_unique<State>(vocab)) {
  KVRM_CHECK(vocab > 0, "a vocabulary has tokens");
}
Sampler::~Sampler() = default;

Sample Sampler::Run(const SamplingParams& params, const float* logits, const float* panel_max,
                    std::span<const TokenId> history, uint32_t output_idx,
                    std::span<const TokenId> banned, const TokenMask* mask) {
  State& s = *state_;
  Sample sample;
  View raw{};
  sample.ok = s.ReadRow(logits, panel_max, &raw);
  if (!sample.ok) return sample;
  const View view = s.Edit(params, raw, history, output_idx, banned, mask);
  if (s.Max(view) == kMasked) {
    sample.ok = false;
    return sample;
  }
  sample.id = params.temperature == 0.0f ? s.Greedy(view) : s.Draw(params, view, output_idx);
  sample.ok = sample.id >= 0;
  if (sample.ok && params.num_logprobs > 0) s.ReportLogprobs(raw, params.num_logprobs, &sample);
  return sample;
}

Sample Sampler::Score(const float* logits, const float* panel_max, TokenId target,
                      uint32_t num_top) {
  State& s = *state_;
  KVRM_CHECK(s.ValidId(target), "a scored token is one of the vocabulary");
  Sample sample;
  View raw{};
  sample.ok = s.ReadRow(logits, panel_max, &raw);
  if (!sample.ok) return sample;
  sample.id = target;
  const float own = logits[target];
  sample.rank = 1 + static_cast<uint32_t>(std::count_if(
                        logits, logits + s.vocab, [own](float logit) { return logit > own; }));
  s.ReportLogprobs(raw, num_top, &sample);
  return sample;
}

}  // namespace kvrm
