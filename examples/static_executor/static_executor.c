/* A host that runs 64 requests of mixed lengths over the 8 slots of decoder.h: they join, leave,
 * fork and are preempted, and kvrm does what the decoder's fixed windows cannot do by themselves.
 * Each answer must equal that of contiguous arrays; each byte that a row sees must count. */
#include <kvrm/kvrm.h>
#include <stdio.h>
#include <stdlib.h>

#include "decoder.h"

typedef struct sequence { /* of the request of that number */
  enum { WAITS, RUNS, ENDED } state;
  kvrm_seq seq;
  int32_t slot;
  uint32_t computed, first, rows; /* places in the cache; first of this step's rows, and how many */
} sequence;

static unsigned char full[2][SLOTS][LONGEST][ENTRY], rings[2][SLOTS][RING][ENTRY];
static const windows served = {{full[0][0][0], rings[0][0][0], full[1][0][0], rings[1][0][0]},
                               {LONGEST, RING, LONGEST, RING}};
static const kvrm_salt salt = {.model = 1};
static request requests[REQUESTS];
static sequence sequences[REQUESTS];
static kvrm_runtime* kv;
static int joins, forks, preemptions, ended;

static void check(kvrm_status status) {
  if (status == KVRM_OK) return;
  fprintf(stderr, "%s: %s\n", kvrm_status_name(status), kvrm_last_error(kv));
  exit(1);
}

/* Layers 0 and 2 are the parts of one KV group, layers 1 and 3 those of a sliding one. */
static void set_up(void) {
  const kvrm_group_config every = {.size = sizeof every,
                                   .page_tokens = 8,
                                   .num_parts = LAYERS / 2,
                                   .part_page_bytes = 8 * ENTRY,
                                   .pages_per_superblock = 8,
                                   .superblock_bytes = 8 * 8 * ENTRY * LAYERS / 2};
  kvrm_group_config groups[2] = {every, every};
  kvrm_config config = {.size = sizeof config, .num_groups = 2, .groups = groups};
  groups[1].kind = KVRM_GROUP_SLIDING;
  groups[1].window_tokens = SIGHT;
  config.kv_bytes = 14 * every.superblock_bytes; /* too little for eight long sequences */
  config.max_slots = SLOTS;
  config.max_seq_tokens = LONGEST;
  config.max_step_tokens = config.max_rows = ROWS;
  config.flags = KVRM_CONFIG_WINDOWS | KVRM_CONFIG_POISON_FREED;
  check(kvrm_create(&config, &kv));
  check(kvrm_bind_window(kv, 0, full, sizeof full)); /* [part][slot][place]: the default strides */
  check(kvrm_bind_window(kv, 1, rings, sizeof rings));
}

static void leave(sequence* s, int state) {
  check(kvrm_close(kv, s->seq));
  s->state = state;
  ended += state == ENDED;
}

/* Rows for the tokens that are not computed yet, as many as fit; 0 when there is no room now. A
 * prompt that is cached to its end computes its last row once more, without a write. */
static int grow(int id, uint32_t* budget) {
  sequence* s = &sequences[id];
  const uint32_t known = requests[id].known, left = known - s->computed;
  const uint32_t rows = left == 0 ? 1 : left < *budget ? left : *budget;
  s->first = left == 0 ? known - 1 : s->computed;
  const kvrm_status status = kvrm_reserve(kv, s->seq, s->first + rows, known, NULL);
  if (status == KVRM_DEFERRED) return 0;
  check(status);
  s->rows = rows;
  *budget -= rows;
  return 1;
}

/* The youngest goes, and comes back by what the prefix index keeps of it. Older ones have rows. */
static void preempt_for(const sequence* needy) {
  sequence* s = &sequences[REQUESTS - 1];
  while (s != needy && (s->state != RUNS || s->rows > 0)) --s;
  if (s == needy) return;
  ++preemptions;
  leave(s, WAITS);
}

static uint32_t join(int id, uint32_t* budget) {
  const request* r = &requests[id];
  sequence *s = &sequences[id], *parent = r->parent < 0 ? NULL : &sequences[r->parent];
  uint32_t cached = 0;
  if (kvrm_open(kv, &s->seq) == KVRM_DEFERRED) return 0; /* all slots run */
  s->state = RUNS;
  if (parent != NULL && parent->state == RUNS &&
      kvrm_alias(kv, s->seq, parent->seq, r->fork_at) == KVRM_OK) {
    cached = r->fork_at;
    ++forks;
  } else { /* no fork, or its parent's window has slid on */
    check(kvrm_prefix_match(kv, &salt, r->tokens, r->known, &cached));
    check(kvrm_prefix_adopt(kv, s->seq, &salt, r->tokens, r->known, cached));
  }
  s->computed = cached;
  ++joins;
  if (!grow(id, budget)) leave(s, WAITS);
  return s->state == RUNS;
}

static void plan(uint32_t epoch) {
  uint32_t budget = ROWS, room = 1;
  for (int id = 0; id < REQUESTS; ++id) {
    sequence* s = &sequences[id];
    s->rows = 0;
    if (s->state == RUNS && requests[id].known == requests[id].length) leave(s, ENDED);
  }
  for (int id = 0; id < REQUESTS; ++id) {
    if (sequences[id].state != RUNS || budget == 0 || grow(id, &budget)) continue;
    if (room) preempt_for(&sequences[id]);
    room = 0;
  }
  for (int id = 0; id < REQUESTS && room && budget > 0; ++id) {
    const request* r = &requests[id];
    const sequence* parent = r->parent < 0 ? NULL : &sequences[r->parent];
    if (sequences[id].state != WAITS || r->arrives > epoch) continue;
    if (parent != NULL && (parent->state == WAITS || parent->computed < r->fork_at)) continue;
    room = join(id, &budget);
  }
}

/* For kvrm_run_trains: any of the calls that tell trains, and then those trains. */
static const kvrm_train* trains;
static uint32_t num_trains;
static void run(kvrm_status told) {
  check(told);
  check(kvrm_run_trains(kv, trains, num_trains));
}

static void run_step(uint32_t epoch) {
  kvrm_row_input inputs[ROWS];
  decoder_row rows[ROWS] = {0};
  int32_t next[ROWS], owner[ROWS];
  uint32_t num_rows = 0;
  kvrm_frame frame = {.size = sizeof frame};
  check(kvrm_begin_step(kv));
  plan(epoch);
  for (int id = 0; id < REQUESTS; ++id) {
    const sequence* s = &sequences[id];
    for (uint32_t place = s->first; place < s->first + s->rows; ++place, ++num_rows) {
      kvrm_row_input row = {.seq = s->seq, .mask_id = KVRM_NONE, .lse_target = -1};
      row.token = requests[id].tokens[place];
      row.position = row.kv_index = place;
      row.flags = place < s->computed ? KVRM_ROW_NO_WRITE : 0;
      inputs[num_rows] = row;
      owner[num_rows] = id;
    }
  }
  check(kvrm_commit(kv, epoch, inputs, num_rows, &frame));
  run(kvrm_get_page_copies(kv, &trains, &num_trains)); /* pages that a fork writes */
  run(kvrm_window_plan(kv, &trains, &num_trains));     /* what the windows miss */
  for (uint32_t i = 0; i < num_rows; ++i) {
    const kvrm_row* r = &frame.rows[i];
    const int reads = r->flags & KVRM_ROW_NO_WRITE;
    rows[i] = (decoder_row){reads ? READS : WRITES, r->slot, r->token, r->kv_index};
  }
  decode(&served, rows, next);
  run(kvrm_window_acknowledge(kv, epoch, &trains, &num_trains)); /* rows, to pages */
  check(kvrm_step_done(kv, epoch));
  for (uint32_t i = 0; i < num_rows; ++i) {
    sequence* s = &sequences[owner[i]];
    request* r = &requests[owner[i]];
    s->slot = rows[i].slot;
    s->computed = rows[i].place + 1;
    if (s->computed == r->known) r->tokens[r->known++] = next[i];
    check(kvrm_prefix_index(kv, s->seq, &salt, r->tokens, s->computed, NULL));
  }
  check(kvrm_maintain(kv, 0, NULL));
}

int main(void) {
  uint32_t epoch = 0, seen = 0, wrong = 0, violations = 0;
  kvrm_counters counters = {.size = sizeof counters};
  for (int id = 0; id < REQUESTS; ++id) make_request(&requests[id], id);
  set_up();
  while (ended < REQUESTS) {
    run_step(++epoch);
    for (int i = 0; epoch % 10 == 0 && epoch <= 100 && i < FLIPS / 10; ++i) {
      const sequence* s = sequences;
      while (s->state != RUNS) s = sequences + below(REQUESTS);
      seen += flip_is_seen(&served, s->slot, s->computed - 1);
    }
  }
  for (int id = 0; id < REQUESTS; ++id) wrong += is_wrong(&requests[id]);
  check(kvrm_validate(kv, NULL, 0, NULL, &violations));
  check(kvrm_get_counters(kv, &counters));
  kvrm_destroy(kv);
  printf("%d requests, %u steps over %d slots: %u wrong, %u violations\n", REQUESTS, epoch, SLOTS,
         wrong, violations);
  printf("%d joins, %d forks, %d preemptions, %llu tokens found cached\n", joins, forks,
         preemptions, (unsigned long long)counters.prefix_hit_tokens);
  printf("%u of %d flipped bytes seen\n", seen, FLIPS);
  /* An example that no longer shows what it is about has failed, too. */
  const int shows = forks > 0 && preemptions > 0 && counters.prefix_hit_tokens > 0;
  return wrong == 0 && violations == 0 && seen == FLIPS && shows ? 0 : 1;
}
