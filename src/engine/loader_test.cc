#include "engine/loader.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
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

TEST(MemoryPlan, CountsTheBuffersOfTheChosenContext) {
  MemoryRequest request{.limit_bytes = 65536,
                        .weight_bytes = 1000,
                        .model_context = 1000,
                        .buffer_bytes = [](const MemoryPlan& plan) { return plan.ctx * 100u; }};
  const auto plan = PlanMemory(Geometry(), request);  // 1000 + 16384 + 240 * 100
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->buffer_bytes, 24000u);
  request.kv_bytes = 16384;
  request.limit_bytes = 1000 + 16384 + 24000;
  EXPECT_TRUE(PlanMemory(Geometry(), request).ok());
  --request.limit_bytes;
  const auto refused = PlanMemory(Geometry(), request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kNoRoom);
  for (const char* word : {"1000 bytes", "16384 bytes", "ctx 240", "24000 bytes", "41383 bytes"}) {
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << refused.error().message;
  }
}

TEST(MemoryPlan, TheControlPlaneGrowsWithSlotsContextAndVocabulary) {
  const MemoryPlan plan{.kv_bytes = 1 << 20, .ctx = 1600};
  const ControlPlaneShape shape{.max_slots = 4, .max_rows = 516, .vocab = 1000};
  const uint64_t base = ControlPlaneBytes(Geometry(), plan, shape);
  MemoryPlan longer = plan;
  longer.ctx *= 2;  // 100 entries more a slot
  EXPECT_GE(ControlPlaneBytes(Geometry(), longer, shape), base + 4 * 100 * (sizeof(Segment) + 8));
  ControlPlaneShape more = shape;
  more.max_slots = 8;
  EXPECT_GE(ControlPlaneBytes(Geometry(), plan, more), base + 4 * 100 * (sizeof(Segment) + 8));
  more = shape;
  more.vocab = 2000;
  EXPECT_GE(ControlPlaneBytes(Geometry(), plan, more), base + 1000 * 20);
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

TEST(Loader, CountsItsBuffersAgainstTheLimit) {
  const std::vector<std::byte> bytes = WriteRandomModel({});
  const auto file = RandomFile(bytes);
  RuntimeOptions options{.num_threads = 2,
                         .max_slots = 4,
                         .kv_bytes = uint64_t{2} << 20,
                         .memory_limit_bytes = uint64_t{5} << 19};
  const auto refused = LoadRuntime(*file, options);  // weights and KV alone would fit
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::kNoRoom);
  uint64_t sum = 0, numbers = 0;  // of "(N bytes)": weights, KV, buffers; then the limit
  const std::string& message = refused.error().message;
  for (size_t at = message.find('('); at != std::string::npos; at = message.find('(', at + 1)) {
    if (++numbers <= 3) sum += std::stoull(message.substr(at + 1));
  }
  ASSERT_EQ(numbers, 4u) << message;
  options.memory_limit_bytes = sum - 1;
  EXPECT_FALSE(LoadRuntime(*file, options).ok());
  options.memory_limit_bytes = sum;
  EXPECT_TRUE(LoadRuntime(*file, options).ok());
}

// Bytes of address space that this process has mapped.
uint64_t MappedBytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// In a process of its own: exit status 0 when each load ended in a runtime or in a value.
[[noreturn]] void LoadUnderLimits(const GgufFile& file) {
  const uint64_t mapped = MappedBytes();
  uint32_t loaded = 0, refused = 0;
  for (uint64_t room = 0; room < uint64_t{200} << 20; room += uint64_t{1} << 20) {
    const rlimit limit{mapped + room, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
    const auto runtime =
        LoadRuntime(file, {.num_threads = 3, .max_slots = 4, .kv_bytes = uint64_t{8} << 20});
    if (!runtime.ok() && runtime.error().kind != ErrorKind::kNoRoom) std::exit(3);
    ++(runtime.ok() ? loaded : refused);
  }
  std::exit(loaded > 0 && refused > 10 ? 0 : 4);
}

TEST(Loader, MemoryThatTheSystemRefusesIsNoRoomWhereverItRunsOut) {
  if (MappedBytes() > uint64_t{1} << 40) {
    GTEST_SKIP() << "a sanitizer maps terabytes, and its mappings do not bear a limit";
  }
  const std::vector<std::byte> bytes = WriteRandomModel({});
  const auto file = RandomFile(bytes);
  EXPECT_EXIT(LoadUnderLimits(*file), ::testing::ExitedWithCode(0), "");
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
