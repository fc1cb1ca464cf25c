// The sampler's slow oracle: it sorts everything. Test code only.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/sampler.h"

namespace kvrm::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline SamplingParams Plain() {
  SamplingParams params;
  params.temperature = 1.0f;
  params.top_k = 0;
  params.top_p = 1.0f;
  params.min_p = 0.0f;
  return params;
}

inline std::vector<float> PanelMaxima(const std::vector<float>& logits) {
  std::vector<float> panels;
  for (size_t i = 0; i < logits.size(); i += 256) {
    const auto end = logits.begin() + static_cast<long>(std::min(i + 256, logits.size()));
    panels.push_back(*std::max_element(logits.begin() + static_cast<long>(i), end));
  }
  return panels;
}

struct BitMask final : TokenMask {
  explicit BitMask(size_t vocab) : words((vocab + 63) / 64, 0) {}
  void Allow(TokenId id) { words[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64); }
  std::span<const uint64_t> allowed() const override { return words; }
  std::vector<uint64_t> words;
};

// What the sampler must do, by sorting everything: the slow oracle.
struct Oracle {
  std::vector<float> logits;  // after penalties, bans and mask
  struct Kept {
    TokenId id;
    double weight;
  };
  std::vector<Kept> kept;  // ascending ids
  bool near_boundary = false;

  Oracle(const SamplingParams& params, std::vector<float> raw, std::span<const TokenId> history,
         std::span<const TokenId> banned, const TokenMask* mask, uint32_t output_idx = 0)
      : logits(std::move(raw)) {
    for (const LogitBias& entry : params.logit_bias) {
      logits[static_cast<size_t>(entry.id)] += entry.bias;
    }
    const size_t last = std::min<size_t>(history.size(), params.repetition_last_n);
    const std::set<TokenId> recent(history.end() - static_cast<long>(last), history.end());
    for (const TokenId id : recent) {
      float& logit = logits[static_cast<size_t>(id)];
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
    std::map<TokenId, uint32_t> counts;
    for (size_t i = history.size() - std::min<size_t>(output_idx, history.size());
         i < history.size(); ++i) {
      ++counts[history[i]];
    }
    for (const auto& [id, count] : counts) {
      logits[static_cast<size_t>(id)] -=
          static_cast<float>(count) * params.frequency_penalty + params.presence_penalty;
    }
    for (const TokenId id : banned) logits[static_cast<size_t>(id)] = -kInf;
    for (size_t i = 0; mask != nullptr && i < logits.size(); ++i) {
      if (((mask->allowed()[i / 64] >> (i % 64)) & 1) == 0) logits[i] = -kInf;
    }
    Keep(params);
  }

  std::vector<TokenId> Sorted() const {
    std::vector<TokenId> order;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] != -kInf) order.push_back(static_cast<TokenId>(i));
    }
    std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      const float x = logits[static_cast<size_t>(a)];
      const float y = logits[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    });
    return order;
  }

  void Keep(const SamplingParams& params) {
    std::vector<TokenId> order = Sorted();
    if (order.empty() || params.temperature == 0) return;
    if (params.top_k > 0 && order.size() > params.top_k) order.resize(params.top_k);
    if (params.typical_p < 1.0f) order = Typical(params, order);
    const std::vector<double> weights = Weights(params, order);
    const double mass = std::accumulate(weights.begin(), weights.end(), 0.0);
    double sum = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (params.top_p < 1.0f && sum >= double{params.top_p} * mass) break;
      near_boundary |=
          i > 0 && params.top_p < 1.0f && std::abs(sum - double{params.top_p} * mass) < 1e-9 * mass;
      sum += weights[i];
      if (weights[i] >= params.min_p) kept.push_back({order[i], weights[i]});
    }
    std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.id < b.id; });
  }

  // Of `order`, best first: 1 for the first.
  std::vector<double> Weights(const SamplingParams& params, const std::vector<TokenId>& order) {
    const double best = logits[static_cast<size_t>(order[0])];
    std::vector<double> weights;
    for (const TokenId id : order) {
      weights.push_back(
          std::exp((logits[static_cast<size_t>(id)] - best) / double{params.temperature}));
    }
    return weights;
  }

  // What locally typical sampling leaves of `order`, in the same order.
  std::vector<TokenId> Typical(const SamplingParams& params, const std::vector<TokenId>& order) {
    const double best = logits[static_cast<size_t>(order[0])];
    const std::vector<double> weights = Weights(params, order);
    const double mass = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<double> surprise;
    double entropy = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const double scaled =
          (logits[static_cast<size_t>(order[i])] - best) / double{params.temperature};
      surprise.push_back(std::log(mass) - scaled);
      entropy += weights[i] / mass * surprise[i];
    }
    std::vector<size_t> nearest(order.size());
    std::iota(nearest.begin(), nearest.end(), size_t{0});
    const auto distance = [&](size_t i) { return std::abs(surprise[i] - entropy); };
    std::sort(nearest.begin(), nearest.end(), [&](size_t a, size_t b) {
      return distance(a) < distance(b) || (distance(a) == distance(b) && order[a] < order[b]);
    });
    std::set<size_t> chosen;
    double sum = 0;
    for (size_t i = 0; i < nearest.size() && sum < double{params.typical_p} * mass; ++i) {
      chosen.insert(nearest[i]);
      sum += weights[nearest[i]];
      near_boundary |= std::abs(sum - double{params.typical_p} * mass) < 1e-9 * mass;
      near_boundary |= i + 1 < nearest.size() && sum >= double{params.typical_p} * mass &&
                       distance(nearest[i + 1]) - distance(nearest[i]) < 1e-9;
    }
    std::vector<TokenId> left;
    for (const size_t i : chosen) left.push_back(order[i]);
    return left;
  }

  TokenId Choose(const SamplingParams& params, uint32_t output_idx) {
    if (params.temperature == 0) return Sorted()[0];
    double total = 0;
    for (const Kept& k : kept) total += k.weight;
    const double target = double{UniformDraw(params.seed, params.choice, output_idx)} * total;
    double sum = 0;
    for (const Kept& k : kept) {
      if (std::abs(sum - target) < 1e-9 * total && sum > 0) near_boundary = true;
      sum += k.weight;
      if (sum > target) return k.id;
    }
    return kept.back().id;
  }
};

}  // namespace kvrm::testing
