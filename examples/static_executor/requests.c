#include "requests.h"

#include <string.h>

uint32_t next_random(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*state >> 33);
}

/* Every place of every layer in one array: nothing slides out, nothing moves. */
static void answer_by_contiguous_arrays(request* r) {
  static unsigned char arrays[LAYERS][LONGEST * ENTRY_BYTES];
  window windows[LAYERS];
  for (int layer = 0; layer < LAYERS; ++layer) {
    windows[layer] = (window){arrays[layer], sizeof arrays[layer], LONGEST};
  }
  memcpy(r->answer, r->tokens, r->prompt * sizeof r->tokens[0]);
  for (uint32_t place = 0; place + 1 < r->length; ++place) {
    decoder_row rows[ROWS];
    uint64_t output[ROWS];
    for (int i = 0; i < ROWS; ++i) rows[i] = (decoder_row){-1, 0, 0, 0};
    rows[0] = (decoder_row){0, r->answer[place], place, 1};
    decode(windows, rows, output);
    if (place + 1 >= r->prompt) r->answer[place + 1] = next_token(output[0]);
  }
}

static void fork_from(request* r, const request* parent, uint64_t* random) {
  r->fork_at = parent->prompt + next_random(random) % (parent->length - parent->prompt);
  memcpy(r->tokens, parent->answer, r->fork_at * sizeof r->tokens[0]);
  r->tokens[r->fork_at] = (int32_t)next_random(random);
  r->prompt = r->fork_at + 1;
}

void make_requests(request requests[REQUESTS]) {
  uint64_t random = 2026;
  int32_t system_prompt[48]; /* many requests begin alike, as chats do */
  for (int i = 0; i < 48; ++i) system_prompt[i] = (int32_t)next_random(&random);
  for (int i = 0; i < REQUESTS; ++i) {
    request* r = &requests[i];
    memset(r, 0, sizeof *r);
    r->arrives = i / 2;
    r->parent = i % 4 == 3 ? i - 1 : -1;
    if (r->parent >= 0) {
      fork_from(r, &requests[r->parent], &random);
    } else {
      r->prompt = 1 + next_random(&random) % 90;
      for (uint32_t t = 0; t < r->prompt; ++t) {
        r->tokens[t] = i % 2 == 0 && t < 48 ? system_prompt[t] : (int32_t)next_random(&random);
      }
    }
    r->length = r->prompt + 1 + next_random(&random) % 60;
    if (r->length > LONGEST) r->length = LONGEST;
    answer_by_contiguous_arrays(r);
  }
}
