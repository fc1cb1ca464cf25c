#include "exec/step_dump.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "exec/test_stack.h"

namespace kvrm::testing {
namespace {

class TempFolder {
 public:
  TempFolder() {
    path_ = std::filesystem::temp_directory_path() / ("kvrm-step-" + std::to_string(getpid()));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string File(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void Write(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Law I1, purity: logits and KV writes depend only on program, weights, frame, tables and pool
// bytes.
void CheckRerun(KvFormat format, const std::string& format_name, uint32_t window = 0) {
  TestStackConfig config;
  config.spec = SmallSpec();
  config.spec.window = window;
  config.spec.full_every = 2;
  config.kv_format = format;
  TestStack stack(config);
  const SeqId a = stack.Open();
  const SeqId b = stack.Open();
  stack.Step({{a, std::vector<TokenId>(300, 17)}, {b, {1, 2, 3}}});
  stack.Step({{b, {4}}, {a, {5}}});
  const FrameView view = stack.Publish({{a, {6}}, {b, {7, 8, 9}}});
  std::byte* base[kMaxKvGroups] = {};
  for (uint32_t g = 0; g < stack.geometry().groups.size(); ++g) base[g] = stack.pager().base(g);
  const std::vector<std::byte> dump = DumpStep(stack.geometry(), view, base);
  const Result<LoadedStep> loaded = LoadedStep::Parse(dump, stack.geometry());
  ASSERT_TRUE(loaded.ok());
  const StepResult result = stack.Replay(view);
  std::string expected;
  for (uint32_t i = 0; i < 2; ++i) {
    const std::vector<float> logits = stack.Logits(result, i);
    expected.append(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
  }
  const std::vector<std::byte> pages = loaded->ReadPages(base);
  expected.append(reinterpret_cast<const char*>(pages.data()), pages.size());

  const TempFolder folder;
  Write(folder.File("model.gguf"), stack.file_bytes());
  Write(folder.File("step"), dump);
  for (const char* threads : {"1", "2"}) {
    const std::string command = std::string(KVRM_STEP_RERUN) + " " + folder.File("model.gguf") +
                                " " + folder.File("step") + " " + folder.File("out") + " " +
                                format_name + " " + threads;
    ASSERT_EQ(std::system(command.c_str()), 0);
    const std::string got = ReadText(folder.File("out"));
    ASSERT_EQ(got.size(), expected.size());
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size()), 0) << threads << " threads";
  }
}

TEST(StepDump, AFreshProcessGivesEqualLogitsAndPageBytes) {
  CheckRerun(KvFormat::kF16, "f16");
  CheckRerun(KvFormat::kInt8, "int8");
  CheckRerun(KvFormat::kF16, "f16", /*window=*/40);
}

TEST(StepDump, TruncatedDumpsAreRefused) {
  TestStackConfig config;
  config.spec = SmallSpec();
  TestStack stack(config);
  const FrameView view = stack.Publish({{stack.Open(), {1, 2, 3}}});
  std::byte* const base[kMaxKvGroups] = {stack.pager().base(0)};
  const std::vector<std::byte> dump = DumpStep(stack.geometry(), view, base);
  for (const size_t size : {size_t{0}, size_t{10}, size_t{64}, dump.size() / 2, dump.size() - 1}) {
    EXPECT_FALSE(LoadedStep::Parse(std::span(dump).first(size), stack.geometry()).ok()) << size;
  }
}

}  // namespace
}  // namespace kvrm::testing
