/* The header as a C11 program sees it, under -Wpedantic: sizes, and one step. */
#include <kvrm/kvrm.h>

_Static_assert(sizeof(kvrm_frame_head) == 64, "wire");
_Static_assert(sizeof(kvrm_row) == 32 && sizeof(kvrm_row_input) == 32, "wire");
_Static_assert(sizeof(kvrm_slot_head) == 128, "wire");
_Static_assert(sizeof(kvrm_delta) == 24, "wire");
_Static_assert(sizeof(kvrm_segment) == 48, "wire");
_Static_assert(sizeof(kvrm_train) == 40, "wire");
_Static_assert(sizeof(kvrm_group_config) % 8 == 0 && sizeof(kvrm_window_config) % 8 == 0, "stride");

int KvrmC11Step(void);

/* 0, or the number of what failed first. */
int KvrmC11Step(void) {
  kvrm_group_config group = {.size = sizeof group, .num_parts = 4, .part_page_bytes = 4096};
  kvrm_config config = {.size = sizeof config,
                        .num_groups = 1,
                        .groups = &group,
                        .kv_bytes = 8u << 20,
                        .max_slots = 2,
                        .max_seq_tokens = 256};
  kvrm_runtime* runtime = NULL;
  kvrm_seq seq = 0;
  kvrm_frame frame = {.size = sizeof frame};
  kvrm_row_input row = {.mask_id = KVRM_NONE, .lse_target = -1, .flags = KVRM_ROW_WANT_LOGITS};
  if (kvrm_create(&config, &runtime) != KVRM_OK) return 1;
  if (kvrm_begin_step(runtime) != KVRM_OK) return 2;
  if (kvrm_open(runtime, &seq) != KVRM_OK) return 3;
  if (kvrm_reserve(runtime, seq, 1, 0, NULL) != KVRM_OK) return 4;
  row.seq = seq;
  if (kvrm_commit(runtime, 1, &row, 1, &frame) != KVRM_OK) return 5;
  if (frame.num_rows != 1 || frame.num_logits != 1) return 6;
  if (kvrm_step_done(runtime, 1) != KVRM_OK) return 7;
  kvrm_destroy(runtime);
  return 0;
}
