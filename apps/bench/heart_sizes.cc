#include "bench/heart.h"

namespace kvrm::cli {

KvGroupGeometry HeartGroup() {
  KvGroupGeometry group;
  group.page_tokens = kHeartPageTokens;
  group.num_parts = 1;
  group.part_page_bytes = 1;
  group.pages_per_superblock = kHeartSuperblockPages;
  group.superblock_bytes = kHeartSuperblockPages;
  return group;
}

uint64_t HeartKvBytes(uint64_t pages) {
  return (pages / kHeartSuperblockPages + 1) * HeartGroup().superblock_bytes;
}

HeartSizes SizesFor(bool quick, int check_tier) {
  HeartSizes sizes;
  if (check_tier >= 2) {
    sizes = {.name = "checked",
             .repeats = 2,
             .max_pages = 512,
             .num_seqs = {1, 4},
             .contexts = {512, 2048},
             .verb_seqs = 4,
             .verb_calls = 64,
             .match_tokens = {64, 512},
             .match_pools = {256},
             .churn_operations = 600,
             .churn_pages = 384,
             .churn_max_prompt = 128};
  } else if (quick) {
    sizes = {.name = "quick",
             .repeats = 3,
             .max_pages = 1u << 18,
             .num_seqs = {1, 16, 64},
             .contexts = {512, 8192, 32'768},
             .verb_seqs = 1024,
             .verb_calls = 8192,
             .match_tokens = {64, 512, 8192},
             .match_pools = {1024, 65'536},
             .churn_operations = 100'000,
             .churn_pages = 16'384,
             .churn_max_prompt = 4096};
  } else {
    sizes = {.name = "full",
             .repeats = 11,
             .max_pages = 1u << 20,
             .num_seqs = {1, 4, 16, 64, 256, 1024},
             .contexts = {512, 2048, 8192, 32'768, 131'072},
             .verb_seqs = 1024,
             .verb_calls = 65'536,
             .match_tokens = {64, 512, 2048, 8192},
             .match_pools = {1024, 32'768, 1u << 20},
             .churn_operations = 1'000'000,
             .churn_pages = 16'384,
             .churn_max_prompt = 4096};
  }
  return sizes;
}

}  // namespace kvrm::cli
