#include "steps/step_driver.h"

#include <gtest/gtest.h>

#include <cstring>

#include "bench/step_work.h"
#include "model/random_model.h"

namespace kvrm::cli {
namespace {

class StepDriverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    bytes_ = WriteRandomModel(RandomModelSpec{});
    auto file = GgufFile::Parse(bytes_, "random");
    ASSERT_TRUE(file.ok()) << file.error().message;
    file_ = std::move(file).value();
    driver_ = Open(4);
    ASSERT_NE(driver_, nullptr);
  }
  std::unique_ptr<StepDriver> Open(uint32_t max_slots) {
    StepOptions options;
    options.num_threads = 1;
    options.max_slots = max_slots;
    options.max_seq_tokens = 200;
    auto driver = StepDriver::Open(*file_, options);
    if (!driver.ok()) ADD_FAILURE() << driver.error().message;
    return driver.ok() ? std::move(driver).value() : nullptr;
  }
  std::vector<TokenId> Tokens(size_t count, int seed) {
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<TokenId>((i * 31 + static_cast<size_t>(seed) * 57) % 300));
    }
    return tokens;
  }
  std::vector<float> Row(const StepResult& result, size_t row) {
    const float* logits = result.logits + row * result.logits_stride;
    return {logits, logits + driver_->executor().info().vocab};
  }

  std::vector<std::byte> bytes_;
  std::unique_ptr<const GgufFile> file_;
  std::unique_ptr<StepDriver> driver_;
};

TEST_F(StepDriverTest, LogitsOfAPositionDoNotDependOnHowItsPromptWasCut) {
  const std::vector<TokenId> tokens = Tokens(100, 1);
  const SeqId whole = driver_->OpenSequence();
  const std::vector<float> expected = Row(driver_->Prefill(whole, tokens, true), 0);
  driver_->CloseSequence(whole);

  const SeqId cut = driver_->OpenSequence();
  driver_->Prefill(cut, std::span(tokens).first(37), false);
  for (size_t i = 37; i + 1 < tokens.size(); ++i) {
    const TokenRun run{cut, std::span(tokens).subspan(i, 1), 0};
    driver_->Run({&run, 1});
  }
  const TokenRun last{cut, std::span(tokens).last(1), 1};
  const std::vector<float> actual = Row(driver_->Run({&last, 1}), 0);
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0);
}

TEST_F(StepDriverTest, LogitsComeInSlotOrderWhateverTheOrderOfTheRuns) {
  const std::vector<TokenId> a = Tokens(20, 1), b = Tokens(20, 2);
  const SeqId first = driver_->OpenSequence(), second = driver_->OpenSequence();
  const TokenRun runs[] = {{second, b, 1}, {first, a, 2}};
  const StepResult result = driver_->Run(runs);
  const std::vector<float> a_before_last = Row(result, 0), a_last = Row(result, 1),
                           b_last = Row(result, 2);
  driver_->CloseSequence(first);
  driver_->CloseSequence(second);

  const SeqId alone = driver_->OpenSequence();
  EXPECT_EQ(Row(driver_->Prefill(alone, b, true), 0), b_last);
  driver_->Trim(alone, 0);
  EXPECT_EQ(Row(driver_->Prefill(alone, a, true), 0), a_last);
  driver_->Trim(alone, 0);
  EXPECT_EQ(Row(driver_->Prefill(alone, std::span(a).first(19), true), 0), a_before_last);
}

TEST_F(StepDriverTest, TrimmedTokensAreForgotten) {
  const std::vector<TokenId> tokens = Tokens(60, 3), other = Tokens(30, 4);
  const SeqId seq = driver_->OpenSequence();
  driver_->Prefill(seq, std::span(tokens).first(20), false);
  const std::vector<float> expected =
      Row(driver_->Prefill(seq, std::span(tokens).subspan(20), true), 0);
  driver_->Trim(seq, 20);
  driver_->Prefill(seq, other, false);
  driver_->Trim(seq, 20);
  EXPECT_EQ(Row(driver_->Prefill(seq, std::span(tokens).subspan(20), true), 0), expected);
}

TEST_F(StepDriverTest, EverySlotCanBeFilledToItsLastToken) {
  std::vector<SeqId> seqs;
  for (int i = 0; i < 4; ++i) {
    seqs.push_back(driver_->OpenSequence());
    driver_->Prefill(seqs.back(), Tokens(200, i), false);
  }
  for (SeqId seq : seqs) driver_->CloseSequence(seq);
  const SeqId again = driver_->OpenSequence();
  driver_->Prefill(again, Tokens(200, 9), false);
}

TEST_F(StepDriverTest, WorkOfAStepGrowsByTheBytesOfItsTokens) {
  const Model& model = driver_->model();
  const KvGeometry& geometry = driver_->geometry();
  const uint64_t empty = DecodeStepBytes(model, geometry, 1, 0);
  EXPECT_EQ(empty, model.weight_bytes());  // tied: the embedding is the head
  EXPECT_EQ(DecodeStepBytes(model, geometry, 2, 10) - empty, 20 * geometry.bytes_per_token());
  const PrefillOperations one = PrefillWork(model, 1), two = PrefillWork(model, 2);
  // 2 layers x 4 heads x 16: the first token sees one, the second two.
  EXPECT_DOUBLE_EQ(one.attention, 4.0 * 2 * 4 * 16);
  EXPECT_DOUBLE_EQ(two.attention, 3 * one.attention);
  EXPECT_GT(two.linear, one.linear);
}

}  // namespace
}  // namespace kvrm::cli
