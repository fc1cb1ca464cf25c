// Making and ending a runtime, and the calls that need none.
#include "capi/runtime.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/superblock.h"
#include "capi/boundary.h"
#include "capi/versioned.h"

using namespace kvrm;

namespace kvrm {

ErrorText& ThreadError() {
  static thread_local ErrorText error;
  return error;
}

kvrm_status AfterFault(const kvrm_runtime& runtime, kvrm_status status, const char* what) {
  if (!runtime.publishing && runtime.Sound()) {
    return runtime.error.Set(status, "refused by a check inside: %s", what);
  }
  runtime.broken = true;
  return runtime.error.Set(KVRM_BROKEN, "the runtime is broken: %s", what);
}

}  // namespace kvrm

namespace {

// The pager names its own structs; its caller knows a kvrm_config.
Result<std::unique_ptr<Pager>> CreatePager(const PagerConfig& config) {
  Result<std::unique_ptr<Pager>> pager = Pager::Create(config);
  constexpr std::string_view kInner = "geometry.";
  if (pager || pager.error().message.rfind(kInner, 0) != 0) return pager;
  return Error{pager.error().kind, pager.error().message.substr(kInner.size())};
}

Result<std::unique_ptr<kvrm_runtime>> CreateRuntime(const kvrm_config* config) {
  KVRM_ASSIGN_OR_RETURN(RuntimeSetup setup, ReadConfig(config));
  KVRM_ASSIGN_OR_RETURN(auto pager, CreatePager(setup.pager));
  KVRM_RETURN_IF_ERROR(CheckPrefixIndex(setup.pager));
  KVRM_ASSIGN_OR_RETURN(auto frames, FrameBuilder::Create(setup.pager.geometry, setup.capacity));
  std::unique_ptr<WindowResidency> windows;
  if (setup.has_windows) {
    KVRM_RETURN_IF_ERROR(ReadWindows(config, setup));
    KVRM_ASSIGN_OR_RETURN(
        windows, WindowResidency::Create(setup.pager.geometry, setup.windows, setup.pager.max_slots,
                                         setup.capacity.max_pages));
    windows->set_tau_bytes(setup.train_bytes);
  }
  return std::make_unique<kvrm_runtime>(std::move(setup), std::move(pager), std::move(frames),
                                        std::move(windows));
}

// As Call(), for what needs no runtime.
template <class Body>
kvrm_status CallWithout(const Body& body) {
  CheckTrap trap;
  try {
    return body();
  } catch (const CheckFailure& failure) {
    return ThreadError().Set(KVRM_INVALID, "refused by a check inside: %s", failure.text);
  } catch (const std::bad_alloc&) {
    return ThreadError().Set(KVRM_NO_ROOM, "no memory");
  } catch (...) {  // std::length_error of a container: a size that no memory has
    return ThreadError().Set(KVRM_NO_ROOM, "a size is beyond what memory can hold");
  }
}

}  // namespace

kvrm_runtime::kvrm_runtime(RuntimeSetup complete_setup, std::unique_ptr<Pager> owned_pager,
                           std::unique_ptr<FrameBuilder> owned_frames,
                           std::unique_ptr<WindowResidency> owned_windows)
    : setup(std::move(complete_setup)),
      pager(std::move(owned_pager)),
      frames(std::move(owned_frames)),
      windows(std::move(owned_windows)),
      page_copies(setup.train_bytes),
      ledger(setup.pager.max_slots) {
  for (uint32_t g = 0; g < num_groups(); ++g) {
    copy_engine.Bind({CopySpaceKind::kPool, static_cast<uint8_t>(g)}, pager->base(g),
                     pager->range_bytes(g));
  }
  row_inputs.reserve(setup.capacity.max_rows);
  rows.reserve(setup.capacity.max_rows);
  slot_heads.reserve(setup.capacity.max_slots);
}

bool kvrm_runtime::Sound() const {
  try {
    if (windows != nullptr && !windows->sound()) return false;
    const PagerSnapshot snapshot = pager->Snapshot();
    if (!Validate(snapshot).empty()) return false;
    // A verb may have been done beneath and failed here: then the ledger does not know of it.
    const std::vector<PagerSnapshot::Sequence>& sequences = snapshot.groups[0].sequences;
    if (sequences.size() != ledger.num_open()) return false;
    for (const PagerSnapshot::Sequence& each : sequences) {
      const SequenceLedger::Sequence* known = ledger.Find(each.seq_id);
      if (known == nullptr || known->new_from > each.num_tokens) return false;
    }
    return view.head == nullptr || ValidateFrame(geometry(), view, nullptr).empty();
  } catch (...) {  // what cannot even be looked at is not sound
    return false;
  }
}

uint32_t kvrm_version(void) {
  return KVRM_VERSION_MAJOR << 16 | KVRM_VERSION_MINOR << 8 | KVRM_VERSION_PATCH;
}

const char* kvrm_status_name(kvrm_status status) {
  switch (status) {
    case KVRM_OK:
      return "OK";
    case KVRM_DEFERRED:
      return "DEFERRED";
    case KVRM_UNSERVICEABLE:
      return "UNSERVICEABLE";
    case KVRM_INVALID:
      return "INVALID";
    case KVRM_NO_ROOM:
      return "NO_ROOM";
    case KVRM_UNSUPPORTED:
      return "UNSUPPORTED";
    case KVRM_IO:
      return "IO";
    case KVRM_BROKEN:
      return "BROKEN";
    default:
      return "UNKNOWN";
  }
}

const char* kvrm_last_error(const kvrm_runtime* runtime) {
  return runtime == nullptr ? ThreadError().text() : runtime->error.text();
}

kvrm_status kvrm_apply_superblock_rule(kvrm_group_config* group) {
  return CallWithout([&]() -> kvrm_status {
    if (group == nullptr) return ThreadError().Set(KVRM_INVALID, "group is NULL");
    kvrm_group_config config;
    if (const char* refused = ReadVersioned(group, config)) {
      return ThreadError().Set(KVRM_INVALID, "group.size: %u, %s", group->size, refused);
    }
    if (group->size < sizeof config) {
      return ThreadError().Set(KVRM_INVALID, "group.size: %u, has no room for the answer",
                               group->size);
    }
    Result<SuperblockChoice> choice = ChooseSuperblock(config.num_parts, config.part_page_bytes);
    if (!choice) return ThreadError().Set(choice.error());
    group->superblock_bytes = choice->superblock_bytes;
    group->pages_per_superblock = choice->pages_per_superblock;
    return KVRM_OK;
  });
}

kvrm_status kvrm_create(const kvrm_config* config, kvrm_runtime** out) {
  return CallWithout([&]() -> kvrm_status {
    if (out == nullptr) return ThreadError().Set(KVRM_INVALID, "out is NULL");
    Result<std::unique_ptr<kvrm_runtime>> runtime = CreateRuntime(config);
    if (!runtime) return ThreadError().Set(runtime.error());
    *out = runtime.value().release();
    return KVRM_OK;
  });
}

void kvrm_destroy(kvrm_runtime* runtime) { delete runtime; }
