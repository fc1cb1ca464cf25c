#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

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
        marks((vocab_size + 63) / 64, 0) {}

  const uint32_t vocab;
  const uint32_t num_panels;
  std::vector<float> edited;         // [vocab] logits after penalties and masks, when there are any
  std::vector<float> raw_panels;     // [num_panels] maxima made here when no hint was given
  std::vector<float> edited_panels;  // [num_panels] maxima of `edited`
  std::vector<float> panel_order;    // [num_panels] scratch of TopThreshold
  std::vector<Candidate> candidates;  // [vocab]
  std::vector<double> weights;        // [vocab] exp((logit - max) / T) of candidates, by id
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
  View Edit(const SamplingParams& params, const View& raw, std::span<const TokenId> history,
            std::span<const TokenId> banned, const TokenMask* mask);
  void ApplyPenalty(const SamplingParams& params, std::span<const TokenId> history);
  void RefreshPanel(uint32_t panel);
  float Max(const View& view) const;
  TokenId Greedy(const View& view) const;
  float TopThreshold(const View& view, uint32_t k);
  uint32_t GatherTop(const View& view, uint32_t k);
  uint32_t GatherAbove(const View& view, double temperature, double min_weight, double* mass);
  double MassOfAll(const View& view) const;
  uint32_t CutByMass(uint32_t count, double target);
  TokenId DrawFrom(uint32_t count, float uniform);
  TokenId Draw(const SamplingParams& params, const View& view, uint32_t output_idx);
  void ReportLogprobs(const SamplingParams& params, const View& raw, Sample* sample);
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

void Sampler::State::RefreshPanel(uint32_t panel) {
  const auto [begin, end] = PanelRange(panel);
  edited_panels[panel] = *std::max_element(edited.begin() + begin, edited.begin() + end);
}

void Sampler::State::ApplyPenalty(const SamplingParams& params, std::span<const TokenId> history) {
  const size_t count = std::min<size_t>(params.repetition_last_n, history.size());
  const auto recent = history.last(count);
  for (const TokenId id : recent) {
    if (!ValidId(id) || !Mark(id)) continue;  // each id once, however often it stands there
    float& logit = edited[static_cast<uint32_t>(id)];
    logit = ClampFinite(logit > 0 ? logit / params.repetition_penalty
                                  : logit * params.repetition_penalty);
  }
  for (const TokenId id : recent) {
    if (!ValidId(id)) continue;
    marks[static_cast<uint32_t>(id) / 64] = 0;
    RefreshPanel(static_cast<uint32_t>(id) / kPanelColumns);
  }
}

// Penalties, then bans and the mask, on a copy; the row itself when there are none.
View Sampler::State::Edit(const SamplingParams& params, const View& raw,
                          std::span<const TokenId> history, std::span<const TokenId> banned,
                          const TokenMask* mask) {
  const bool penalise =
      params.repetition_penalty != 1.0f && params.repetition_last_n > 0 && !history.empty();
  if (!penalise && banned.empty() && mask == nullptr) return raw;
  std::copy_n(raw.logits, vocab, edited.begin());
  std::copy_n(raw.panel_max, num_panels, edited_panels.begin());
  if (penalise) ApplyPenalty(params, history);
  for (const TokenId id : banned) {
    if (!ValidId(id)) continue;
    edited[static_cast<uint32_t>(id)] = kMasked;
    RefreshPanel(static_cast<uint32_t>(id) / kPanelColumns);
  }
  if (mask != nullptr) {
    const auto allowed = mask->allowed();
    KVRM_CHECK(allowed.size() >= (vocab + 63) / 64, "a token mask covers the vocabulary");
    for (uint32_t i = 0; i < vocab; ++i) {
      if (((allowed[i / 64] >> (i % 64)) & 1) == 0) edited[i] = kMasked;
    }
    for (uint32_t panel = 0; panel < num_panels; ++panel) RefreshPanel(panel);
  }
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

// Moves to the front of candidates[0, count) the fewest best ones whose weights reach `target`, and
// returns how many. Halves by selection instead of sorting: linear in count.
uint32_t Sampler::State::CutByMass(uint32_t count, double target) {
  constexpr uint32_t kSmall = 32;
  const auto first = candidates.begin();
  uint32_t begin = 0;
  uint32_t end = count;
  double mass = 0;  // of [0, begin)
  while (end - begin > kSmall) {
    const uint32_t middle = begin + (end - begin) / 2;
    std::nth_element(first + begin, first + middle, first + end, Better);
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
  std::sort(first + begin, first + end, Better);
  while (begin < end) {
    mass += weights[static_cast<uint32_t>(candidates[begin++].id)];
    if (mass >= target) break;
  }
  return begin;
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
  // What top-k, top-p and min-p keep are prefixes of one order, so together they keep the
  // shortest; min-p may therefore be applied first. Only the mass that top_p is a share of has to
  // be that of the top-k survivors.
  uint32_t count = 0;
  double mass = 0;
  if (limited) {
    const uint32_t gathered = GatherTop(view, params.top_k);
    for (uint32_t i = 0; i < gathered; ++i) {
      const Candidate candidate = candidates[i];
      const double weight = std::exp((candidate.logit - best) / temperature);
      mass += weight;
      if (weight < params.min_p) continue;
      weights[static_cast<uint32_t>(candidate.id)] = weight;
      candidates[count++] = candidate;
    }
  } else {
    count = GatherAbove(view, temperature, params.min_p, params.top_p < 1.0f ? &mass : nullptr);
  }
  if (params.top_p < 1.0f) count = CutByMass(count, double{params.top_p} * mass);
  return DrawFrom(count, UniformDraw(params.seed, params.choice, output_idx));
}

// Of the raw logits: what the model said, before penalties, masks and temperature.
void Sampler::State::ReportLogprobs(const SamplingParams& params, const View& raw, Sample* sample) {
  const double best = Max(raw);
  const double log_sum = std::log(MassOfAll(raw));
  const auto logprob = [&](float logit) { return static_cast<float>(logit - best - log_sum); };
  sample->logprob = logprob(raw.logits[sample->id]);
  const uint32_t count = GatherTop(raw, std::min(params.num_logprobs, vocab));
  std::sort(candidates.begin(), candidates.begin() + count, Better);
  sample->top.reserve(count);
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
  View raw{logits, panel_max};
  if (panel_max == nullptr) {
    sample.ok = s.MakePanels(logits);
    raw.panel_max = s.raw_panels.data();
  } else {
    sample.ok = std::all_of(panel_max, panel_max + s.num_panels,
                            [](float value) { return std::isfinite(value); });
  }
  if (!sample.ok) return sample;
  const View view = s.Edit(params, raw, history, banned, mask);
  if (s.Max(view) == kMasked) {
    sample.ok = false;
    return sample;
  }
  sample.id = params.temperature == 0.0f ? s.Greedy(view) : s.Draw(params, view, output_idx);
  sample.ok = sample.id >= 0;
  if (sample.ok && params.num_logprobs > 0) s.ReportLogprobs(params, raw, &sample);
  return sample;
}

}  // namespace kvrm
