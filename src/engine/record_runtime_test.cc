// Records of real steps: a random model behind the CPU executor, on other threads and beside a hog.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "engine/record_runtime.h"
#include "engine/record_testing.h"
#include "model/random_model.h"

namespace kvrm {
namespace {

using ::testing::HasSubstr;
using testing::RandomPrompt;
using testing::RecordPath;

class RecordedRuntime : public ::testing::Test {
 protected:
  void SetUp() override {
    model_path_ = RecordPath() + ".gguf";
    const std::vector<std::byte> bytes = WriteRandomModel({});
    std::ofstream(model_path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }

  // Live, with the system's clock: 30 requests in a pool for a few of them, every fifth cancelled.
  void RecordLive(uint32_t threads, Mode mode = Mode::kKvrm, bool strict_shape = false,
                  const std::string& view = "dense") {
    RuntimeOptions options;
    options.mode = mode;
    options.strict_shape = strict_shape;
    options.view = view;
    options.prefix_cache = !TraitsOf(mode).slot_runs;
    options.model_path = model_path_;
    options.num_threads = threads;
    options.max_slots = 6;
    options.kv_bytes = 2u << 20;
    options.max_itl_us = 3000;
    const auto runtime = LoadRuntime(options);
    ASSERT_TRUE(runtime.ok()) << runtime.error().message;
    Engine& engine = *(*runtime)->engine;
    const auto header = RecordHeaderOf(**runtime, options, "a test");
    ASSERT_TRUE(header.ok());
    auto writer = RecordWriter::Create(RecordPath(), *header);
    ASSERT_TRUE(writer.ok());
    engine.SetRecorder(writer->get());
    std::mt19937 rng(7);
    testing::Collector sink;
    for (uint32_t i = 0; i < 30; ++i) {
      GenerateRequest request;
      request.prompt = RandomPrompt(1 + rng() % 150, i);
      request.max_new_tokens = 1 + rng() % 40;
      request.sampling.seed = i;
      request.sink = &sink;
      const auto id = engine.Submit(std::move(request));
      ASSERT_TRUE(id.ok());
      for (uint32_t step = rng() % 8; step > 0; --step) {
        engine.Step();
        engine.Maintain();
      }
      if (i % 5 == 0) engine.Cancel(*id);
    }
    while (engine.Step()) engine.Maintain();
    tokens_ = engine.Metrics().output_tokens;
    ASSERT_TRUE((*writer)->Close().ok());
  }

  RecordReplayReport ReplayOn(uint32_t threads) {
    const auto reader = RecordReader::Open(RecordPath());
    EXPECT_TRUE(reader.ok());
    auto options = OptionsForReplay((*reader)->header(), model_path_);
    EXPECT_TRUE(options.ok()) << options.error().message;
    ReplayClock clock;
    options->num_threads = threads;
    options->clock = &clock;
    const auto runtime = LoadRuntime(*options);
    EXPECT_TRUE(runtime.ok());
    auto report = ReplayRecord(**reader, *(*runtime)->engine, clock);
    EXPECT_TRUE(report.ok());
    return std::move(report).value();
  }
  void ExpectSame(const RecordReplayReport& report) const {
    EXPECT_FALSE(report.divergence) << report.divergence->step << ": " << report.divergence->what;
    EXPECT_EQ(report.tokens, tokens_);
    EXPECT_EQ(report.requests, 30u);
    EXPECT_TRUE(report.closed);
  }

  std::string model_path_;
  uint64_t tokens_ = 0;
};

TEST_F(RecordedRuntime, GivesTheSameCommitsAndTokensOnAnyNumberOfThreads) {
  RecordLive(/*threads=*/2);
  for (const uint32_t threads : {1u, 3u}) ExpectSame(ReplayOn(threads));
}

TEST_F(RecordedRuntime, GivesTheSameCommitsAndTokensBesideAHog) {
  RecordLive(/*threads=*/1);
  std::atomic<bool> stop{false};
  std::vector<std::thread> hogs;
  for (unsigned i = 0; i < 2; ++i) {
    hogs.emplace_back([&stop] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  ExpectSame(ReplayOn(2));
  stop = true;
  for (std::thread& hog : hogs) hog.join();
}

TEST_F(RecordedRuntime, GivesTheSameCommitsAndTokensInItsMode) {
  for (const Mode mode : {Mode::kPager, Mode::kStaticLive}) {
    RecordLive(1, mode, /*strict_shape=*/mode == Mode::kPager);
    ExpectSame(ReplayOn(1));
  }
}

TEST_F(RecordedRuntime, GivesTheSameCommitsAndTokensUnderItsView) {
  RecordLive(1, Mode::kKvrm, /*strict_shape=*/false, "sliding:64");
  const auto reader = RecordReader::Open(RecordPath());
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->header().settings.view_tokens, 64u);
  const auto options = OptionsForReplay((*reader)->header(), model_path_);
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->view, "sliding:64");
  ExpectSame(ReplayOn(2));
}

// A record whose view is none (another program's, or a changed one) is refused by name.
TEST_F(RecordedRuntime, AViewThatIsNoneIsRefused) {
  RecordLive(1);
  RecordHeader header = (*RecordReader::Open(RecordPath()))->header();
  header.settings.view_tokens = 65;
  const auto options = OptionsForReplay(header, model_path_);
  ASSERT_TRUE(options.ok());
  const auto runtime = LoadRuntime(*options);
  ASSERT_FALSE(runtime.ok());
  EXPECT_THAT(runtime.error().message, HasSubstr("view 'sliding:65'"));
}

TEST_F(RecordedRuntime, AnotherModelIsRefused) {
  RecordLive(1);
  const auto reader = RecordReader::Open(RecordPath());
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(TextLine((*reader)->header(), "program"), "a test");
  EXPECT_THAT(TextLine((*reader)->header(), "model"), ::testing::Not(HasSubstr("/")));
  EXPECT_EQ(TextLine((*reader)->header(), "no such line"), "");
  std::ofstream(model_path_, std::ios::app) << "x";
  const auto options = OptionsForReplay((*reader)->header(), model_path_);
  ASSERT_FALSE(options.ok());
  EXPECT_THAT(options.error().message, HasSubstr("is not the recorded one"));
  EXPECT_FALSE(OptionsForReplay((*reader)->header(), "/no/such/model").ok());
}

}  // namespace
}  // namespace kvrm
