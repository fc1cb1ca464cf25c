// Edit, commit and publish of a step of N decoding sequences, against the context.
#include <algorithm>

#include "bench/heart_decoders.h"

namespace kvrm::cli {
namespace {

// Steps of one sample: one round, more where a round is too short for the clocks.
constexpr uint32_t kSampledSequenceSteps = 16'384;

TimeSamples TimeSteps(const HeartSizes& sizes, uint32_t num_seqs, uint32_t context,
                      bool publishes) {
  Decoders decoders(num_seqs, context, publishes);
  const uint32_t rounds =
      std::clamp(kSampledSequenceSteps / (num_seqs * Decoders::kStepsToRewind), 1u, 16u);
  TimeSamples step;
  // The first repeat warms up.
  for (uint32_t repeat = 0; repeat <= sizes.repeats; ++repeat) {
    Stopwatch watch;
    for (uint32_t round = 0; round < rounds; ++round) {
      decoders.Rewind();
      watch.Start();
      for (uint32_t i = 0; i < Decoders::kStepsToRewind; ++i) decoders.Step();
      watch.Stop();
    }
    decoders.Check();
    if (repeat > 0) step.Add(watch, uint64_t{rounds} * Decoders::kStepsToRewind);
  }
  return step;
}

}  // namespace

StepGrid MeasureSteps(const HeartSizes& sizes) {
  StepGrid grid;
  for (uint32_t num_seqs : sizes.num_seqs) {
    for (uint32_t context : sizes.contexts) {
      const uint64_t pages = Decoders::PagesNeeded(num_seqs, context);
      if (pages > sizes.max_pages) {
        grid.skipped.push_back({num_seqs, context, pages});
        continue;
      }
      grid.rows.push_back({num_seqs, context, pages,
                           TimeSteps(sizes, num_seqs, context, /*publishes=*/false),
                           TimeSteps(sizes, num_seqs, context, /*publishes=*/true)});
    }
  }
  return grid;
}

std::optional<double> GrowthWithContext(const StepGrid& grid, uint32_t num_seqs) {
  std::vector<double> medians;
  for (const StepRow& row : grid.rows) {
    if (row.num_seqs == num_seqs) medians.push_back(row.commit.median_cpu_ns());
  }
  if (medians.size() < 2) return std::nullopt;
  const auto [least, most] = std::minmax_element(medians.begin(), medians.end());
  return *most / *least;
}

}  // namespace kvrm::cli
