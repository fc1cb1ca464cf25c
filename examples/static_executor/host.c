/* One step, from begin to done. What to schedule is in schedule.c. */
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule.h"

void require_ok(const host* h, kvrm_status status, const char* call) {
  if (status == KVRM_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, kvrm_status_name(status), kvrm_last_error(h->kv));
  exit(1);
}

/* Two KV groups: layers 0 and 2 see everything, layers 1 and 3 a sliding window. */
void host_create(host* h, request* requests) {
  static const uint8_t layer_group[LAYERS] = {0, 1, 0, 1};
  kvrm_group_config groups[2];
  kvrm_config config = {.size = sizeof config, .num_groups = 2, .groups = groups};
  memset(h, 0, sizeof *h);
  memset(groups, 0, sizeof groups);
  for (int g = 0; g < 2; ++g) {
    groups[g].size = sizeof groups[g];
    groups[g].page_tokens = 8;
    groups[g].num_parts = LAYERS / 2;
    groups[g].part_page_bytes = 8 * ENTRY_BYTES;
    groups[g].pages_per_superblock = 8;
    groups[g].superblock_bytes = 8 * 8 * ENTRY_BYTES * LAYERS / 2;
  }
  groups[1].kind = KVRM_GROUP_SLIDING;
  groups[1].window_tokens = SIGHT;
  config.layer_group = layer_group;
  config.num_layers = LAYERS;
  config.kv_bytes = 14 * groups[0].superblock_bytes; /* too little for eight long sequences */
  config.max_slots = SLOTS;
  config.max_seq_tokens = LONGEST;
  config.max_step_tokens = ROWS;
  config.max_rows = ROWS;
  config.flags = KVRM_CONFIG_WINDOWS | KVRM_CONFIG_POISON_FREED;
  require_ok(h, kvrm_create(&config, &h->kv), "kvrm_create");

  for (uint32_t layer = 0; layer < LAYERS; ++layer) {
    uint32_t group = 0, part = 0;
    uint64_t bytes = 0;
    kvrm_window_config w = {.size = sizeof w};
    require_ok(h, kvrm_get_layer(h->kv, layer, &group, &part), "kvrm_get_layer");
    require_ok(h, kvrm_get_window(h->kv, group, &w, &bytes), "kvrm_get_window");
    if (h->memory[group] == NULL) {
      h->memory[group] = calloc(1, bytes);
      require_ok(h, kvrm_bind_window(h->kv, group, h->memory[group], bytes), "kvrm_bind_window");
    }
    h->windows[layer] = (window){h->memory[group] + part * w.part_stride_bytes, w.slot_stride_bytes,
                                 w.window_tokens};
  }
  h->requests = requests;
  for (int i = 0; i < REQUESTS; ++i) h->known[i] = requests[i].prompt;
  for (int slot = 0; slot < SLOTS; ++slot) h->running[slot].request = -1;
}

void host_destroy(host* h) {
  kvrm_destroy(h->kv);
  free(h->memory[0]);
  free(h->memory[1]);
}

/* Rows for all that the step has reserved: for kvrm, and for the decoder. */
static uint32_t make_rows(host* h, kvrm_row_input inputs[ROWS], decoder_row rows[ROWS]) {
  uint32_t count = 0;
  for (int slot = 0; slot < SLOTS; ++slot) {
    sequence* s = &h->running[slot];
    for (uint32_t i = 0; s->request >= 0 && i < s->rows; ++i, ++count) {
      const uint32_t place = s->first + i;
      const int writes = place >= s->computed;
      const int32_t token = h->requests[s->request].tokens[place];
      rows[count] = (decoder_row){slot, token, place, writes};
      inputs[count] = (kvrm_row_input){.seq = s->seq,
                                       .token = token,
                                       .position = place,
                                       .kv_index = place,
                                       .mask_id = KVRM_NONE,
                                       .lse_target = -1};
      if (place + 1 == s->known) inputs[count].flags |= KVRM_ROW_WANT_LOGITS;
      if (!writes) inputs[count].flags |= KVRM_ROW_NO_WRITE;
    }
  }
  for (uint32_t i = count; i < ROWS; ++i) rows[i] = (decoder_row){-1, 0, 0, 0};
  return count;
}

static void run_trains(host* h, kvrm_status status, const kvrm_train* trains, uint32_t count) {
  require_ok(h, status, "trains");
  require_ok(h, kvrm_run_trains(h->kv, trains, count), "kvrm_run_trains");
  for (uint32_t i = 0; i < count; ++i) {
    if (trains[i].cause == KVRM_COPY_STAGE) h->staged_bytes += trains[i].bytes;
  }
}

/* What the rows brought: places are computed; a last row's output is the next token. */
static void take_outputs(host* h, const decoder_row rows[ROWS], const uint64_t output[ROWS],
                         uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    sequence* s = &h->running[rows[i].slot];
    if (rows[i].place >= s->computed) s->computed = rows[i].place + 1;
    if (rows[i].place + 1 != s->known) continue;
    h->requests[s->request].tokens[s->known++] = next_token(output[i]);
    h->known[s->request] = s->known;
  }
}

int host_step(host* h) {
  kvrm_row_input inputs[ROWS];
  decoder_row rows[ROWS];
  uint64_t output[ROWS];
  const kvrm_train* trains = NULL;
  uint32_t count = 0, num_rows = 0;
  if (h->ended == REQUESTS) return 0;
  require_ok(h, kvrm_begin_step(h->kv), "kvrm_begin_step");
  schedule(h);
  num_rows = make_rows(h, inputs, rows);
  require_ok(h, kvrm_commit(h->kv, ++h->epoch, inputs, num_rows, NULL), "kvrm_commit");

  /* Before the decoder runs: pages that are copied, then what its windows miss. */
  kvrm_status status = kvrm_get_page_copies(h->kv, &trains, &count);
  run_trains(h, status, trains, count);
  status = kvrm_window_plan(h->kv, &trains, &count);
  run_trains(h, status, trains, count);
  decode(h->windows, rows, output);
  /* After it: what it wrote into its windows goes to the pages. */
  status = kvrm_window_acknowledge(h->kv, h->epoch, &trains, &count);
  run_trains(h, status, trains, count);
  require_ok(h, kvrm_step_done(h->kv, h->epoch), "kvrm_step_done");

  take_outputs(h, rows, output, num_rows);
  index_prefixes(h);
  require_ok(h, kvrm_maintain(h->kv, 0, NULL), "kvrm_maintain");
  ++h->steps;
  return 1;
}
