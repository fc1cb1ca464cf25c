// No value of a kvrm_config ends the process: it is taken, and then serves, or it is refused by a
// text that names a field.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "capi/capi_testing.h"

namespace kvrm {
namespace {

struct WindowedConfig : RuntimeConfig {
  explicit WindowedConfig(bool with_windows) : RuntimeConfig(/*sliding=*/true, with_windows) {
    for (kvrm_window_config& window : windows) window.size = sizeof window;
    if (with_windows) config.windows = windows;
  }
  kvrm_window_config windows[2] = {};
};

using Set = std::function<void(WindowedConfig&, uint64_t)>;
struct Field {
  std::string name;
  Set set;
};

template <class T>
void Put(T& field, uint64_t value) {
  field = static_cast<T>(value);
}

std::vector<Field> Fields() {
  using C = WindowedConfig;
  std::vector<Field> fields = {
      {"size", [](C& c, uint64_t v) { Put(c.config.size, v); }},
      {"num_groups", [](C& c, uint64_t v) { Put(c.config.num_groups, v); }},
      {"flags", [](C& c, uint64_t v) { Put(c.config.flags, v); }},
      {"kv_bytes", [](C& c, uint64_t v) { Put(c.config.kv_bytes, v); }},
      {"kv_keep_bytes", [](C& c, uint64_t v) { Put(c.config.kv_keep_bytes, v); }},
      {"max_slots", [](C& c, uint64_t v) { Put(c.config.max_slots, v); }},
      {"max_seq_tokens", [](C& c, uint64_t v) { Put(c.config.max_seq_tokens, v); }},
      {"max_step_tokens", [](C& c, uint64_t v) { Put(c.config.max_step_tokens, v); }},
      {"max_rows", [](C& c, uint64_t v) { Put(c.config.max_rows, v); }},
      {"train_bytes", [](C& c, uint64_t v) { Put(c.config.train_bytes, v); }},
      {"publish_age_steps", [](C& c, uint64_t v) { Put(c.config.publish_age_steps, v); }},
      {"reserved", [](C& c, uint64_t v) { Put(c.config.reserved, v); }},
      {"test_scatter_seed", [](C& c, uint64_t v) { Put(c.config.test_scatter_seed, v); }},
  };
  for (int g = 0; g < 2; ++g) {
    const std::string group = "groups[" + std::to_string(g) + "].";
    const std::string window = "windows[" + std::to_string(g) + "].";
    const auto add = [&](const std::string& name, const Set& set) {
      fields.push_back({name, set});
    };
    add(group + "size", [g](C& c, uint64_t v) { Put(c.groups[g].size, v); });
    add(group + "kind", [g](C& c, uint64_t v) { Put(c.groups[g].kind, v); });
    add(group + "format", [g](C& c, uint64_t v) { Put(c.groups[g].format, v); });
    add(group + "page_tokens", [g](C& c, uint64_t v) { Put(c.groups[g].page_tokens, v); });
    add(group + "num_parts", [g](C& c, uint64_t v) { Put(c.groups[g].num_parts, v); });
    add(group + "window_tokens", [g](C& c, uint64_t v) { Put(c.groups[g].window_tokens, v); });
    add(group + "part_page_bytes", [g](C& c, uint64_t v) { Put(c.groups[g].part_page_bytes, v); });
    add(group + "superblock_bytes",
        [g](C& c, uint64_t v) { Put(c.groups[g].superblock_bytes, v); });
    add(group + "pages_per_superblock",
        [g](C& c, uint64_t v) { Put(c.groups[g].pages_per_superblock, v); });
    add(group + "reserved", [g](C& c, uint64_t v) { Put(c.groups[g].reserved, v); });
    add(window + "size", [g](C& c, uint64_t v) { Put(c.windows[g].size, v); });
    add(window + "window_tokens", [g](C& c, uint64_t v) { Put(c.windows[g].window_tokens, v); });
    add(window + "slot_stride_bytes",
        [g](C& c, uint64_t v) { Put(c.windows[g].slot_stride_bytes, v); });
    add(window + "part_stride_bytes",
        [g](C& c, uint64_t v) { Put(c.windows[g].part_stride_bytes, v); });
  }
  return fields;
}

// Creates, and takes a few steps if there is a runtime.
void ExpectTakenOrRefused(const kvrm_config& config, const std::string& what) {
  kvrm_runtime* runtime = nullptr;
  const kvrm_status status = kvrm_create(&config, &runtime);
  if (status != KVRM_OK) {
    EXPECT_TRUE(status == KVRM_INVALID || status == KVRM_NO_ROOM || status == KVRM_UNSUPPORTED)
        << what << ": " << kvrm_status_name(status);
    const std::string text = kvrm_last_error(nullptr);
    EXPECT_NE(text, "") << what;
    EXPECT_EQ(text.find("refused by a check inside"), std::string::npos) << what << ": " << text;
    EXPECT_EQ(runtime, nullptr);
    return;
  }
  kvrm_seq seq = 0;
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    EXPECT_EQ(kvrm_begin_step(runtime), KVRM_OK) << what << ": " << kvrm_last_error(runtime);
    if (epoch == 1) {
      EXPECT_EQ(kvrm_open(runtime, &seq), KVRM_OK);
    }
    const auto place = static_cast<uint32_t>(epoch - 1);
    const kvrm_row_input row = TestRuntime::Row(seq, place);
    const bool grown = kvrm_reserve(runtime, seq, place + 1, 0, nullptr) == KVRM_OK;
    EXPECT_EQ(kvrm_commit(runtime, epoch, &row, grown ? 1 : 0, nullptr), KVRM_OK)
        << what << ": " << kvrm_last_error(runtime);
    const kvrm_train* trains = nullptr;
    uint32_t num_trains = 0;
    if (kvrm_window_plan(runtime, &trains, &num_trains) == KVRM_OK) {
      EXPECT_EQ(kvrm_window_acknowledge(runtime, epoch, &trains, &num_trains), KVRM_OK) << what;
    }
    EXPECT_EQ(kvrm_step_done(runtime, epoch), KVRM_OK) << what;
    if (!grown) break;  // a sequence may not be so long
  }
  uint32_t violations = 1;
  EXPECT_EQ(kvrm_validate(runtime, nullptr, 0, nullptr, &violations), KVRM_OK) << what;
  EXPECT_EQ(violations, 0u) << what;
  kvrm_destroy(runtime);
}

constexpr uint64_t kEdges[] = {0,
                               1,
                               3,
                               0x7FFFFFFF,
                               0x80000000,
                               0xFFFFFFFF,
                               uint64_t{1} << 46,
                               uint64_t{1} << 47,
                               uint64_t{1} << 62,
                               uint64_t{1} << 63,
                               UINT64_MAX};

TEST(CapiConfig, NoValueOfAnyFieldEndsTheProcess) {
  for (const bool with_windows : {true, false}) {
    for (const Field& field : Fields()) {
      for (const uint64_t value : kEdges) {
        if (field.name == "kv_bytes" && value > 3 && value < UINT64_MAX) continue;  // tables of GiB
        WindowedConfig made(with_windows);
        // A sequence of 2^32 places costs its page table, so that these are as few as can be.
        if (field.name == "max_seq_tokens") {
          made.config.max_slots = 1;
          for (kvrm_group_config& group : made.groups) {
            group.page_tokens = 128;
            group.part_page_bytes = 128;
          }
        }
        field.set(made, value);
        ExpectTakenOrRefused(made.config, field.name + " = " + std::to_string(value));
      }
    }
  }
}

TEST(CapiConfig, NoTwoValuesTogetherEndTheProcess) {
  const std::vector<Field> fields = Fields();
  for (const Field& one : fields) {
    for (const Field& other : fields) {
      for (const uint64_t value : {uint64_t{0}, UINT64_MAX}) {
        WindowedConfig made(/*with_windows=*/true);
        if (one.name == "max_seq_tokens" || other.name == "max_seq_tokens") continue;
        one.set(made, value);
        other.set(made, 0);
        ExpectTakenOrRefused(made.config,
                             one.name + " = " + std::to_string(value) + ", " + other.name + " = 0");
      }
    }
  }
}

// As above with the superblock rule out of the way: it used to be what refused a 0.
TEST(CapiConfig, WindowsAreReadAfterTheGroupsThatTheyDivideBy) {
  for (int g = 0; g < 2; ++g) {
    WindowedConfig made(/*with_windows=*/true);
    made.config.windows = nullptr;
    made.groups[g].num_parts = 0;
    kvrm_runtime* runtime = nullptr;
    EXPECT_EQ(kvrm_create(&made.config, &runtime), KVRM_INVALID);
    const std::string text = kvrm_last_error(nullptr);
    EXPECT_EQ(text.find("groups[" + std::to_string(g) + "].num_parts: 0"), 0u) << text;
  }
}

TEST(CapiConfig, WindowsHoldTheLongestSequenceAndTheModelsWindowWithAStep) {
  const auto create = [](uint32_t full, uint32_t ring) {
    WindowedConfig made(/*with_windows=*/true);  // of 128 tokens; 24 and a step of 64
    made.windows[0].window_tokens = full;
    made.windows[1].window_tokens = ring;
    kvrm_runtime* runtime = nullptr;
    const kvrm_status status = kvrm_create(&made.config, &runtime);
    kvrm_destroy(runtime);
    return status == KVRM_OK ? std::string("made") : std::string(kvrm_last_error(nullptr));
  };
  EXPECT_EQ(create(128, 96), "made");
  EXPECT_EQ(create(112, 96), "windows[0].window_tokens: 112, must be at least max_seq_tokens, 128");
  EXPECT_EQ(
      create(128, 80),
      "windows[1].window_tokens: 80, must be at least the model's window + max_step_tokens, 88");
  EXPECT_EQ(create(128, 90), "windows[1].window_tokens: 90, must be a multiple of page_tokens, 16");
}

// One group of one part, a mebibyte a page; what a field of 0 means is left to the library.
kvrm_group_config LargePages() {
  kvrm_group_config group = {};
  group.size = sizeof group;
  group.num_parts = 1;
  group.part_page_bytes = 1 << 20;
  return group;
}

kvrm_config ConfigOf(const kvrm_group_config& group) {
  kvrm_config config = {};
  config.size = sizeof config;
  config.num_groups = 1;
  config.groups = &group;
  config.kv_bytes = 64 << 20;
  config.max_seq_tokens = 40 * 16;
  return config;
}

TEST(CapiDefaults, PagesOf16PlacesAnd32Slots) {
  const kvrm_group_config group = LargePages();
  TestRuntime rt(ConfigOf(group));
  kvrm_group_config used = {};
  used.size = sizeof used;
  ASSERT_EQ(kvrm_get_group(rt, 0, &used), KVRM_OK);
  EXPECT_EQ(used.page_tokens, 16u);
  rt.Begin();
  for (int slot = 0; slot < 32; ++slot) (void)rt.Open();
  kvrm_seq one_more = 0;
  EXPECT_EQ(kvrm_open(rt, &one_more), KVRM_DEFERRED);
}

TEST(CapiDefaults, IdleItKeeps32MiBOfCachedPages) {
  const kvrm_group_config group = LargePages();
  TestRuntime rt(ConfigOf(group));
  const kvrm_seq seq = rt.Grown(40 * 16);
  const std::vector<int32_t> tokens(40 * 16, 7);
  const kvrm_salt salt = {1, 2};
  uint32_t pages = 0;
  ASSERT_EQ(kvrm_prefix_index(rt, seq, &salt, tokens.data(), 40 * 16, &pages), KVRM_OK);
  EXPECT_EQ(pages, 40u);
  rt.Begin();
  ASSERT_EQ(kvrm_close(rt, seq), KVRM_OK);
  rt.Finish({});
  EXPECT_EQ(rt.Books().cached, 40u);
  for (uint32_t more = 1; more != 0;) ASSERT_EQ(kvrm_maintain(rt, 1, &more), KVRM_OK);
  EXPECT_EQ(rt.Books().cached, 32u);
}

TEST(CapiDefaults, RowsThatMayWaitLeaveAtOnceAt128KiB) {
  kvrm_group_config group = LargePages();
  group.part_page_bytes = 128 << 10;  // 8 KiB a row
  kvrm_config config = ConfigOf(group);
  config.flags = KVRM_CONFIG_WINDOWS;
  config.publish_age_steps = 8;
  for (const uint32_t rows : {15u, 16u}) {
    TestRuntime rt(config);
    rt.Begin();
    const kvrm_seq seq = rt.Open();
    ASSERT_EQ(rt.Reserve(seq, rows), KVRM_OK);
    std::vector<kvrm_row_input> inputs;
    rt.AddRows(seq, inputs);
    ASSERT_EQ(rt.Commit(inputs), KVRM_OK) << rt.error();
    const kvrm_train* trains = nullptr;
    uint32_t num_trains = 0;
    ASSERT_EQ(kvrm_window_plan(rt, &trains, &num_trains), KVRM_OK) << rt.error();
    ASSERT_EQ(kvrm_window_acknowledge(rt, 1, &trains, &num_trains), KVRM_OK) << rt.error();
    EXPECT_EQ(num_trains, rows == 16 ? 1u : 0u);
  }
}

}  // namespace
}  // namespace kvrm
