/* The host: it schedules requests over the decoder's slots, and calls kvrm for everything that the
 * decoder's fixed windows cannot do by themselves. */
#ifndef HOST_H
#define HOST_H

#include <kvrm/kvrm.h>

#include "decoder.h"
#include "requests.h"

typedef struct sequence {
  int request; /* -1: the slot is free */
  kvrm_seq seq;
  uint32_t computed; /* places whose keys and values are in the cache */
  uint32_t known;    /* tokens of it so far */
  uint32_t rows;     /* rows of this step */
  uint32_t first;    /* the first of them */
  int joined;        /* step in which it was let in */
} sequence;

typedef struct host {
  kvrm_runtime* kv;
  window windows[LAYERS];
  unsigned char* memory[2]; /* of each KV group's windows */
  request* requests;
  sequence running[SLOTS]; /* by the runtime's slot */
  int queue[REQUESTS];     /* waiting requests; those that were preempted come first */
  int queued;
  enum { ABSENT, HERE, ENDED } state[REQUESTS];
  int waits_for_parent[REQUESTS];
  int ended, steps;
  uint32_t known[REQUESTS]; /* tokens of each request so far */
  uint64_t epoch;
  int joins, forks, preemptions, deferrals; /* what happened */
  uint64_t adopted, staged_bytes;
} host;

void host_create(host* h, request* requests);
/* One step; 0 when nothing is left to do. */
int host_step(host* h);
void host_destroy(host* h);
/* Stops the program when a call did not answer KVRM_OK. */
void require_ok(const host* h, kvrm_status status, const char* call);

#endif
