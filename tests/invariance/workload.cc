#include "tests/invariance/workload.h"

#include <gtest/gtest.h>

namespace kvrm::testing {

std::vector<Recording> RunWorkload(Runtime& runtime, const std::vector<WorkItem>& items,
                                   Recorder::Seen* seen) {
  Engine& engine = *runtime.engine;
  Recorder recorder(runtime.model->config(), engine);
  engine.SetObserver(&recorder);
  std::vector<RequestId> ids(items.size());
  std::vector<bool> submitted(items.size(), false);
  size_t open = items.size();
  constexpr uint32_t kMaxSteps = 100'000;
  for (uint32_t step = 0; step < kMaxSteps; ++step) {
    for (size_t i = 0; i < items.size(); ++i) {
      const WorkItem& item = items[i];
      if (!submitted[i] && item.arrival_step <= step) {
        GenerateRequest request;
        request.prompt = item.prompt;
        request.max_new_tokens = item.max_new_tokens;
        request.sampling.temperature = item.temperature;
        request.sampling.seed = item.seed;
        request.sink = &recorder;
        EXPECT_TRUE(engine.Check(request).ok());
        const Result<RequestId> id = engine.Submit(std::move(request));
        EXPECT_TRUE(id.ok());
        ids[i] = *id;
        recorder.Watch(ids[i], static_cast<uint32_t>(item.prompt.size()) + item.max_new_tokens - 1);
        submitted[i] = true;
        --open;
      }
      if (submitted[i] && item.cancel_step == static_cast<int64_t>(step)) engine.Cancel(ids[i]);
    }
    const bool worked = engine.Step();
    if (!worked && open == 0) break;
  }
  engine.SetObserver(nullptr);
  if (seen != nullptr) *seen = recorder.seen();
  std::vector<Recording> recordings;
  for (size_t i = 0; i < items.size(); ++i) {
    recordings.push_back(recorder.of(ids[i]));
    EXPECT_TRUE(recordings.back().finished) << "request " << i << " was lost";
  }
  return recordings;
}

}  // namespace kvrm::testing
