/* What there is before kvrm: a decoder of fixed shape, as an NPU or a static graph is, and requests
 * with the answers that it gives to each of them alone, over contiguous arrays. Dense windows of
 * keys and values [layer][slot][place], ROWS rows a step; it knows nothing of pages. */
#ifndef DECODER_H
#define DECODER_H

#include <stdint.h>
#include <string.h>

enum {
  LAYERS = 4,
  SLOTS = 8,         /* sequences side by side */
  ROWS = 24,         /* rows of a step */
  SIGHT = 40,        /* places that layers 1 and 3 see, the row's own included; 0 and 2 see all */
  RING = SIGHT + 24, /* places that a window of theirs holds */
  LONGEST = 216,     /* places of the longest sequence */
  ENTRY = 16,        /* bytes of keys and values of one place in one layer */
  REQUESTS = 64,
  FLIPS = 1000
};

typedef struct windows {
  unsigned char* base[LAYERS]; /* [slot][length][ENTRY] */
  uint32_t length[LAYERS];     /* a ring where it is shorter than a sequence */
} windows;

typedef struct decoder_row {
  enum { PADDING, READS, WRITES } kind; /* READS: its entries stand in the windows already */
  int32_t slot, token;
  uint32_t place;
} decoder_row;

static uint64_t mix(uint64_t state, uint64_t value) {
  state = (state ^ value) * 0x9E3779B97F4A7C15u;
  return state ^ (state >> 29);
}

static uint32_t first_seen(uint32_t layer, uint32_t place) {
  return layer % 2 == 1 && place >= SIGHT ? place + 1 - SIGHT : 0;
}

static unsigned char* entry_of(const windows* w, uint32_t layer, int32_t slot, uint32_t place) {
  const uint32_t length = w->length[layer];
  return w->base[layer] + ((uint32_t)slot * length + place % length) * ENTRY;
}

/* Writes the row's entries, and folds every visible (layer, place, byte) into a hash. */
static uint64_t decode_row(const windows* w, decoder_row row) {
  uint64_t state = mix(row.place + 1, (uint64_t)row.token);
  for (uint32_t layer = 0; layer < LAYERS; ++layer) {
    unsigned char* own = entry_of(w, layer, row.slot, row.place);
    for (uint32_t i = 0; row.kind == WRITES && i < ENTRY; ++i)
      own[i] = (unsigned char)(mix(state, i) >> 32);
    for (uint32_t seen = first_seen(layer, row.place); seen <= row.place; ++seen) {
      const unsigned char* entry = entry_of(w, layer, row.slot, seen);
      state = mix(state, (uint64_t)layer << 32 | seen);
      for (uint32_t i = 0; i < ENTRY; ++i) state = mix(state, entry[i]);
    }
  }
  return state;
}

/* The token that follows: 31 bits of the hash, so that no change of it goes unseen. */
static int32_t next_token(uint64_t hash) { return (int32_t)(hash >> 33); }

static void decode(const windows* w, const decoder_row rows[ROWS], int32_t next[ROWS]) {
  for (int i = 0; i < ROWS; ++i) {
    next[i] = rows[i].kind == PADDING ? 0 : next_token(decode_row(w, rows[i]));
  }
}

typedef struct request {
  uint32_t arrives;        /* step in which it joins the queue */
  int parent;              /* the request that it forks from, -1 = none */
  uint32_t fork_at;        /* places that it shares with its parent */
  uint32_t known, length;  /* tokens so far: at first the prompt; tokens in the end */
  int32_t tokens[LONGEST]; /* the host appends what the decoder answers */
  int32_t answer[LONGEST]; /* all tokens, by contiguous arrays */
} request;

static uint32_t below(uint32_t bound) {
  static uint64_t state = 2026;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % bound;
}

static void make_request(request* r, int id) {
  static unsigned char arrays[LAYERS][LONGEST * ENTRY];
  const windows contiguous = {{arrays[0], arrays[1], arrays[2], arrays[3]},
                              {LONGEST, LONGEST, LONGEST, LONGEST}};
  const request* parent = r - 1;
  r->arrives = (uint32_t)id / 2;
  r->parent = id % 4 == 3 ? id - 1 : -1;
  r->known = 1 + below(90);
  for (uint32_t i = 0; i < r->known; ++i) { /* half of them begin alike, as chats do */
    r->tokens[i] = id % 2 == 0 && i < 48 ? (int32_t)i : (int32_t)below(1u << 30);
  }
  if (r->parent >= 0) { /* goes on from somewhere in its parent's answer, its own way */
    r->fork_at = parent->known + below(parent->length - parent->known);
    memcpy(r->tokens, parent->answer, r->fork_at * sizeof r->tokens[0]);
    r->tokens[r->fork_at] = (int32_t)below(1u << 30);
    r->known = r->fork_at + 1;
  }
  r->length = r->known + 1 + below(60);
  memcpy(r->answer, r->tokens, sizeof r->answer);
  for (uint32_t place = 0; place + 1 < r->length; ++place) {
    const decoder_row row = {WRITES, 0, r->answer[place], place};
    const int32_t next = next_token(decode_row(&contiguous, row));
    if (place + 1 >= r->known) r->answer[place + 1] = next;
  }
}

static uint32_t is_wrong(const request* r) {
  return memcmp(r->tokens, r->answer, r->length * sizeof r->tokens[0]) != 0;
}

/* Flips any bit that the row at `place` of `slot` sees, and back: did its output change? */
static uint32_t flip_is_seen(const windows* w, int32_t slot, uint32_t place) {
  const decoder_row row = {READS, slot, 1, place};
  const uint32_t layer = below(LAYERS), first = first_seen(layer, place);
  unsigned char* byte = entry_of(w, layer, slot, first + below(place + 1 - first)) + below(ENTRY);
  const unsigned char before = *byte;
  const uint64_t hash = decode_row(w, row);
  *byte ^= (unsigned char)(1u << below(8));
  const uint32_t seen = decode_row(w, row) != hash;
  *byte = before;
  return seen;
}

#endif
