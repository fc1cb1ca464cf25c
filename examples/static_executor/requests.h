/* 64 requests of mixed lengths, some of them forks of others, and what each has to answer: the same
 * decoder, given contiguous arrays for one sequence at a time. */
#ifndef REQUESTS_H
#define REQUESTS_H

#include <stdint.h>

#include "decoder.h"

enum { REQUESTS = 64 };

typedef struct request {
  int arrives;      /* step in which it joins the queue */
  int parent;       /* request that it forks from, -1 = none */
  uint32_t fork_at; /* places that it shares with its parent; it goes on with a token of its own */
  uint32_t prompt;  /* tokens that are given */
  uint32_t length;  /* tokens in the end, at most LONGEST */
  int32_t tokens[LONGEST]; /* prompt; the host appends what the decoder answers */
  int32_t answer[LONGEST]; /* all tokens, by the reference */
} request;

uint32_t next_random(uint64_t* state);
void make_requests(request requests[REQUESTS]);

#endif
