// The third export of the frame: the *window plan*, for executors that cannot read pages in place
// (an NPU, an ONNX static cache, any decoder with dense arrays [slot][window]). It knows what each
// window holds and says which copies bring it up to date for a frame, and which copies bring what
// the executor then wrote back into the pool.
//
// Window of (KV group g, part p, slot s), token-major; the host owns the memory:
//     address = base(g) + p * part_stride_bytes + s * slot_stride_bytes + place * token_bytes
//     place   = token                        full group: window_tokens >= the longest sequence
//             = token % window_tokens        sliding group: a ring, window_tokens >= the model's
//             window
//                                            + most rows of one sequence in one step, rounded up to
//                                            pages
// token_bytes = part_page_bytes / page_tokens: pages that go to windows are token-major too, so
// that a run of adjacent pages is one piece per part.
//
// One step of a gathered executor:
//     frame = Publish(...)                  the executor's rows will write places kv_index
//     Plan(frame, page_copies)              pool -> window: aliased, adopted, forked or resumed
//                     -> stage copies       places; with the step's own page copies among them
//     ... run the copies, run the decoder: it writes each row's K and V into its window ...
//     Acknowledge(e)  -> publish copies     window -> pool: the rows of this step, merged over
//     steps
// Until a plan is acknowledged the windows are taken to hold what they held before: a step that
// failed is planned again.
//
// Not copied: what a window holds already. A copied page (copy-on-write) replaces its table entry,
// not the contents: no copy. A truncated sequence keeps its places. A slot that another sequence
// takes starts empty.
//
// Thread class: engine-thread-only. Never allocates after Create, but where one step needs more
// than 2 * kMaxPending copies. Cost: rows, slots and deltas of the frame, plus the pages that have
// to be copied; pages that are given to a slot without rows for them are looked up among the slots
// whose rows wait.
//
// Invariants (ids recur in code and tests):
//   WINDOW-1  after the stage copies of epoch e, each visible place of each slot with rows that no
//             row of e writes holds the bytes that the pool's page holds (or will, once published).
//             Holes are not visible.
//   WINDOW-2  a place is staged only when it is not resident: in steady decode a plan is empty.
//   WINDOW-3  before a page is shared, copied or left behind for good, its rows are published:
//             publish copies of a slot are due when Publish(slot) is called, when a frame gives one
//             of its pages to another slot, when one of them is the source of a page copy, when a
//             ring is about to overwrite them, and once they make a train of tau bytes; they are
//             cancelled for pages that it trims.
//   WINDOW-4  an unacknowledged plan makes nothing resident. Publish and page copies that were
//             handed out are taken as made: their bytes do not depend on the step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/kv_view.h"
#include "base/result.h"
#include "frame/frame.h"
#include "pager/pager.h"
#include "transport/descriptor.h"

namespace kvrm {

struct WindowGeometry {
  struct Group {
    uint32_t window_tokens = 0;      // a multiple of page_tokens
    uint64_t slot_stride_bytes = 0;  // >= window_tokens * token_bytes
    uint64_t part_stride_bytes =
        0;  // >= max_slots * slot_stride_bytes, or slots and parts the other
            // way round: any strides under which no two windows overlap
  };
  std::vector<Group> groups;  // [KvGeometry::groups]
  // What the windows are held to at Create; 0 = not known there: then WINDOW-1 says it of a frame.
  uint32_t max_seq_tokens = 0;    // the longest sequence: a full group's window holds all of it
  uint32_t max_step_tokens = 0;   // most places that the rows of one sequence span in a step
  uint8_t publish_age_steps = 0;  // delta of publish copies: 0 = each step's rows at once
};

class WindowResidency {
 public:
  static Result<std::unique_ptr<WindowResidency>> Create(const KvGeometry& geometry,
                                                         const WindowGeometry& windows,
                                                         uint32_t max_slots, uint32_t max_pages);
  ~WindowResidency();

  // The copies that `frame` needs before it runs, in the order in which they must be run: rows that
  // wait and are about to be shared, the step's copy-on-write, then what windows lack. Planning the
  // same epoch again, after a step that failed, gives its stage copies again; the others are made
  // once, for the failed step may have written over what they read. Valid until the next Plan.
  // `page_copies` are Pager::page_copies() of the step: the plan makes them. A host that makes them
  // itself, before Plan, passes none and must have called Publish for each slot that it aliased.
  // Until it is called, tables are those of the frame before: a host that lets Publish(slot) follow
  // a commit plans first, so that no row goes to a page that the commit gave away. Requires: epochs
  // in order, without gaps; the last one acknowledged, or given up: then none of its rows counts as
  // written. Rows that write stand at the end of their sequence: what stood past them is void.
  std::span<const Train> Plan(const FrameView& frame,
                              std::span<const Pager::PageCopy> page_copies = {});
  // The executor has run the planned epoch: windows hold it. Returns the copies that are due now,
  // valid until the next call; none when it was acknowledged before. Requires: before the next
  // frame but one is published.
  std::span<const Train> Acknowledge(uint64_t epoch);
  // Publish copies of `slot` that wait become due: the trains, to be run at once; valid until the
  // next call. Hosts call it before they index the sequence's pages (IndexPrefix) or close it with
  // pages that are to be kept.
  std::span<const Train> Publish(SlotId slot);

  // False once a call failed half way (a check under a CheckTrap, or an allocation): the rest is
  // undefined. A frame that Plan refuses (WINDOW-1, an epoch out of order) changes nothing.
  bool sound() const;
  // Bytes of the windows of one group, by its strides: what the host must allocate.
  uint64_t window_bytes(uint32_t group) const;
  // Token places of (group, slot) that its window holds: [first, end).
  struct Resident {
    uint32_t first_token = 0;
    uint32_t end_token = 0;
  };
  Resident resident(uint32_t group, SlotId slot) const;
  void set_tau_bytes(uint64_t tau_bytes);
  const CopyCounters& counters() const;

 private:
  struct State;
  explicit WindowResidency(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvrm
