/* A decoder of fixed shape, as an NPU or a static graph would be: dense windows of keys and values
 * [layer][slot][place], a fixed number of rows a step. It knows nothing of pages or of kvrm. */
#ifndef DECODER_H
#define DECODER_H

#include <stdint.h>

enum {
  LAYERS = 4,      /* layers 0 and 2 see everything, 1 and 3 the last SIGHT places */
  SLOTS = 8,       /* sequences side by side */
  ROWS = 24,       /* rows of a step */
  SIGHT = 40,      /* places that a sliding layer sees, the row's own included */
  LONGEST = 160,   /* places of the longest sequence */
  ENTRY_BYTES = 32 /* keys and values of one place in one layer */
};

static inline int layer_slides(int layer) { return layer % 2; }

/* The windows of one layer: entry(slot, place) = base + slot * slot_stride
 * + (place % window) * ENTRY_BYTES. */
typedef struct window {
  unsigned char* base;
  uint64_t slot_stride;
  uint32_t window;
} window;

typedef struct decoder_row {
  int32_t slot; /* -1: the row is padding */
  int32_t token;
  uint32_t place;
  int writes; /* 0: keys and values of this place stand in the window already */
} decoder_row;

/* First place that `layer` sees from `place`. */
uint32_t first_seen(int layer, uint32_t place);
unsigned char* window_entry(const window* w, uint32_t slot, uint32_t place);

/* Computes the rows in order. output[i] is a hash of every visible (layer, place, byte) of row i.
 */
void decode(const window windows[LAYERS], const decoder_row rows[ROWS], uint64_t output[ROWS]);

/* The token that follows: 31 bits of the hash, so that no change of it goes unseen. */
static inline int32_t next_token(uint64_t output) { return (int32_t)(output >> 33); }

#endif
