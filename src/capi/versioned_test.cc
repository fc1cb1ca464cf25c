// Structs with a size: older and newer callers, and what a config may not say.
#include <cstring>

#include "capi/capi_testing.h"

extern "C" int KvrmC11Step(void);

namespace kvrm {
namespace {

kvrm_status Create(const kvrm_config& config) {
  kvrm_runtime* runtime = nullptr;
  const kvrm_status status = kvrm_create(&config, &runtime);
  EXPECT_EQ(status == KVRM_OK, runtime != nullptr);
  kvrm_destroy(runtime);
  return status;
}

TEST(CapiVersioned, AC11ProgramDrivesAStep) { EXPECT_EQ(KvrmC11Step(), 0); }

TEST(CapiVersioned, AnOlderCallersShorterConfigReadsAsDefaults) {
  RuntimeConfig made;
  made.config.size = offsetof(kvrm_config, max_rows);
  made.config.max_rows = 0xFFFFFFFF;  // past the end: not read
  EXPECT_EQ(Create(made.config), KVRM_OK) << kvrm_last_error(nullptr);
  made.config.size = offsetof(kvrm_config, max_seq_tokens);
  EXPECT_EQ(Create(made.config), KVRM_INVALID);
  EXPECT_STREQ(kvrm_last_error(nullptr), "max_seq_tokens: 0, must be at least 1");
}

TEST(CapiVersioned, ANewerCallersLongerConfigMustBeZeroThere) {
  struct Newer {
    kvrm_config config;
    uint64_t unknown[4];
  };
  RuntimeConfig made;
  Newer newer = {};
  std::memcpy(&newer.config, &made.config, sizeof made.config);
  newer.config.size = sizeof newer;
  EXPECT_EQ(Create(newer.config), KVRM_OK) << kvrm_last_error(nullptr);
  newer.unknown[3] = uint64_t{1} << 63;
  EXPECT_EQ(Create(newer.config), KVRM_INVALID);
  EXPECT_NE(std::string(kvrm_last_error(nullptr)).find("does not know"), std::string::npos);
}

TEST(CapiVersioned, GroupsOfANewerCallerLieFurtherApart) {
  struct Newer {
    kvrm_group_config group;
    uint64_t unknown[2];
  };
  RuntimeConfig made(/*sliding=*/true);
  Newer newer[2] = {};
  for (int g = 0; g < 2; ++g) {
    newer[g].group = made.groups[g];
    newer[g].group.size = sizeof newer[g];
  }
  made.config.groups = &newer[0].group;
  TestRuntime rt(made.config);
  kvrm_group_config second = {};
  second.size = sizeof second;
  ASSERT_EQ(kvrm_get_group(rt, 1, &second), KVRM_OK);
  EXPECT_EQ(second.window_tokens, 24u);
  newer[1].group.size = sizeof newer[1].group;
  EXPECT_EQ(Create(made.config), KVRM_INVALID);
}

TEST(CapiVersioned, OutputsAreFilledAsFarAsTheCallerKnows) {
  TestRuntime rt;
  struct Newer {
    kvrm_books books;
    uint64_t unknown;
  };
  Newer newer;
  std::memset(&newer, 0xAB, sizeof newer);
  newer.books.size = sizeof newer;
  ASSERT_EQ(kvrm_get_books(rt, 0, &newer.books), KVRM_OK);
  EXPECT_EQ(newer.books.size, sizeof newer);
  EXPECT_EQ(newer.books.in_use, 1u);  // the null page
  EXPECT_EQ(newer.unknown, 0u);
  kvrm_books older;
  std::memset(&older, 0xAB, sizeof older);
  older.size = offsetof(kvrm_books, limbo);
  ASSERT_EQ(kvrm_get_books(rt, 0, &older), KVRM_OK);
  EXPECT_EQ(older.in_use, 1u);
  EXPECT_EQ(older.limbo, 0xABABABABABABABABu);
  older.size = 0;
  EXPECT_EQ(kvrm_get_books(rt, 0, &older), KVRM_INVALID);
}

TEST(CapiVersioned, ConfigsOutOfRangeAreRefusedByField) {
  const auto refused = [](kvrm_status status, const char* text, auto&& change) {
    RuntimeConfig made(/*sliding=*/true, /*windows=*/true);
    change(made);
    EXPECT_EQ(Create(made.config), status) << text;
    EXPECT_NE(std::string(kvrm_last_error(nullptr)).find(text), std::string::npos)
        << kvrm_last_error(nullptr);
  };
  using M = RuntimeConfig;
  refused(KVRM_INVALID, "config.size", [](M& m) { m.config.size = 0; });
  refused(KVRM_INVALID, "config.size", [](M& m) { m.config.size = 5000; });
  refused(KVRM_INVALID, "num_groups: 5", [](M& m) { m.config.num_groups = 5; });
  refused(KVRM_INVALID, "groups is NULL", [](M& m) { m.config.groups = nullptr; });
  refused(KVRM_UNSUPPORTED, "flags: 8", [](M& m) { m.config.flags = 8; });
  refused(KVRM_UNSUPPORTED, "kind", [](M& m) { m.groups[0].kind = KVRM_GROUP_SUMMARY; });
  refused(KVRM_INVALID, "kind: 9", [](M& m) { m.groups[0].kind = 9; });
  refused(KVRM_INVALID, "format: 9", [](M& m) { m.groups[0].format = 9; });
  refused(KVRM_INVALID, "page_tokens: 12", [](M& m) {
    m.groups[0].page_tokens = 12;
    m.config.flags = 0;
  });
  const auto refused_group = [&](kvrm_status status, const std::string& text, auto&& change) {
    refused(status, text.c_str(), change);
    EXPECT_EQ(std::string(kvrm_last_error(nullptr)).rfind("groups[1]", 0), 0u)
        << kvrm_last_error(nullptr);  // one name, whoever refuses
  };
  refused_group(KVRM_INVALID, "part_page_bytes: 0", [](M& m) { m.groups[1].part_page_bytes = 0; });
  refused_group(KVRM_INVALID, "num_parts: 0", [](M& m) { m.groups[1].num_parts = 0; });
  refused_group(KVRM_INVALID, "superblock_bytes: 7",
                [](M& m) { m.groups[1].superblock_bytes = 7; });
  refused_group(KVRM_INVALID, "window_tokens: 0", [](M& m) { m.groups[1].window_tokens = 0; });
  refused_group(KVRM_UNSUPPORTED, "above the limit", [](M& m) {
    m.groups[1].num_parts = 1u << 31;
    m.groups[1].superblock_bytes = m.groups[1].pages_per_superblock = 0;
  });
  refused(KVRM_INVALID, "groups[1].size: 44", [](M& m) { m.groups[1].size = 44; });
  refused(KVRM_INVALID, "window_tokens", [](M& m) { m.groups[0].window_tokens = 5; });
  refused(KVRM_INVALID, "max_step_tokens: 129", [](M& m) { m.config.max_step_tokens = 129; });
  refused(KVRM_INVALID, "max_rows", [](M& m) { m.config.max_rows = 0x7FFFFFFF; });
  refused(KVRM_INVALID, "max_slots", [](M& m) { m.config.max_slots = 70000; });
  refused(KVRM_NO_ROOM, "kv_bytes: 5", [](M& m) { m.config.kv_bytes = 5; });
  refused(KVRM_INVALID, "must be below 2^32", [](M& m) { m.config.kv_bytes = UINT64_MAX; });
  refused(KVRM_INVALID, "part_page_bytes: 520, must be a multiple", [](M& m) {
    m.groups[0].part_page_bytes = 505 + 15;
    m.groups[0].page_tokens = 16;
    m.groups[0].pages_per_superblock = 8;
  });
  refused(KVRM_INVALID, "publish_age_steps", [](M& m) { m.config.publish_age_steps = 256; });
  static const kvrm_window_config windows[2] = {{sizeof(kvrm_window_config), 120, 0, 0},
                                                {sizeof(kvrm_window_config), 0, 0, 0}};
  refused(KVRM_INVALID, "windows: given without", [](M& m) {
    m.config.windows = windows;
    m.config.flags = 0;
  });
  refused(KVRM_INVALID, "window_tokens", [](M& m) { m.config.windows = windows; });
  static const uint8_t layers[2] = {0, 2};
  refused(KVRM_INVALID, "layer_group[1]: 2", [](M& m) {
    m.config.num_layers = 2;
    m.config.layer_group = layers;
  });
  refused(KVRM_INVALID, "layer_part[2]: 2", [](M& m) {
    m.config.num_groups = 1;
    m.config.num_layers = 3;
  });
  refused(KVRM_INVALID, "layer_group is NULL: with 2", [](M& m) { m.config.num_layers = 1; });
  refused(KVRM_INVALID, "max_seq_tokens: 0", [](M& m) { m.config.max_seq_tokens = 0; });
}

TEST(CapiVersioned, PageSizesThatNoPrefixIndexCanServeNeedItsFlag) {
  RuntimeConfig made(/*sliding=*/true);
  made.groups[1].page_tokens = 32;
  EXPECT_EQ(Create(made.config), KVRM_UNSUPPORTED);
  const std::string text = kvrm_last_error(nullptr);
  EXPECT_NE(text.find("groups[0].page_tokens: 16"), std::string::npos) << text;
  EXPECT_NE(text.find("groups[1].page_tokens: 32"), std::string::npos) << text;
  EXPECT_NE(text.find("KVRM_CONFIG_NO_PREFIX_INDEX"), std::string::npos) << text;
  made.config.flags |= KVRM_CONFIG_NO_PREFIX_INDEX;
  EXPECT_EQ(Create(made.config), KVRM_OK) << kvrm_last_error(nullptr);
}

TEST(CapiVersioned, LayersMayShareAPart) {
  RuntimeConfig made(/*sliding=*/true);
  const uint8_t groups[4] = {0, 1, 0, 1};
  const uint16_t parts[4] = {1, 0, 1, 1};
  made.config.num_layers = 4;
  made.config.layer_group = groups;
  made.config.layer_part = parts;
  TestRuntime rt(made.config);
  for (uint32_t layer = 0; layer < 4; ++layer) {
    uint32_t group = 9, part = 9;
    ASSERT_EQ(kvrm_get_layer(rt, layer, &group, &part), KVRM_OK);
    EXPECT_EQ(group, groups[layer]);
    EXPECT_EQ(part, parts[layer]);
  }
  uint32_t group = 0, part = 0;
  EXPECT_EQ(kvrm_get_layer(rt, 4, &group, &part), KVRM_INVALID);
}

TEST(CapiVersioned, SuperblockRuleFillsTheGroup) {
  kvrm_group_config group = {};
  group.size = sizeof group;
  group.num_parts = 30;
  group.part_page_bytes = 12288;
  ASSERT_EQ(kvrm_apply_superblock_rule(&group), KVRM_OK);
  EXPECT_EQ(group.superblock_bytes, 6u << 20);
  EXPECT_EQ(group.pages_per_superblock, 17u);
  group.num_parts = 0;
  EXPECT_EQ(kvrm_apply_superblock_rule(&group), KVRM_INVALID);
  group.num_parts = 1u << 31;
  EXPECT_EQ(kvrm_apply_superblock_rule(&group), KVRM_UNSUPPORTED);
  EXPECT_EQ(kvrm_apply_superblock_rule(nullptr), KVRM_INVALID);
}

TEST(CapiVersioned, StatusesHaveNames) {
  EXPECT_STREQ(kvrm_status_name(KVRM_OK), "OK");
  EXPECT_STREQ(kvrm_status_name(KVRM_BROKEN), "BROKEN");
  EXPECT_STREQ(kvrm_status_name(-1), "UNKNOWN");
  EXPECT_GE(kvrm_version(), 0x000100u);
}

}  // namespace
}  // namespace kvrm
