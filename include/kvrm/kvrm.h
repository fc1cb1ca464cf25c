/* libkvrm: a KV cache runtime for decoders whose shape never changes. This is its whole public
 * face.
 *
 * What it is: pages of a KV pool, page tables of sequences, one frame a step, and the copies that
 * bring fixed windows up to date. What it is not: a model, a kernel, a sampler, a server, a thread.
 * embedding.md, installed in share/doc/kvrm, drives a decoder with it, call by call.
 *
 * One step:
 *     kvrm_begin_step -> open, close, reserve, alias, trim ... -> kvrm_commit (or _rollback_step)
 *       -> copies -> your decoder runs the frame's rows -> kvrm_step_done
 *
 * Rules for every call, unless it says otherwise:
 *   Threads    a runtime is used by one thread at a time; two runtimes are independent. No call
 *              starts a thread, blocks, or calls back.
 *   Errors     answers a kvrm_status. INVALID, NO_ROOM and the like change nothing, and
 *              kvrm_last_error tells why in one line. A NULL runtime or a NULL output is INVALID.
 *              Nothing aborts the process and no C++ exception leaves a call. A bug inside makes
 *              the runtime BROKEN: then every call but destroy, last_error and validate says so.
 *   Outputs    are written only when the call answers KVRM_OK; where NULL is allowed, it is said.
 *   Ownership  what a call returns by pointer belongs to the runtime and dies with it, or earlier
 *              where the call says so. What the caller passes is read during the call only.
 *   Memory     after kvrm_create nothing is allocated, but for texts of validate and dump, a
 *              journal that grows once in a step of unusual size, and prefix index nodes.
 *   Marks      [S] inside a step only, [-] outside a step only, [*] any time.
 */
#ifndef KVRM_KVRM_H
#define KVRM_KVRM_H

#include "kvrm/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KVRM_API __attribute__((visibility("default")))
#else
#define KVRM_API
#endif

/* ---- general: any thread, any time */

/* Version of the library: major << 16 | minor << 8 | patch. */
KVRM_API uint32_t kvrm_version(void);
/* "OK", "DEFERRED" ...; "UNKNOWN" for other values. A constant. */
KVRM_API const char* kvrm_status_name(kvrm_status status);
/* Why the last call of this runtime that did not answer OK failed; "" if none did. With NULL: of
 * this thread's last call that had no runtime (create, the superblock rule, a NULL runtime). One
 * line of UTF-8, valid until the next call; never NULL. */
KVRM_API const char* kvrm_last_error(const kvrm_runtime* runtime);

/* ---- set-up */

/* Fills superblock_bytes and pages_per_superblock of `group` from num_parts and part_page_bytes, so
 * that a full run within one part is about 128 KiB and at most 2 % are wasted. Pure; any thread. */
KVRM_API kvrm_status kvrm_apply_superblock_rule(kvrm_group_config* group);
/* Reserves address space for kv_bytes in each group and allocates tables; pages take memory as they
 * are used. UNSUPPORTED: a kind that is not built, or groups of different page_tokens without
 * KVRM_CONFIG_NO_PREFIX_INDEX. NO_ROOM: kv_bytes below one superblock for each
 * group, or the system refused. `*out` is the caller's, to be given to kvrm_destroy. */
KVRM_API kvrm_status kvrm_create(const kvrm_config* config, kvrm_runtime** out);
/* Frees everything, whatever the state. NULL is allowed. */
KVRM_API void kvrm_destroy(kvrm_runtime* runtime);
/* [*] The group as it is used: rule and defaults applied. Requires: out->size. */
KVRM_API kvrm_status kvrm_get_group(const kvrm_runtime* runtime, uint32_t group,
                                    kvrm_group_config* out);
/* [*] Which part of which group holds `layer`. */
KVRM_API kvrm_status kvrm_get_layer(const kvrm_runtime* runtime, uint32_t layer, uint32_t* group,
                                    uint32_t* part);
/* [*] Where the pages of `group` lie: one range of addresses that never changes. Only pages that
 * sequences hold may be written. */
KVRM_API kvrm_status kvrm_get_memory(const kvrm_runtime* runtime, uint32_t group, void** base,
                                     uint64_t* bytes);
/* [*] Byte offset of `part` of `page` from that base. The next page of the same segment lies
 * part_page_bytes further on. */
KVRM_API kvrm_status kvrm_get_page_offset(const kvrm_runtime* runtime, uint32_t group,
                                          uint32_t page, uint32_t part, uint64_t* offset);

/* ---- one step. Cost of each: the page table entries that change. */

/* [-] Begins a step: its edits become visible together, by commit, or not at all. INVALID with
 * publish_age_steps > 0: nobody asked for the window plan of the last epoch, which had rows or
 * moves some: its KVRM_COPY_PUBLISH trains exist once, and no later plan repeats them. */
KVRM_API kvrm_status kvrm_begin_step(kvrm_runtime* runtime);
/* [S] Opens an empty sequence. DEFERRED: all slots run. It keeps its slot until it is closed; ids
 * come back only after a long time. */
KVRM_API kvrm_status kvrm_open(kvrm_runtime* runtime, kvrm_seq* out);
/* [S] Ends a sequence. Its slot is free after the commit, its pages once that epoch is done. */
KVRM_API kvrm_status kvrm_close(kvrm_runtime* runtime, kvrm_seq seq);
/* [S] Makes token places [0, num_tokens) exist in every group; no-op when they do. The step has to
 * write each new place by one row. `hint_tokens`: the length that is known to come (a prompt's); it
 * only helps placement, and below num_tokens it counts as num_tokens. DEFERRED: no room now,
 * `*missing_pages` (may be NULL) are short; leave the sequence out of this step, or end another.
 * UNSERVICEABLE: above max_seq_tokens or kv_bytes. */
KVRM_API kvrm_status kvrm_reserve(kvrm_runtime* runtime, kvrm_seq seq, uint32_t num_tokens,
                                  uint32_t hint_tokens, uint32_t* missing_pages);
/* [S] Makes the first `num_tokens` places of `dst`, an empty sequence, those of `src`: shared,
 * copied by whoever writes the last page first. INVALID past what `src` held at the last commit.
 * UNSERVICEABLE: places have slid out, or `src` is lossy. */
KVRM_API kvrm_status kvrm_alias(kvrm_runtime* runtime, kvrm_seq dst, kvrm_seq src,
                                uint32_t num_tokens);
/* [S] Drops places from `from_token` on (rejected tokens; a retry). No-op past the end.
 * UNSERVICEABLE: what the place `from_token` sees in a sliding group, or its own page, is gone. */
KVRM_API kvrm_status kvrm_trim(kvrm_runtime* runtime, kvrm_seq seq, uint32_t from_token);
/* [*] Whether trim would do it: 1 or 0. */
KVRM_API kvrm_status kvrm_can_trim(const kvrm_runtime* runtime, kvrm_seq seq, uint32_t from_token,
                                   uint32_t* yes);
/* [S] Drops the whole pages of places [begin_token, end_token) of a full group, though the model
 * could see them; never the last page, nor what this step writes. Lossy: the frame says so. */
KVRM_API kvrm_status kvrm_trim_pages(kvrm_runtime* runtime, kvrm_seq seq, uint32_t group,
                                     uint32_t begin_token, uint32_t end_token);
/* [S] Remembers where `seq` stands. `*savepoint` is a number that this runtime never gives again.
 * NO_ROOM: too many savepoints in this step. */
KVRM_API kvrm_status kvrm_mark(kvrm_runtime* runtime, kvrm_seq seq, uint64_t* savepoint);
/* [S] Undoes every edit of that savepoint's sequence since; edits of others stand. Savepoints that
 * were marked later, of any sequence, are void. */
KVRM_API kvrm_status kvrm_rollback(kvrm_runtime* runtime, uint64_t savepoint);
/* [S] Publishes the step as `epoch`: the last one + 1; the first is 1. Rows of one sequence stand
 * together, ascending in kv_index; those that write are exactly its new places, each once. With
 * windows, what they see together has to fit the ring of a sliding group: only rows that do not
 * write and stand far before the others can break that. `out`
 * may be NULL. INVALID leaves the step open, as it was. NO_ROOM: more edits than a frame holds;
 * roll the step back. [-] With the last epoch and the same rows again: the same frame, nothing
 * changes. Frame pointers are valid until the next but one commit, segments and dense until the
 * next. Page copies of each epoch have to be carried out before the next commit and before its
 * step_done, also when its decoder failed and the epoch is given up: the tables name the copies
 * already. Both calls answer INVALID when there were some and kvrm_get_page_copies was not called.
 */
KVRM_API kvrm_status kvrm_commit(kvrm_runtime* runtime, uint64_t epoch, const kvrm_row_input* rows,
                                 uint32_t num_rows, kvrm_frame* out);
/* [S] Undoes every edit of the step and ends it. */
KVRM_API kvrm_status kvrm_rollback_step(kvrm_runtime* runtime);
/* [*] The executor has finished `epoch` and all before it: pages that waited for it become free.
 * INVALID: nobody asked for its page copies. */
KVRM_API kvrm_status kvrm_step_done(kvrm_runtime* runtime, uint64_t epoch);
/* [-] One bounded piece of housekeeping (memory ahead of need, give-back, eviction); `*more` (may
 * be NULL) is 1 when something was done. `idle` 1: also shrink to kv_keep_bytes. The only call
 * after kvrm_create that asks the system for memory; call it after each step, until `*more` is 0 or
 * at least once (2 MiB of memory ahead of need a call), and between commit
 * and run if the decoder shall meet no page fault (superblocks_taken_cold). */
KVRM_API kvrm_status kvrm_maintain(kvrm_runtime* runtime, uint32_t idle, uint32_t* more);

/* ---- prefix index: pages that are written, found by the tokens that they hold. All groups have
 * the same page_tokens, or there is none (KVRM_CONFIG_NO_PREFIX_INDEX: nothing enters, nothing
 * matches) */

/* [*] How many places of a prompt adopt could give now. Costs the prompt's pages. */
KVRM_API kvrm_status kvrm_prefix_match(kvrm_runtime* runtime, const kvrm_salt* salt,
                                       const int32_t* tokens, uint32_t num_tokens,
                                       uint32_t* matched_tokens);
/* [S] Makes the first `adopt_tokens` places of `seq`, an empty sequence, indexed pages that hold
 * tokens[0, adopt_tokens). UNSERVICEABLE: more than match says. A prompt that is adopted whole
 * computes its last row with KVRM_ROW_NO_WRITE. */
KVRM_API kvrm_status kvrm_prefix_adopt(kvrm_runtime* runtime, kvrm_seq seq, const kvrm_salt* salt,
                                       const int32_t* tokens, uint32_t num_tokens,
                                       uint32_t adopt_tokens);
/* [-] Enters the full pages among the first `num_tokens` places of `seq` whose epoch is done
 * (kvrm_step_done; before it nothing enters); `*pages` (may be NULL) were new. That they hold
 * `tokens` is believed: wrong tokens give wrong caches to whoever matches them. Call it as a
 * sequence grows, and before closing it. */
KVRM_API kvrm_status kvrm_prefix_index(kvrm_runtime* runtime, kvrm_seq seq, const kvrm_salt* salt,
                                       const int32_t* tokens, uint32_t num_tokens, uint32_t* pages);
/* [-] Forgets all of it. */
KVRM_API kvrm_status kvrm_prefix_clear(kvrm_runtime* runtime);

/* ---- what the last commit published */

/* [*] The frame again. INVALID before the first commit. */
KVRM_API kvrm_status kvrm_get_frame(const kvrm_runtime* runtime, kvrm_frame* out);
/* [*] Segments of a slot that the last frame names: for reading pages in place. Until the next
 * commit. */
KVRM_API kvrm_status kvrm_get_segments(const kvrm_runtime* runtime, uint32_t group, uint32_t slot,
                                       const kvrm_segment** segments, uint32_t* num_segments);
/* [*] Its row of the dense table: entry i is the page of places [i * page_tokens, ...), 0 where no
 * page is held. Until the next commit. */
KVRM_API kvrm_status kvrm_get_pages(const kvrm_runtime* runtime, uint32_t group, uint32_t slot,
                                    const uint32_t** pages, uint32_t* num_pages);
/* [*] Copies within the pool that the last frame needs before it runs (copy-on-write), in order.
 * To be called for every epoch, and carried out before the next commit and its step_done whether
 * the decoder runs, failed, or the epoch is given up: trimming the sequence later does not undo
 * them. Until the next commit. */
KVRM_API kvrm_status kvrm_get_page_copies(const kvrm_runtime* runtime, const kvrm_train** trains,
                                          uint32_t* num_trains);

/* ---- windows: INVALID without KVRM_CONFIG_WINDOWS. Trains are valid until the next call here. */

/* [*] The windows of `group` as they are used, and how many bytes the host has to provide. */
KVRM_API kvrm_status kvrm_get_window(const kvrm_runtime* runtime, uint32_t group,
                                     kvrm_window_config* out, uint64_t* bytes);
/* [*] Tells where the windows of `group` lie, for kvrm_run_trains. The memory stays the caller's
 * and must outlive its use. */
KVRM_API kvrm_status kvrm_bind_window(kvrm_runtime* runtime, uint32_t group, void* base,
                                      uint64_t bytes);
/* [-] Copies that the last frame needs before it runs, after its page copies: pool -> window, and
 * with publish_age_steps > 0 also window -> pool (KVRM_COPY_PUBLISH), of rows that have to leave.
 * Asked again before the acknowledge it gives the former again, but not the latter: those are to
 * be carried out also when the epoch is given up. */
KVRM_API kvrm_status kvrm_window_plan(kvrm_runtime* runtime, const kvrm_train** trains,
                                      uint32_t* num_trains);
/* [-] The decoder has run the last frame, `epoch`, and its windows hold the rows. Returns copies
 * window -> pool that are due now; carry them out before the next commit. An epoch that was not
 * acknowledged is taken not to have run: trim its places. One without rows needs neither call,
 * but with publish_age_steps > 0 the plan. */
KVRM_API kvrm_status kvrm_window_acknowledge(kvrm_runtime* runtime, uint64_t epoch,
                                             const kvrm_train** trains, uint32_t* num_trains);
/* [*] Copies window -> pool of `seq` that still wait (publish_age_steps > 0). To be called, and
 * carried out, before alias from it and before prefix_index of it; those answer INVALID else. Rows
 * whose pages a commit dropped wait no longer, whether its plan was asked for or not. */
KVRM_API kvrm_status kvrm_window_publish(kvrm_runtime* runtime, kvrm_seq seq,
                                         const kvrm_train** trains, uint32_t* num_trains);
/* [*] Places of (group, slot) that its window holds: [first, end). */
KVRM_API kvrm_status kvrm_window_resident(const kvrm_runtime* runtime, uint32_t group,
                                          uint32_t slot, uint32_t* first_token,
                                          uint32_t* end_token);

/* ---- copies */

/* [*] Carries trains out over host memory, in order: the pool's own, and bound windows. INVALID,
 * and nothing copied, when one leaves its space. A device host reads the trains instead. */
KVRM_API kvrm_status kvrm_run_trains(kvrm_runtime* runtime, const kvrm_train* trains,
                                     uint32_t num_trains);
/* [-] Measures this machine's copies for some milliseconds and sets tau to the smallest train that
 * reaches 90 % of the fastest; `*train_bytes` may be NULL. */
KVRM_API kvrm_status kvrm_calibrate_trains(kvrm_runtime* runtime, uint64_t* train_bytes);

/* ---- looks: [*]; cost O(1) but for validate and dump, which read everything */

/* Requires: out->size. */
KVRM_API kvrm_status kvrm_get_sequence(const kvrm_runtime* runtime, kvrm_seq seq,
                                       kvrm_sequence_info* out);
/* Pages of `seq` in the edited state, from page index `*first_page` on; 0 where none is held. Until
 * the next edit. */
KVRM_API kvrm_status kvrm_get_sequence_pages(const kvrm_runtime* runtime, kvrm_seq seq,
                                             uint32_t group, const uint32_t** pages,
                                             uint32_t* num_pages, uint32_t* first_page);
KVRM_API kvrm_status kvrm_get_room(const kvrm_runtime* runtime, kvrm_room* out);
KVRM_API kvrm_status kvrm_get_books(const kvrm_runtime* runtime, uint32_t group, kvrm_books* out);
KVRM_API kvrm_status kvrm_get_counters(const kvrm_runtime* runtime, kvrm_counters* out);
KVRM_API kvrm_status kvrm_get_copy_counters(const kvrm_runtime* runtime, kvrm_copy_counters* out);
/* Every violation of the invariants of pager and frame, one a line, and their number (0 = sound).
 * Texts: at most `capacity` bytes with the final 0 are written to `text` (NULL if capacity is 0);
 * `*needed` (may be NULL) is what all of it takes. */
KVRM_API kvrm_status kvrm_validate(const kvrm_runtime* runtime, char* text, size_t capacity,
                                   size_t* needed, uint32_t* num_violations);
/* The last frame as text: a row, slot and segment a line. Ranges are half open: "pages 18..19" is
 * page 18. */
KVRM_API kvrm_status kvrm_dump(const kvrm_runtime* runtime, char* text, size_t capacity,
                               size_t* needed);

#ifdef __cplusplus
}
#endif

#endif /* KVRM_KVRM_H */
