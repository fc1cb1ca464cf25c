// The boundary of the C ABI: no abort and no exception passes it. Every call that takes a runtime
// runs inside Call(), which refuses what is refused everywhere (a NULL or broken runtime, the wrong
// side of a step) and turns failed checks and failed allocations of what lies beneath into values.
#pragma once

#include <new>

#include "base/check.h"
#include "capi/runtime.h"

namespace kvrm {

enum class When : uint8_t { kAnyTime, kInStep, kBetweenSteps };

// A failed check or allocation left a verb half done: is the runtime still sound? Sound: `status`,
// and it may be used. Else it is broken.
kvrm_status AfterFault(const kvrm_runtime& runtime, kvrm_status status, const char* what);

template <class Runtime, class Body>
kvrm_status Call(Runtime* runtime, When when, const Body& body) {
  if (runtime == nullptr) return ThreadError().Set(KVRM_INVALID, "runtime is NULL");
  if (runtime->broken) return KVRM_BROKEN;  // the text says what broke it
  if (when == When::kInStep && !runtime->in_step) {
    return runtime->error.Set(KVRM_INVALID, "no step is open: call kvrm_begin_step first");
  }
  if (when == When::kBetweenSteps && runtime->in_step) {
    return runtime->error.Set(KVRM_INVALID, "a step is open: commit it or roll it back first");
  }
  CheckTrap trap;
  try {
    return body(*runtime);
  } catch (const CheckFailure& failure) {
    return AfterFault(*runtime, KVRM_INVALID, failure.text);
  } catch (const std::bad_alloc&) {
    return AfterFault(*runtime, KVRM_NO_ROOM, "no memory");
  } catch (...) {
    runtime->broken = true;
    return runtime->error.Set(KVRM_BROKEN, "an exception that nothing here throws");
  }
}

// The open sequence `seq`, or nullptr with the error text set.
template <class Runtime>
auto* FindOpen(Runtime& runtime, const char* name, kvrm_seq seq) {
  auto* sequence = runtime.ledger.Find(seq);
  if (sequence == nullptr) {
    runtime.error.Set(KVRM_INVALID, "%s: no sequence %u is open", name, seq);
  }
  return sequence;
}

inline kvrm_status NullOutput(const kvrm_runtime& runtime, const char* name) {
  return runtime.error.Set(KVRM_INVALID, "%s is NULL", name);
}

// OK, or INVALID: the last epoch's page copies were not even asked for. Its tables name the copies,
// and the next epoch builds on them, whether the executor ran or not; past this point nobody knows
// any more what was to be copied.
inline kvrm_status CheckCopiesAsked(const kvrm_runtime& runtime) {
  if (runtime.copies_asked) return KVRM_OK;
  return runtime.error.Set(KVRM_INVALID,
                           "epoch %llu has page copies that nobody asked for: carry out "
                           "kvrm_get_page_copies first, also when the epoch is given up",
                           static_cast<unsigned long long>(runtime.epoch));
}

// OK, or the INVALID of a group that is out of range.
inline kvrm_status CheckGroupIndex(const kvrm_runtime& runtime, uint32_t group) {
  if (group < runtime.num_groups()) return KVRM_OK;
  return runtime.error.Set(KVRM_INVALID, "group: %u, there are %u", group, runtime.num_groups());
}

}  // namespace kvrm
