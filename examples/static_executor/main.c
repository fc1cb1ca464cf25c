/* Runs 64 requests over 8 slots, holds every answer against the reference, and shows that every
 * byte of a window counts. */
#include <stdio.h>
#include <string.h>

#include "host.h"

enum { FLIPS = 1000 };

/* Flips random visible bytes under random running sequences; returns how many changed the output of
 * the sequence's last row. The bytes are put back. */
static int flips_seen(const host* h, uint64_t* random, int flips) {
  int seen = 0;
  for (int i = 0; i < flips; ++i) {
    decoder_row rows[ROWS];
    uint64_t before[ROWS], after[ROWS];
    uint32_t slot = next_random(random) % SLOTS;
    while (h->running[slot].request < 0 || h->running[slot].computed == 0)
      slot = (slot + 1) % SLOTS;
    const uint32_t place = h->running[slot].computed - 1;
    for (int r = 0; r < ROWS; ++r) rows[r] = (decoder_row){-1, 0, 0, 0};
    rows[0] = (decoder_row){(int32_t)slot, 1, place, 0};
    const int layer = (int)(next_random(random) % LAYERS);
    const uint32_t first = first_seen(layer, place);
    const uint32_t at = first + next_random(random) % (place + 1 - first);
    unsigned char* byte =
        window_entry(&h->windows[layer], slot, at) + next_random(random) % ENTRY_BYTES;
    const unsigned char bit = (unsigned char)(1u << next_random(random) % 8);
    decode(h->windows, rows, before);
    *byte ^= bit;
    decode(h->windows, rows, after);
    *byte ^= bit;
    seen += before[0] != after[0];
  }
  return seen;
}

int main(void) {
  static request requests[REQUESTS];
  static host h;
  uint64_t random = 7;
  int wrong = 0, seen = 0;
  uint32_t violations = 0;
  uint64_t tokens = 0;
  make_requests(requests);
  host_create(&h, requests);
  while (host_step(&h)) {
    if (h.steps % 10 == 0 && h.steps <= FLIPS / 10) seen += flips_seen(&h, &random, FLIPS / 10);
  }
  for (int i = 0; i < REQUESTS; ++i) {
    tokens += h.known[i];
    wrong += memcmp(requests[i].tokens, requests[i].answer,
                    requests[i].length * sizeof requests[i].tokens[0]) != 0;
  }
  require_ok(&h, kvrm_validate(h.kv, NULL, 0, NULL, &violations), "kvrm_validate");
  printf("%d requests, %llu tokens, %d steps over %d slots: %d wrong, %u violations\n", REQUESTS,
         (unsigned long long)tokens, h.steps, SLOTS, wrong, violations);
  printf("%d joins, %d forks, %d preemptions, %d deferrals; %llu tokens adopted\n", h.joins,
         h.forks, h.preemptions, h.deferrals, (unsigned long long)h.adopted);
  printf("%llu bytes staged into windows; %d of %d flipped bytes seen\n",
         (unsigned long long)h.staged_bytes, seen, FLIPS);
  host_destroy(&h);
  /* An example that no longer shows what it is about has failed, too. */
  const int shows = h.forks > 0 && h.preemptions > 0 && h.adopted > 0 && h.staged_bytes > 0;
  return wrong == 0 && violations == 0 && seen == FLIPS && shows ? 0 : 1;
}
