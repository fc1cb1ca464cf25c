#include "decoder.h"

#include <string.h>

static uint64_t mix(uint64_t state, uint64_t value) {
  state = (state ^ value) * 0x9E3779B97F4A7C15u;
  return state ^ (state >> 29);
}

uint32_t first_seen(int layer, uint32_t place) {
  return layer_slides(layer) && place >= SIGHT ? place + 1 - SIGHT : 0;
}

unsigned char* window_entry(const window* w, uint32_t slot, uint32_t place) {
  return w->base + slot * w->slot_stride + (uint64_t)(place % w->window) * ENTRY_BYTES;
}

/* "Keys and values": what later rows will see of this one. They depend on all that it saw itself.
 */
static void write_entry(unsigned char* entry, uint64_t state, int layer) {
  for (int word = 0; word < ENTRY_BYTES / 8; ++word) {
    const uint64_t value = mix(state, (uint64_t)(layer * 8 + word + 1));
    memcpy(entry + word * 8, &value, 8);
  }
}

/* "Attention": folds every visible byte, with its layer and place, into the state. */
static uint64_t attend(const window* w, uint32_t slot, int layer, uint32_t place, uint64_t state) {
  for (uint32_t seen = first_seen(layer, place); seen <= place; ++seen) {
    const unsigned char* entry = window_entry(w, slot, seen);
    state = mix(state, (uint64_t)layer << 32 | seen);
    for (int word = 0; word < ENTRY_BYTES / 8; ++word) {
      uint64_t value;
      memcpy(&value, entry + word * 8, 8);
      state = mix(state, value);
    }
  }
  return state;
}

void decode(const window windows[LAYERS], const decoder_row rows[ROWS], uint64_t output[ROWS]) {
  for (int i = 0; i < ROWS; ++i) {
    const decoder_row* row = &rows[i];
    uint64_t state = mix(row->place + 1, (uint64_t)row->token);
    output[i] = 0;
    if (row->slot < 0) continue;
    for (int layer = 0; layer < LAYERS; ++layer) {
      const window* w = &windows[layer];
      if (row->writes) {
        write_entry(window_entry(w, (uint32_t)row->slot, row->place), state, layer);
      }
      state = attend(w, (uint32_t)row->slot, layer, row->place, state);
    }
    output[i] = state;
  }
}
