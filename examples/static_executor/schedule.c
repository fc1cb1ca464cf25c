#include "schedule.h"

#include <string.h>

static const kvrm_salt salt = {.tenant = 0, .model = 1};

static int is_over(const host* h, const sequence* s) {
  return s->known == h->requests[s->request].length;
}

static void enqueue(host* h, int id, int first) {
  if (first) memmove(h->queue + 1, h->queue, (size_t)h->queued * sizeof h->queue[0]);
  h->queue[first ? 0 : h->queued] = id;
  ++h->queued;
}

static void leave(host* h, sequence* s) {
  require_ok(h, kvrm_close(h->kv, s->seq), "kvrm_close");
  s->request = -1;
}

/* A new sequence in its slot, or NULL when all run. */
static sequence* join(host* h, int id) {
  kvrm_seq seq = 0;
  kvrm_sequence_info info = {.size = sizeof info};
  if (kvrm_open(h->kv, &seq) == KVRM_DEFERRED) return NULL;
  require_ok(h, kvrm_get_sequence(h->kv, seq, &info), "kvrm_get_sequence");
  sequence* s = &h->running[info.slot];
  *s = (sequence){.request = id, .seq = seq, .known = h->known[id], .joined = h->steps};
  return s;
}

/* Rows for as many tokens as are known and fit into `budget`; 0 when there is no room now. A prompt
 * that is cached to its end computes its last row once more, without a write. */
static uint32_t grow(host* h, sequence* s, uint32_t budget) {
  const uint32_t left = s->known - s->computed;
  s->first = s->computed < s->known ? s->computed : s->known - 1;
  s->rows = left < budget ? left : budget;
  if (left == 0 && budget > 0) s->rows = 1;
  if (left == 0) return s->rows;
  const kvrm_status status = kvrm_reserve(h->kv, s->seq, s->computed + s->rows, s->known, NULL);
  if (status == KVRM_DEFERRED) {
    ++h->deferrals;
    return s->rows = 0;
  }
  require_ok(h, status, "kvrm_reserve");
  return s->rows;
}

/* Ends the sequence that joined last: its request goes back to the head of the queue. Its pages
 * come back once this step is done; those that are indexed may still serve it when it returns. */
static void preempt_for(host* h, const sequence* needy) {
  sequence* last = NULL;
  for (int slot = 0; slot < SLOTS; ++slot) {
    sequence* s = &h->running[slot];
    if (s->request < 0 || s == needy || s->rows > 0) continue;
    if (last == NULL || s->joined > last->joined) last = s;
  }
  if (last == NULL) return;
  ++h->preemptions;
  enqueue(h, last->request, 1);
  leave(h, last);
}

/* A request that forks another begins with its parent's places, by reference, when the parent has
 * got there. Returns 0 while it has to wait; where it cannot be a fork it becomes a prompt. */
static int fork_or_enqueue(host* h, int id) {
  const request* wanted = &h->requests[id];
  if (h->state[wanted->parent] == ENDED) {
    enqueue(h, id, 0);
    return 1;
  }
  for (int slot = 0; slot < SLOTS; ++slot) {
    const sequence parent = h->running[slot];
    if (parent.request != wanted->parent || parent.computed < wanted->fork_at) continue;
    sequence* child = join(h, id);
    if (child == NULL) return 0; /* all slots run */
    const kvrm_status status = kvrm_alias(h->kv, child->seq, parent.seq, wanted->fork_at);
    if (status == KVRM_UNSERVICEABLE) { /* the parent's window has slid on */
      leave(h, child);
      enqueue(h, id, 0);
      return 1;
    }
    require_ok(h, status, "kvrm_alias");
    child->computed = wanted->fork_at;
    ++h->forks;
    return 1;
  }
  return 0;
}

static void arrive(host* h) {
  for (int id = 0; id < REQUESTS; ++id) {
    const request* r = &h->requests[id];
    if (h->state[id] == ABSENT && r->arrives <= h->steps) {
      h->state[id] = HERE;
      h->waits_for_parent[id] = r->parent >= 0;
      if (r->parent < 0) enqueue(h, id, 0);
    }
    if (h->waits_for_parent[id] && fork_or_enqueue(h, id)) h->waits_for_parent[id] = 0;
  }
}

/* A waiting request with what the prefix index has of it. */
static sequence* join_from_queue(host* h) {
  const int id = h->queue[0];
  uint32_t matched = 0;
  sequence* s = join(h, id);
  if (s == NULL) return NULL;
  --h->queued;
  memmove(h->queue, h->queue + 1, (size_t)h->queued * sizeof h->queue[0]);
  ++h->joins;
  const int32_t* tokens = h->requests[id].tokens;
  require_ok(h, kvrm_prefix_match(h->kv, &salt, tokens, s->known, &matched), "kvrm_prefix_match");
  if (matched == 0) return s;
  require_ok(h, kvrm_prefix_adopt(h->kv, s->seq, &salt, tokens, s->known, matched),
             "kvrm_prefix_adopt");
  s->computed = matched;
  h->adopted += matched;
  return s;
}

void schedule(host* h) {
  uint32_t budget = ROWS;
  for (int slot = 0; slot < SLOTS; ++slot) {
    sequence* s = &h->running[slot];
    s->rows = 0;
    if (s->request < 0 || !is_over(h, s)) continue;
    ++h->ended;
    h->state[s->request] = ENDED;
    leave(h, s);
  }
  arrive(h);
  int short_of_room = 0;
  for (int slot = 0; slot < SLOTS; ++slot) {
    sequence* s = &h->running[slot];
    if (s->request < 0 || budget == 0) continue;
    const uint32_t rows = grow(h, s, budget);
    if (rows == 0 && !short_of_room) preempt_for(h, s);
    short_of_room = short_of_room || rows == 0;
    budget -= rows;
  }
  while (h->queued > 0 && budget > 0 && !short_of_room) {
    sequence* s = join_from_queue(h);
    if (s == NULL) break;
    const uint32_t rows = grow(h, s, budget);
    if (rows == 0) { /* no room for its first rows: it waits where it stood */
      enqueue(h, s->request, 1);
      leave(h, s);
      --h->joins;
      break;
    }
    budget -= rows;
  }
}

void index_prefixes(host* h) {
  for (int slot = 0; slot < SLOTS; ++slot) {
    const sequence* s = &h->running[slot];
    if (s->request < 0) continue;
    require_ok(
        h,
        kvrm_prefix_index(h->kv, s->seq, &salt, h->requests[s->request].tokens, s->computed, NULL),
        "kvrm_prefix_index");
  }
}
