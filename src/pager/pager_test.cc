#include "pager/pager.h"

#include "gtest/gtest.h"

namespace kvrm {
namespace {
TEST(Pager, Smoke) {
  PagerConfig c;
  KvGroupGeometry g;
  g.num_parts = 3;
  g.part_page_bytes = 64;
  g.pages_per_superblock = 8;
  g.superblock_bytes = 4096;
  c.geometry.groups = {g};
  c.kv_bytes = 4096 * 4;
  c.max_slots = 4;
  c.max_seq_tokens = 400;
  auto p = Pager::Create(c);
  ASSERT_TRUE(p.ok());
  Pager& pager = **p;
  pager.BeginStep();
  auto a = *pager.Open();
  EXPECT_EQ(pager.Reserve(a, 40).status, ReserveStatus::kOk);
  EXPECT_EQ(pager.Commit(1).size(), 1u);
}
}  // namespace
}  // namespace kvrm
