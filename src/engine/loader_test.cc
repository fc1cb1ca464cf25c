#include "engine/loader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "engine/memory_plan.h"
#include "engine/system_limits.h"
#include "model/random_model.h"

namespace kvrm {
namespace {

namespace fs = std::filesystem;

// A system made of files.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (fs::temp_directory_path() / "kvrm-root-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    Write("/proc/meminfo", "MemTotal:       1000 kB\nMemFree: 5 kB\n");
  }
  ~FakeRoot() { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
  }
  const std::string& path() const { return root_; }

 private:
  std::string root_;
};

TEST(MemoryLimit, IsPhysicalMemoryWithoutCgroups) {
  const FakeRoot root;
  EXPECT_EQ(MemoryLimitBytesIn(root.path()), 1000u * 1024);
}

TEST(MemoryLimit, IsTheLeastOfACgroup2AndItsParents) {
  const FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/a/b\n");
  root.Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(MemoryLimitBytesIn(root.path()), 1000u * 1024);
  root.Write("/sys/fs/cgroup/a/memory.max", "5000\n");
  EXPECT_EQ(MemoryLimitBytesIn(root.path()), 5000u);
  root.Write("/sys/fs/cgroup/a/b/memory.max", "7000\n");
  EXPECT_EQ(MemoryLimitBytesIn(root.path()), 5000u);
}

TEST(MemoryLimit, IsThatOfACgroup1EvenWhereThePathIsTheHosts) {
  const FakeRoot root;
  root.Write("/proc/self/cgroup", "4:memory:/docker/123\n3:cpu,cpuacct:/docker/123\n0::/\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(MemoryLimitBytesIn(root.path()), 1000u * 1024);
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n");
  EXPECT_EQ(MemoryLimitBytesIn(root.path()), 4096u);
}

TEST(CpuQuota, IsRoundedUpInBothVersions) {
  const FakeRoot root;
  EXPECT_EQ(CpuQuotaIn(root.path()), 0xFFFFFFFFu);
  root.Write("/proc/self/cgroup", "3:cpu,cpuacct:/x\n0::/y\n");
  root.Write("/sys/fs/cgroup/y/cpu.max", "max 100000\n");
  root.Write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
  root.Write("/sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(CpuQuotaIn(root.path()), 0xFFFFFFFFu);
  root.Write("/sys/fs/cgroup/y/cpu.max", "250000 100000\n");
  EXPECT_EQ(CpuQuotaIn(root.path()), 3u);
  root.Write("/sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(CpuQuotaIn(root.path()), 2u);
}

TEST(SystemLimits, ThisMachineHasSome) {
  EXPECT_GT(MemoryLimitBytes(), uint64_t{16} << 20);
  EXPECT_GE(AllowedCpus(), 1u);
}

KvGeometry Geometry() {
  KvGeometry geometry;
  geometry.groups.push_back({.page_tokens = 16,
                             .num_parts = 2,
                             .part_page_bytes = 512,
                             .pages_per_superblock = 8,
                             .superblock_bytes = 8192});
  return geometry;
}

TEST(MemoryPlan, DefaultsAreAQuarterOfTheLimitAndTheModelsContextCappedAtWhatFits) {
  const auto plan =
      PlanMemory(Geometry(), {.limit_bytes = 65536, .weight_bytes = 1000, .model_context = 1000});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->kv_bytes, 16384u);
  EXPECT_EQ(plan->kv_tokens, 15u * 16);  // 16 pages, one of them the null page
  EXPECT_EQ(plan->ctx, 240u);
  const auto roomy =
      PlanMemory(Geometry(), {.limit_bytes = 1 << 20, .weight_bytes = 1000, .model_context = 1000});
  ASSERT_TRUE(roomy.ok());
  EXPECT_EQ(roomy->ctx, 1000u);
}

TEST(MemoryPlan, EachRefusalShowsItsArithmetic) {
  const auto refused = [](const MemoryRequest& request, const std::vector<std::string>& words) {
    const auto plan = PlanMemory(Geometry(), request);
    ASSERT_FALSE(plan.ok());
    for (const std::string& word : words) {
      EXPECT_NE(plan.error().message.find(word), std::string::npos)
          << plan.error().message << " lacks " << word;
    }
  };
  refused({.limit_bytes = 65536, .weight_bytes = 60000, .model_context = 100},
          {"60000", "16384", "65536"});
  refused({.limit_bytes = 100, .weight_bytes = 60000, .model_context = 100}, {"60000", "100"});
  refused({.limit_bytes = ~uint64_t{0}, .weight_bytes = 1, .kv_bytes = ~uint64_t{0}}, {"kv_bytes"});
  refused({.limit_bytes = 65536, .kv_bytes = 8000, .model_context = 100}, {"8000", "8192"});
  refused({.limit_bytes = 65536, .ctx = 101, .model_context = 100}, {"101", "100"});
  refused({.limit_bytes = 65536, .ctx = 241, .model_context = 1000}, {"241", "16384", "240"});
  refused({.limit_bytes = 65536, .ctx = 1, .model_context = 1000}, {"ctx is 1"});
}

struct Sink final : EventSink {
  void OnToken(RequestId, const TokenEvent& event) override { tokens.push_back(event.token); }
  void OnFinish(RequestId, const FinishEvent& event) override { finish = event; }
  std::vector<TokenId> tokens;
  FinishEvent finish;
};

std::unique_ptr<const GgufFile> RandomFile(const std::vector<std::byte>& bytes) {
  auto file = GgufFile::Parse(bytes, "random");
  EXPECT_TRUE(file.ok());
  return std::move(file).value();
}

TEST(Loader, ARandomModelRunsFromBytesToTokens) {
  const std::vector<std::byte> bytes = WriteRandomModel({});
  const auto file = RandomFile(bytes);
  double progress = 0;
  auto runtime = LoadRuntime(*file, {.num_threads = 2,
                                     .max_slots = 4,
                                     .kv_bytes = uint64_t{16} << 20,
                                     .validate_each_step = true,
                                     .progress = [&](double share) { progress = share; }});
  ASSERT_TRUE(runtime.ok()) << runtime.error().message;
  EXPECT_EQ((*runtime)->ctx, 256u);
  EXPECT_EQ(progress, 1.0);
  Sink sink;
  GenerateRequest request;
  request.prompt = {5, 6, 7};
  request.sampling.temperature = 0;
  request.max_new_tokens = 10;
  request.sink = &sink;
  Engine& engine = *(*runtime)->engine;
  ASSERT_TRUE(engine.Check(request).ok());
  ASSERT_TRUE(engine.Submit(request).ok());
  while (engine.Step()) {
  }
  EXPECT_EQ(sink.tokens.size(), 10u);
  EXPECT_EQ(sink.finish.reason, StopReason::kLength);
  EXPECT_EQ(engine.Metrics().exec.hash_mismatches, 0u);
}

// Law I5 on the real model, as far as a short test goes: one greedy request alone, then beside
// three others, its prompt cut into chunks of 7 on scattered pages.
TEST(Loader, TheDefaultModelGivesTheSameTokensAloneAndInCompany) {
  const std::string path = testing::DefaultModelPath();
  KVRM_REQUIRE_DATA(path);
  const auto tokens_of_first = [&](uint32_t others, uint32_t chunk, uint64_t scatter) {
    auto runtime = LoadRuntime({.model_path = path,
                                .max_slots = 4,
                                .ctx = 128,
                                .kv_bytes = uint64_t{64} << 20,
                                .chunk_rows = chunk,
                                .scatter_seed = scatter});
    EXPECT_TRUE(runtime.ok()) << runtime.error().message;
    if (!runtime.ok()) return std::vector<TokenId>{};
    std::vector<Sink> sinks(1 + others);
    Engine& engine = *(*runtime)->engine;
    for (uint32_t i = 0; i <= others; ++i) {
      GenerateRequest request;
      for (TokenId id = 0; id < 20 + static_cast<TokenId>(i); ++id) {
        request.prompt.push_back(500 + 37 * id + 11 * static_cast<TokenId>(i));
      }
      request.sampling.temperature = 0;
      request.max_new_tokens = 8 + i;
      request.sink = &sinks[i];
      EXPECT_TRUE(engine.Submit(std::move(request)).ok());
    }
    while (engine.Step()) {
    }
    return sinks[0].tokens;
  };
  const std::vector<TokenId> alone = tokens_of_first(0, 0, 0);
  EXPECT_EQ(alone.size(), 8u);
  EXPECT_EQ(tokens_of_first(3, 7, 5), alone);
}

TEST(Loader, RefusesWithFieldValueAndLimit) {
  const std::vector<std::byte> bytes = WriteRandomModel({});
  const auto file = RandomFile(bytes);
  const auto message = [&](const RuntimeOptions& options) {
    const auto runtime = LoadRuntime(*file, options);
    return runtime.ok() ? std::string("accepted") : runtime.error().message;
  };
  EXPECT_NE(message({.num_threads = 257}).find("threads is 257"), std::string::npos);
  EXPECT_NE(message({.max_slots = 0}).find("slots is 0"), std::string::npos);
  EXPECT_NE(message({.ctx = 257}).find("ctx is 257"), std::string::npos);
  EXPECT_NE(message({.kv_bytes = 1}).find("kv_bytes is"), std::string::npos);
  EXPECT_NE(message({.kv_bytes = ~uint64_t{0}}).find("may use"), std::string::npos);
  const auto missing = LoadRuntime({.model_path = "no/such/model.gguf"});
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("no/such/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace kvrm
