/* The plain data of libkvrm's C interface: constants and structs. kvrm/kvrm.h has the calls.
 *
 * Two families:
 *   - versioned structs begin with `size`: set it to sizeof of the struct that you compiled
 *     against. An input that is shorter than the library's struct reads as if the rest were zero
 *     (its defaults); one that is longer is refused unless the rest is zero. An output is filled up
 *     to `size`; what the library does not know becomes zero. No size exceeds KVRM_MAX_STRUCT.
 *   - wire structs have a fixed layout, little endian, the same in memory, in frames that are sent
 *     to a device, and in traces. KVRM_FRAME_VERSION counts their changes.
 *
 * Zero is a default wherever a field says so. C11 and C++. No thread rule: data.
 */
#ifndef KVRM_TYPES_H
#define KVRM_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header; kvrm_version() tells the library's. Before 1.0 a minor version may break. */
#define KVRM_VERSION_MAJOR 0u
#define KVRM_VERSION_MINOR 1u
#define KVRM_VERSION_PATCH 0u

#define KVRM_MAX_GROUPS 4u
#define KVRM_MAX_STRUCT 4096u
#define KVRM_NONE 0xFFFFFFFFu /* no mask, no row of logits */
#define KVRM_FRAME_MAGIC 0x4652564Bu
#define KVRM_FRAME_VERSION 2u
#define KVRM_NUM_COPY_CAUSES 6u

/* What every call answers. Values never change their meaning. */
typedef int32_t kvrm_status;
enum {
  KVRM_OK = 0,
  KVRM_DEFERRED = 1,      /* no room now; others hold pages that will come back. Nothing changed */
  KVRM_UNSERVICEABLE = 2, /* can never be served as asked. Nothing changed */
  KVRM_INVALID = 3,       /* the caller broke a rule that the call states. Nothing changed */
  KVRM_NO_ROOM = 4,       /* memory, or another bound, is used up. Nothing changed */
  KVRM_UNSUPPORTED = 5,   /* well formed, but not offered by this version */
  KVRM_IO = 6,            /* the system failed an input or output */
  KVRM_BROKEN = 7         /* a bug in the library, after which the runtime can only be destroyed */
};

typedef struct kvrm_runtime kvrm_runtime; /* opaque */
typedef uint32_t kvrm_seq;                /* an open sequence; its low bits name its slot */

/* ---- configuration */

enum { KVRM_GROUP_FULL = 0, KVRM_GROUP_SLIDING = 1, KVRM_GROUP_SUMMARY = 2, KVRM_GROUP_STATE = 3 };
enum { KVRM_FORMAT_F32 = 0, KVRM_FORMAT_F16 = 1, KVRM_FORMAT_INT8 = 2, KVRM_FORMAT_OTHER = 3 };

/* One KV group: layers that share page table, window and trim rule. */
typedef struct kvrm_group_config {
  uint32_t size;
  uint32_t kind;             /* KVRM_GROUP_FULL or _SLIDING; the others are UNSUPPORTED */
  uint32_t format;           /* KVRM_FORMAT_*: carried along, never interpreted */
  uint32_t page_tokens;      /* token places of a page: a power of two, 8..128; 0 = 16. The same
                                in all groups, or KVRM_CONFIG_NO_PREFIX_INDEX */
  uint32_t num_parts;        /* parts of a page: as a rule one for each layer, K and V together */
  uint32_t window_tokens;    /* sliding: the model's window, places that a row sees, its own
                                included; else 0. Not the ring of a kvrm_window_config */
  uint64_t part_page_bytes;  /* bytes of one page in one part */
  uint64_t superblock_bytes; /* S and P: both 0 = chosen by kvrm_apply_superblock_rule */
  uint32_t pages_per_superblock; /* 1..64 */
  uint32_t reserved;             /* 0 */
} kvrm_group_config;

/* Dense windows of one group, for executors that cannot read pages: the host owns the memory.
 * window_tokens is here the length of a slot's array, as kvrm_get_window tells it, not the model's.
 *   address = base + part * part_stride_bytes + slot * slot_stride_bytes + place * token_bytes
 *   place   = token                        full group
 *           = token % window_tokens        sliding group: a ring
 * token_bytes = part_page_bytes / page_tokens; pages hold their tokens one after another. */
typedef struct kvrm_window_config {
  uint32_t size;
  uint32_t window_tokens;     /* a multiple of page_tokens. Full: >= max_seq_tokens; sliding: >= the
                                 model's window + max_step_tokens; 0 = the least that serves */
  uint64_t slot_stride_bytes; /* 0 = window_tokens * token_bytes */
  uint64_t part_stride_bytes; /* 0 = max_slots * slot_stride_bytes: [part][slot][window] */
} kvrm_window_config;

enum {
  KVRM_CONFIG_NO_PREFIX_INDEX = 1, /* matches find nothing; groups may differ in page_tokens */
  KVRM_CONFIG_POISON_FREED = 2,    /* freed pages are filled with 0xFF; for tests */
  KVRM_CONFIG_WINDOWS = 4          /* keep the window plan */
};

typedef struct kvrm_config {
  uint32_t size;
  uint32_t num_groups;               /* 1..KVRM_MAX_GROUPS */
  const kvrm_group_config* groups;   /* [num_groups], groups[0].size bytes apart */
  const kvrm_window_config* windows; /* [num_groups], windows[0].size bytes apart; with
                                        KVRM_CONFIG_WINDOWS; NULL = all by default */
  const uint8_t* layer_group;        /* [num_layers]: KV group of each layer; NULL = all 0 */
  const uint16_t* layer_part;        /* [num_layers]: part in that group; several layers may share
                                        one; NULL = in order within each group */
  uint32_t num_layers;               /* 0 = no layer map */
  uint32_t flags;                    /* KVRM_CONFIG_* */
  uint64_t kv_bytes;                 /* hard bound of page memory over all groups */
  uint64_t kv_keep_bytes;            /* cached prefixes that stay when idle; 0 = 32 MiB */
  uint32_t max_slots;                /* sequences at once, 1..65535; 0 = 32 */
  uint32_t max_seq_tokens;           /* the longest sequence */
  uint32_t max_step_tokens;          /* most places that one sequence gains in a step, at most
                                        max_seq_tokens; 0 = max_seq_tokens */
  uint32_t max_rows;                 /* most rows of a step; 0 = max_slots + max_step_tokens */
  uint64_t train_bytes;       /* tau: copies are merged up to it; 0 = 128 KiB; at most 2^47 */
  uint32_t publish_age_steps; /* steps that rows may wait in a window before they go to
                                 their pages, 0..255; 0 = each step's rows at once */
  uint32_t reserved;          /* 0 */
  uint64_t test_scatter_seed; /* not 0: no sequence gets two adjacent pages; for tests */
} kvrm_config;

/* ---- a step */

enum {
  KVRM_ROW_WANT_LOGITS = 1, /* gets the next logits_idx */
  KVRM_ROW_NO_WRITE = 2,    /* its K and V stand in the cache already: it only reads */
  KVRM_ROW_WANT_LSE = 4     /* log-sum-exp and the logit of lse_target are wanted */
};

/* One token to be computed, as the caller gives it. Fixed layout, 32 bytes. */
typedef struct kvrm_row_input {
  kvrm_seq seq;
  int32_t token;      /* its id; with token_src 1: a slot whose last sampled token is meant */
  uint32_t position;  /* for position encodings */
  uint32_t kv_index;  /* token place that it writes, and the last one that it sees */
  uint8_t flags;      /* KVRM_ROW_* */
  uint8_t token_src;  /* 0: `token` is an id; 1: a slot of the previous epoch */
  uint16_t reserved0; /* 0 */
  uint32_t mask_id;   /* the sampler's business; KVRM_NONE = none */
  int32_t lse_target; /* -1 = none */
  uint32_t reserved1; /* 0 */
} kvrm_row_input;

/* ---- wire structs: what a frame consists of (frame.md, beside embedding.md, gives the grammar) */

typedef struct kvrm_frame_head { /* 64 bytes, then rows, slots and deltas without a gap */
  uint32_t magic, version;
  uint64_t epoch, chain_hash;
  uint32_t num_rows, num_slots, num_deltas, num_logits, num_groups;
  uint32_t reserved[5];
} kvrm_frame_head;

typedef struct kvrm_row { /* 32 bytes */
  int32_t token;
  uint16_t slot;
  uint8_t token_src, flags;
  uint32_t position, kv_index, mask_id;
  int32_t lse_target;
  uint32_t logits_idx; /* row of the logits, KVRM_NONE = none */
  uint32_t reserved;
} kvrm_row;

enum { KVRM_SLOT_LOSSY_VIEW = 1 };

typedef struct kvrm_slot_head { /* 128 bytes; one for each slot that has rows in the frame */
  uint16_t slot, flags;         /* KVRM_SLOT_* */
  kvrm_seq seq;
  uint32_t row_begin, num_rows;
  uint32_t num_tokens[KVRM_MAX_GROUPS];  /* places after this step */
  uint32_t first_token[KVRM_MAX_GROUPS]; /* first place on a page that is held */
  uint32_t num_pages[KVRM_MAX_GROUPS];   /* entries of the dense table, holes included */
  uint32_t num_segments[KVRM_MAX_GROUPS];
  uint32_t num_holes[KVRM_MAX_GROUPS];
  uint32_t reserved[8];
} kvrm_slot_head;

enum {
  KVRM_DELTA_APPEND = 0,   /* at the end, `index`: entries index + i = page + i, i < count */
  KVRM_DELTA_EXTEND = 1,   /* the same; they lengthen the last segment */
  KVRM_DELTA_REPLACE = 2,  /* entry `index` = page (copy-on-write) */
  KVRM_DELTA_TRUNCATE = 3, /* entries from `index` on go; the table has `index` entries */
  KVRM_DELTA_HOLE = 4      /* entries [index, index + count) = 0; at the end they are new ones */
};

typedef struct kvrm_delta { /* 24 bytes: one edit of the table of (slot, kv_group), in order */
  uint16_t slot;
  uint8_t kv_group, kind; /* KVRM_DELTA_* */
  uint32_t index, page, count, first_token_place, reserved;
} kvrm_delta;

typedef struct kvrm_segment { /* 48 bytes: adjacent pages, read in one piece for each part */
  uint64_t offset_bytes;      /* of its first page in part 0, from the group's base */
  uint32_t first_token, num_pages, first_page;
  int32_t position_shift; /* 0 in a dense view */
  float score_bias;       /* 0 in a dense view */
  uint8_t kv_group, reserved0;
  uint16_t head_begin, head_end, layer_begin, layer_end, reserved1;
  uint64_t row_mask;
} kvrm_segment;

enum { KVRM_SPACE_POOL = 0, KVRM_SPACE_WINDOW = 1, KVRM_SPACE_TIER = 2 };
enum { KVRM_COPY_ON_WRITE = 0, KVRM_COPY_STAGE = 1, KVRM_COPY_PUBLISH = 2 };
enum { KVRM_COPY_PARK = 3, KVRM_COPY_RESUME = 4, KVRM_COPY_COMPACT = 5 };

typedef struct kvrm_space { /* 2 bytes: pages of a group, or its windows */
  uint8_t kind, kv_group;   /* KVRM_SPACE_* */
} kvrm_space;

typedef struct kvrm_train { /* 40 bytes: one copy, contiguous at both ends */
  uint64_t source_offset, destination_offset, bytes; /* from the base of its space */
  kvrm_space source, destination;
  uint8_t cause, reserved0[3]; /* KVRM_COPY_* */
  uint32_t pieces;             /* descriptors that were merged into it */
  uint32_t reserved1;
} kvrm_train;

/* ---- outputs */

/* The step that was published. All pointers are the runtime's. */
typedef struct kvrm_frame {
  uint32_t size;
  uint32_t num_groups;
  uint64_t epoch, chain_hash;
  const void* block; /* kvrm_frame_head, rows, slots, deltas: one piece, to be sent to a device */
  uint64_t block_bytes;
  const kvrm_row* rows;        /* [num_rows], in the order given */
  const kvrm_slot_head* slots; /* [num_slots], ascending slot */
  const kvrm_delta* deltas;    /* [num_deltas] */
  uint32_t num_rows, num_slots, num_deltas, num_logits;
  const kvrm_segment* segments; /* [num_groups][max_slots][max_pages], at one address for life */
  const uint32_t* dense;        /* [num_groups][max_slots][max_pages], at one address for life */
  uint32_t max_slots, max_pages;
} kvrm_frame;

typedef struct kvrm_sequence_info {
  uint32_t size;
  uint32_t slot;
  uint32_t num_tokens;       /* of the edited, not yet committed state */
  uint32_t completed_tokens; /* places whose contents completed epochs have written */
  uint32_t lossy;            /* 1: kvrm_trim_pages made holes */
  uint32_t new_from;         /* first place that this step has to write */
} kvrm_sequence_info;

typedef struct kvrm_room {
  uint32_t size;
  uint32_t open_sequences;
  uint64_t pages_now, tokens_now;               /* what reserve could still hand out */
  uint64_t pages_with_limbo, tokens_with_limbo; /* once the running epochs are done */
  uint64_t max_tokens;                          /* what kv_bytes allows in all */
} kvrm_room;

/* Pages of one group. free + cached + in_use + soft + limbo + in_flight == total. */
typedef struct kvrm_books {
  uint32_t size;
  uint32_t reserved;
  uint64_t total, free, cached, in_use, soft, limbo, in_flight;
  uint64_t superblocks, reserved_bytes, superblock_bytes;
} kvrm_books;

typedef struct kvrm_counters { /* since create */
  uint32_t size;
  uint32_t reserved;
  uint64_t reserves, deferred, unserviceable, trims, aliases;
  uint64_t commits, rollbacks, savepoint_rollbacks;
  uint64_t pages_taken, pages_returned, copy_on_write;
  uint64_t soft_taken, soft_used, soft_stolen, slid_pages, cold_pages;
  uint64_t superblocks_populated, superblocks_given_back, superblocks_taken_cold;
  uint64_t prefix_lookups, prefix_hit_tokens, prefix_miss_tokens;
  uint64_t prefix_pages_indexed, prefix_pages_evicted, prefix_collisions;
  uint64_t read_runs; /* segments of all open sequences now */
} kvrm_counters;

typedef struct kvrm_copy_counters { /* by cause, since create */
  uint32_t size;
  uint32_t reserved;
  uint64_t pieces[KVRM_NUM_COPY_CAUSES]; /* before merging */
  uint64_t trains[KVRM_NUM_COPY_CAUSES];
  uint64_t bytes[KVRM_NUM_COPY_CAUSES];
} kvrm_copy_counters;

/* What keeps prefixes apart that may not be shared: compared whole. */
typedef struct kvrm_salt {
  uint64_t tenant;
  uint64_t model; /* of all that the bytes of a page depend on: weights, format, arithmetic */
} kvrm_salt;

#ifdef __cplusplus
}
#endif

#endif /* KVRM_TYPES_H */
