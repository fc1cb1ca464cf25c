// Windows, and the copies that keep them: plan, acknowledge, publish, and carrying trains out.
#include "capi/boundary.h"
#include "capi/versioned.h"

using namespace kvrm;

namespace {

kvrm_status CheckWindows(const kvrm_runtime& r) {
  if (r.windows != nullptr) return KVRM_OK;
  return r.error.Set(KVRM_INVALID, "the runtime was made without KVRM_CONFIG_WINDOWS");
}

// Of the calls that return trains of windows.
kvrm_status CheckTrainCall(const kvrm_runtime& r, const kvrm_train** trains,
                           const uint32_t* num_trains) {
  if (trains == nullptr || num_trains == nullptr) return NullOutput(r, "an output");
  return CheckWindows(r);
}

void Return(std::span<const Train> from, const kvrm_train** trains, uint32_t* num_trains) {
  *trains = reinterpret_cast<const kvrm_train*>(from.data());
  *num_trains = static_cast<uint32_t>(from.size());
}

// Bytes of a space that trains may name; 0 = nothing is known of it.
uint64_t SpaceBytes(const kvrm_runtime& r, kvrm_space space) {
  if (space.kv_group >= r.num_groups()) return 0;
  switch (space.kind) {
    case KVRM_SPACE_POOL:
      return r.pager->range_bytes(space.kv_group);
    case KVRM_SPACE_WINDOW:
      return r.window_bytes[space.kv_group];
    default:
      return 0;
  }
}

bool Inside(uint64_t offset, uint64_t bytes, uint64_t limit) {
  return bytes <= limit && offset <= limit - bytes;
}

const char* WhyRefused(const kvrm_runtime& r, const kvrm_train& train) {
  if (train.bytes == 0) return "is empty";
  if (train.cause >= KVRM_NUM_COPY_CAUSES) return "has a cause that is not known";
  if (!Inside(train.source_offset, train.bytes, SpaceBytes(r, train.source))) {
    return "reads outside its space, or of one that is not bound";
  }
  if (!Inside(train.destination_offset, train.bytes, SpaceBytes(r, train.destination))) {
    return "writes outside its space, or to one that is not bound";
  }
  const bool same_space = train.source.kind == train.destination.kind &&
                          train.source.kv_group == train.destination.kv_group;
  const uint64_t apart = train.source_offset > train.destination_offset
                             ? train.source_offset - train.destination_offset
                             : train.destination_offset - train.source_offset;
  return same_space && apart < train.bytes ? "overlaps itself" : nullptr;
}

}  // namespace

kvrm_status kvrm_get_window(const kvrm_runtime* runtime, uint32_t group, kvrm_window_config* out,
                            uint64_t* bytes) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (out == nullptr || bytes == nullptr) return NullOutput(r, "an output");
    kvrm_status status = CheckWindows(r);
    if (status == KVRM_OK) status = CheckGroupIndex(r, group);
    if (status != KVRM_OK) return status;
    const WindowGeometry::Group& window = r.setup.windows.groups[group];
    kvrm_window_config config = {};
    config.window_tokens = window.window_tokens;
    config.slot_stride_bytes = window.slot_stride_bytes;
    config.part_stride_bytes = window.part_stride_bytes;
    if (const char* refused = WriteVersioned(out, config)) {
      return r.error.Set(KVRM_INVALID, "out.size: %s", refused);
    }
    *bytes = r.windows->window_bytes(group);
    return KVRM_OK;
  });
}

kvrm_status kvrm_bind_window(kvrm_runtime* runtime, uint32_t group, void* base, uint64_t bytes) {
  return Call(runtime, When::kAnyTime, [&](kvrm_runtime& r) -> kvrm_status {
    if (base == nullptr) return NullOutput(r, "base");
    kvrm_status status = CheckWindows(r);
    if (status == KVRM_OK) status = CheckGroupIndex(r, group);
    if (status != KVRM_OK) return status;
    const uint64_t needed = r.windows->window_bytes(group);
    if (bytes < needed) {
      return r.error.Set(KVRM_INVALID, "bytes: %llu, the windows of group %u take %llu",
                         static_cast<unsigned long long>(bytes), group,
                         static_cast<unsigned long long>(needed));
    }
    r.copy_engine.Bind({CopySpaceKind::kWindow, static_cast<uint8_t>(group)},
                       static_cast<std::byte*>(base), bytes);
    r.window_bytes[group] = bytes;
    return KVRM_OK;
  });
}

kvrm_status kvrm_window_plan(kvrm_runtime* runtime, const kvrm_train** trains,
                             uint32_t* num_trains) {
  return Call(runtime, When::kBetweenSteps, [&](kvrm_runtime& r) -> kvrm_status {
    if (const kvrm_status status = CheckTrainCall(r, trains, num_trains); status != KVRM_OK) {
      return status;
    }
    if (r.epoch == 0) return r.error.Set(KVRM_INVALID, "no epoch was committed");
    if (r.acknowledged) return r.error.Set(KVRM_INVALID, "the last epoch is acknowledged already");
    Return(r.planned ? r.windows->Plan(r.view) : r.plan, trains, num_trains);
    r.planned = true;
    return KVRM_OK;
  });
}

kvrm_status kvrm_window_acknowledge(kvrm_runtime* runtime, uint64_t epoch,
                                    const kvrm_train** trains, uint32_t* num_trains) {
  return Call(runtime, When::kBetweenSteps, [&](kvrm_runtime& r) -> kvrm_status {
    if (const kvrm_status status = CheckTrainCall(r, trains, num_trains); status != KVRM_OK) {
      return status;
    }
    if (epoch != r.epoch || !r.planned || r.acknowledged) {
      return r.error.Set(KVRM_INVALID, "epoch: %llu is not planned, or acknowledged already",
                         static_cast<unsigned long long>(epoch));
    }
    Return(r.windows->Acknowledge(epoch), trains, num_trains);
    for (uint32_t i = 0; i < r.view.head->num_slots; ++i) {
      SequenceLedger::Sequence& sequence = r.ledger.at(r.view.slots[i].slot);
      sequence.computed = sequence.new_from;
      sequence.publish_waits = r.setup.windows.publish_age_steps > 0;
    }
    r.acknowledged = true;
    return KVRM_OK;
  });
}

kvrm_status kvrm_window_publish(kvrm_runtime* runtime, kvrm_seq seq, const kvrm_train** trains,
                                uint32_t* num_trains) {
  return Call(runtime, When::kAnyTime, [&](kvrm_runtime& r) -> kvrm_status {
    if (const kvrm_status status = CheckTrainCall(r, trains, num_trains); status != KVRM_OK) {
      return status;
    }
    SequenceLedger::Sequence* sequence = FindOpen(r, "seq", seq);
    if (sequence == nullptr) return KVRM_INVALID;
    Return(r.windows->Publish(r.pager->slot(SeqId{seq})), trains, num_trains);
    sequence->publish_waits = false;
    return KVRM_OK;
  });
}

kvrm_status kvrm_window_resident(const kvrm_runtime* runtime, uint32_t group, uint32_t slot,
                                 uint32_t* first_token, uint32_t* end_token) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (first_token == nullptr || end_token == nullptr) return NullOutput(r, "an output");
    kvrm_status status = CheckWindows(r);
    if (status == KVRM_OK) status = CheckGroupIndex(r, group);
    if (status != KVRM_OK) return status;
    if (slot >= r.setup.pager.max_slots) {
      return r.error.Set(KVRM_INVALID, "slot: %u, there are %u", slot, r.setup.pager.max_slots);
    }
    const WindowResidency::Resident resident =
        r.windows->resident(group, SlotId{static_cast<uint16_t>(slot)});
    *first_token = resident.first_token;
    *end_token = resident.end_token;
    return KVRM_OK;
  });
}

kvrm_status kvrm_run_trains(kvrm_runtime* runtime, const kvrm_train* trains, uint32_t num_trains) {
  return Call(runtime, When::kAnyTime, [&](kvrm_runtime& r) -> kvrm_status {
    if (num_trains == 0) return KVRM_OK;
    if (trains == nullptr) return NullOutput(r, "trains");
    for (uint32_t i = 0; i < num_trains; ++i) {
      const char* refused = WhyRefused(r, trains[i]);
      if (refused != nullptr) return r.error.Set(KVRM_INVALID, "trains[%u] %s", i, refused);
    }
    r.copy_engine.Run({reinterpret_cast<const Train*>(trains), num_trains});
    return KVRM_OK;
  });
}

kvrm_status kvrm_calibrate_trains(kvrm_runtime* runtime, uint64_t* train_bytes) {
  return Call(runtime, When::kBetweenSteps, [&](kvrm_runtime& r) -> kvrm_status {
    const TauCalibration calibration = CalibrateTau();
    r.page_copies.set_tau_bytes(calibration.tau_bytes);
    if (r.windows != nullptr) r.windows->set_tau_bytes(calibration.tau_bytes);
    if (train_bytes != nullptr) *train_bytes = calibration.tau_bytes;
    return KVRM_OK;
  });
}
