#include "model/view.h"

#include <gtest/gtest.h>

namespace kvrm {
namespace {

ModelConfig ModelOf(std::vector<uint32_t> windows) {
  ModelConfig config;
  config.max_context = 1024;
  for (const uint32_t window : windows) config.layers.push_back({.window = window});
  return config;
}

std::vector<uint32_t> WindowsUnder(uint32_t window, ModelConfig config) {
  ApplyView({window}, config);
  std::vector<uint32_t> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window);
  return windows;
}

TEST(View, IsReadAsItIsWritten) {
  for (const char* text : {"dense", "sliding:64", "sliding:512", "sliding:131072"}) {
    const auto view = ParseView(text);
    ASSERT_TRUE(view.ok()) << text << ": " << view.error().message;
    EXPECT_EQ(ViewName(*view), text);
  }
}

TEST(View, WhatIsNoneIsRefusedWithTheLimit) {
  for (const char* text : {"", "Dense", "sliding", "sliding:", "sliding:x", "sliding:64x",
                           "sliding:-64", "sliding: 64", "sliding:99999999999", "far:512"}) {
    const auto view = ParseView(text);
    ASSERT_FALSE(view.ok()) << text;
    EXPECT_NE(view.error().message.find("dense or sliding:W"), std::string::npos) << text;
  }
  EXPECT_EQ(ParseView("sliding:48").error().message,
            "view 'sliding:48': a window of 48 tokens, must be at least 64");
  EXPECT_EQ(ParseView("sliding:72").error().message,
            "view 'sliding:72': a window of 72 tokens, must be a multiple of a page, 16");
}

TEST(View, CoversLayersThatSeeMoreAndNoOthers) {
  const ModelConfig model = ModelOf({0, 32, 128, 256});
  EXPECT_EQ(WindowsUnder(128, model), (std::vector<uint32_t>{128, 32, 128, 128}));
  EXPECT_EQ(WindowsUnder(0, model), (std::vector<uint32_t>{0, 32, 128, 256}));
  EXPECT_EQ(WindowsUnder(1024, model), (std::vector<uint32_t>{0, 32, 128, 256}));
}

TEST(View, IsLossyWhereALayerOfASequenceWouldSeeMore) {
  const ModelConfig all = ModelOf({0, 0}), windowed = ModelOf({128, 128});
  EXPECT_TRUE(IsLossy({128}, all, 1024));
  EXPECT_FALSE(IsLossy({0}, all, 1024));
  EXPECT_FALSE(IsLossy({128}, windowed, 1024));  // the model asks for it
  EXPECT_TRUE(IsLossy({112}, windowed, 1024));
  EXPECT_FALSE(IsLossy({128}, all, 128));  // no sequence outgrows it
  EXPECT_TRUE(IsLossy({128}, all, 129));
}

}  // namespace
}  // namespace kvrm
