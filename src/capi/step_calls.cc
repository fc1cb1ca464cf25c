// The calls that edit: a step, its sequences and its savepoints.
#include "capi/boundary.h"

using namespace kvrm;

namespace {

kvrm_status StatusOf(const kvrm_runtime& runtime, const Reservation& reservation,
                     const char* unserviceable) {
  switch (reservation.status) {
    case ReserveStatus::kOk:
      return KVRM_OK;
    case ReserveStatus::kDeferred:
      return runtime.error.Set(KVRM_DEFERRED, "%u pages are missing now",
                               reservation.missing_pages);
    case ReserveStatus::kUnserviceable:
      return runtime.error.Set(KVRM_UNSERVICEABLE, "%s", unserviceable);
  }
  return KVRM_BROKEN;
}

// Rows that wait in a window may have to leave it for the last epoch's rows: the plan says so,
// once, and takes them for published.
kvrm_status CheckPlanAsked(const kvrm_runtime& runtime) {
  const bool rows_wait = runtime.windows != nullptr && runtime.setup.windows.publish_age_steps > 0;
  if (!rows_wait || runtime.epoch == 0 || runtime.planned) return KVRM_OK;
  if (runtime.view.head->num_rows == 0 && runtime.plan.empty()) return KVRM_OK;
  return runtime.error.Set(KVRM_INVALID,
                           "epoch %llu has a window plan that nobody asked for: carry out "
                           "kvrm_window_plan first, also when the epoch is given up",
                           static_cast<unsigned long long>(runtime.epoch));
}

// Of a sequence that can never be so long.
kvrm_status TooLong(const kvrm_runtime& runtime, uint32_t num_tokens) {
  const uint32_t most = runtime.setup.pager.max_seq_tokens;
  if (num_tokens > most) {
    return runtime.error.Set(KVRM_UNSERVICEABLE, "num_tokens: %u, max_seq_tokens is %u", num_tokens,
                             most);
  }
  return runtime.error.Set(
      KVRM_UNSERVICEABLE, "num_tokens: %u, kv_bytes hold %llu places of one sequence at most",
      num_tokens, static_cast<unsigned long long>(runtime.pager->max_tokens()));
}

// Of a sequence that alias or adopt is about to fill.
kvrm_status CheckEmpty(const kvrm_runtime& runtime, kvrm_seq seq) {
  if (runtime.pager->num_tokens(SeqId{seq}) == 0) return KVRM_OK;
  return runtime.error.Set(KVRM_INVALID, "sequence %u is not empty", seq);
}

}  // namespace

kvrm_status kvrm_begin_step(kvrm_runtime* runtime) {
  return Call(runtime, When::kBetweenSteps, [](kvrm_runtime& r) -> kvrm_status {
    if (const kvrm_status status = CheckPlanAsked(r); status != KVRM_OK) return status;
    r.pager->BeginStep();
    r.ledger.BeginStep();
    r.in_step = true;
    return KVRM_OK;
  });
}

kvrm_status kvrm_open(kvrm_runtime* runtime, kvrm_seq* out) {
  return Call(runtime, When::kInStep, [&](kvrm_runtime& r) -> kvrm_status {
    if (out == nullptr) return NullOutput(r, "out");
    const std::optional<SeqId> seq = r.pager->Open();
    if (!seq) return r.error.Set(KVRM_DEFERRED, "all %u slots run", r.setup.pager.max_slots);
    r.ledger.Open(seq->value);
    *out = seq->value;
    return KVRM_OK;
  });
}

kvrm_status kvrm_close(kvrm_runtime* runtime, kvrm_seq seq) {
  return Call(runtime, When::kInStep, [&](kvrm_runtime& r) -> kvrm_status {
    SequenceLedger::Sequence* sequence = FindOpen(r, "seq", seq);
    if (sequence == nullptr) return KVRM_INVALID;
    r.pager->Close(SeqId{seq});
    r.ledger.Close(*sequence);
    return KVRM_OK;
  });
}

kvrm_status kvrm_reserve(kvrm_runtime* runtime, kvrm_seq seq, uint32_t num_tokens,
                         uint32_t hint_tokens, uint32_t* missing_pages) {
  return Call(runtime, When::kInStep, [&](kvrm_runtime& r) -> kvrm_status {
    SequenceLedger::Sequence* sequence = FindOpen(r, "seq", seq);
    if (sequence == nullptr) return KVRM_INVALID;
    const uint32_t most = r.setup.pager.max_step_tokens;
    if (num_tokens > sequence->new_from && num_tokens - sequence->new_from > most &&
        num_tokens <= r.setup.pager.max_seq_tokens) {
      return r.error.Set(KVRM_INVALID, "num_tokens: %u adds %u places, max_step_tokens is %u",
                         num_tokens, num_tokens - sequence->new_from, most);
    }
    r.ledger.Touch(*sequence);
    const uint32_t hint = hint_tokens < num_tokens ? 0 : hint_tokens;
    const Reservation reservation = r.pager->Reserve(SeqId{seq}, num_tokens, hint);
    if (reservation.status == ReserveStatus::kDeferred && missing_pages != nullptr) {
      *missing_pages = reservation.missing_pages;
    }
    if (reservation.status == ReserveStatus::kUnserviceable) return TooLong(r, num_tokens);
    return StatusOf(r, reservation, "");
  });
}

kvrm_status kvrm_alias(kvrm_runtime* runtime, kvrm_seq dst, kvrm_seq src, uint32_t num_tokens) {
  return Call(runtime, When::kInStep, [&](kvrm_runtime& r) -> kvrm_status {
    SequenceLedger::Sequence* to = FindOpen(r, "dst", dst);
    if (to == nullptr) return KVRM_INVALID;
    const SequenceLedger::Sequence* from = FindOpen(r, "src", src);
    if (from == nullptr) return KVRM_INVALID;
    if (const kvrm_status status = CheckEmpty(r, dst); status != KVRM_OK) return status;
    if (num_tokens > from->new_from || num_tokens > from->computed) {
      return r.error.Set(KVRM_INVALID, "num_tokens: %u, of src only %u places are written",
                         num_tokens, std::min(from->new_from, from->computed));
    }
    if (from->publish_waits) {
      return r.error.Set(KVRM_INVALID, "rows of src wait in its window: kvrm_window_publish first");
    }
    const Reservation reservation = r.pager->Alias(SeqId{dst}, SeqId{src}, num_tokens);
    if (reservation.status == ReserveStatus::kOk) {
      r.ledger.Touch(*to);
      to->new_from = to->computed = num_tokens;
    }
    return StatusOf(r, reservation, "places of src have slid out or were trimmed");
  });
}

kvrm_status kvrm_trim(kvrm_runtime* runtime, kvrm_seq seq, uint32_t from_token) {
  return Call(runtime, When::kInStep, [&](kvrm_runtime& r) -> kvrm_status {
    SequenceLedger::Sequence* sequence = FindOpen(r, "seq", seq);
    if (sequence == nullptr) return KVRM_INVALID;
    if (!r.pager->CanTrim(SeqId{seq}, from_token)) {
      return r.error.Set(KVRM_UNSERVICEABLE, "what place %u sees, or its page, is gone",
                         from_token);
    }
    r.pager->Trim(SeqId{seq}, from_token);
    r.ledger.Touch(*sequence);
    sequence->new_from = std::min(sequence->new_from, from_token);
    sequence->computed = std::min(sequence->computed, from_token);
    return KVRM_OK;
  });
}

kvrm_status kvrm_can_trim(const kvrm_runtime* runtime, kvrm_seq seq, uint32_t from_token,
                          uint32_t* yes) {
  return Call(runtime, When::kAnyTime, [&](const kvrm_runtime& r) -> kvrm_status {
    if (yes == nullptr) return NullOutput(r, "yes");
    if (FindOpen(r, "seq", seq) == nullptr) return KVRM_INVALID;
    *yes = r.pager->CanTrim(SeqId{seq}, from_token) ? 1 : 0;
    return KVRM_OK;
  });
}

kvrm_status kvrm_trim_pages(kvrm_runtime* runtime, kvrm_seq seq, uint32_t group,
                            uint32_t begin_token, uint32_t end_token) {
  return Call(runtime, When::kInStep, [&](kvrm_runtime& r) -> kvrm_status {
    SequenceLedger::Sequence* sequence = FindOpen(r, "seq", seq);
    if (sequence == nullptr) return KVRM_INVALID;
    if (const kvrm_status status = CheckGroupIndex(r, group); status != KVRM_OK) return status;
    if (r.geometry().groups[group].kind != KvGroupKind::kFull) {
      return r.error.Set(KVRM_INVALID, "group: %u slides by itself", group);
    }
    if (begin_token > end_token || end_token > sequence->new_from) {
      return r.error.Set(KVRM_INVALID, "places [%u, %u), must lie in [0, %u)", begin_token,
                         end_token, sequence->new_from);
    }
    r.ledger.Touch(*sequence);
    r.pager->TrimPages(SeqId{seq}, group, begin_token, end_token);
    return KVRM_OK;
  });
}

kvrm_status kvrm_mark(kvrm_runtime* runtime, kvrm_seq seq, uint64_t* savepoint) {
  return Call(runtime, When::kInStep, [&](kvrm_runtime& r) -> kvrm_status {
    if (savepoint == nullptr) return NullOutput(r, "savepoint");
    SequenceLedger::Sequence* sequence = FindOpen(r, "seq", seq);
    if (sequence == nullptr) return KVRM_INVALID;
    if (!r.ledger.CanMark()) return r.error.Set(KVRM_NO_ROOM, "too many savepoints in one step");
    *savepoint = r.ledger.AddMark(r.pager->Mark(SeqId{seq}), *sequence);
    return KVRM_OK;
  });
}

kvrm_status kvrm_rollback(kvrm_runtime* runtime, uint64_t savepoint) {
  return Call(runtime, When::kInStep, [&](kvrm_runtime& r) -> kvrm_status {
    const SequenceLedger::Mark* mark = r.ledger.FindMark(savepoint);
    if (mark == nullptr) {
      return r.error.Set(KVRM_INVALID, "savepoint: %llu is void, or of another step",
                         static_cast<unsigned long long>(savepoint));
    }
    r.pager->Rollback(mark->savepoint);
    r.ledger.RollbackTo(*mark);
    return KVRM_OK;
  });
}

kvrm_status kvrm_rollback_step(kvrm_runtime* runtime) {
  return Call(runtime, When::kInStep, [](kvrm_runtime& r) -> kvrm_status {
    r.pager->RollbackStep();
    r.ledger.RollbackStep();
    r.in_step = false;
    return KVRM_OK;
  });
}

kvrm_status kvrm_step_done(kvrm_runtime* runtime, uint64_t epoch) {
  return Call(runtime, When::kAnyTime, [&](kvrm_runtime& r) -> kvrm_status {
    if (epoch > r.epoch) {
      return r.error.Set(KVRM_INVALID, "epoch: %llu was not committed, the last is %llu",
                         static_cast<unsigned long long>(epoch),
                         static_cast<unsigned long long>(r.epoch));
    }
    if (epoch == r.epoch) {
      if (const kvrm_status status = CheckCopiesAsked(r); status != KVRM_OK) return status;
    }
    r.pager->StepDone(epoch);
    return KVRM_OK;
  });
}

kvrm_status kvrm_maintain(kvrm_runtime* runtime, uint32_t idle, uint32_t* more) {
  return Call(runtime, When::kBetweenSteps, [&](kvrm_runtime& r) -> kvrm_status {
    const bool done = r.pager->Maintain(idle == 0 ? Pager::Load::kBusy : Pager::Load::kIdle);
    if (more != nullptr) *more = done ? 1 : 0;
    return KVRM_OK;
  });
}

// ---- prefix index

namespace {

kvrm_status CheckTokens(const kvrm_runtime& runtime, const kvrm_salt* salt, const int32_t* tokens,
                        uint32_t num_tokens) {
  if (salt == nullptr) return NullOutput(runtime, "salt");
  if (tokens == nullptr && num_tokens > 0) return NullOutput(runtime, "tokens");
  return KVRM_OK;
}

PrefixSalt SaltOf(const kvrm_salt& salt) { return {salt.tenant, salt.model}; }

}  // namespace

kvrm_status kvrm_prefix_match(kvrm_runtime* runtime, const kvrm_salt* salt, const int32_t* tokens,
                              uint32_t num_tokens, uint32_t* matched_tokens) {
  return Call(runtime, When::kAnyTime, [&](kvrm_runtime& r) -> kvrm_status {
    if (matched_tokens == nullptr) return NullOutput(r, "matched_tokens");
    const kvrm_status status = CheckTokens(r, salt, tokens, num_tokens);
    if (status != KVRM_OK) return status;
    *matched_tokens = r.pager->MatchPrefix(SaltOf(*salt), {tokens, num_tokens});
    return KVRM_OK;
  });
}

kvrm_status kvrm_prefix_adopt(kvrm_runtime* runtime, kvrm_seq seq, const kvrm_salt* salt,
                              const int32_t* tokens, uint32_t num_tokens, uint32_t adopt_tokens) {
  return Call(runtime, When::kInStep, [&](kvrm_runtime& r) -> kvrm_status {
    SequenceLedger::Sequence* sequence = FindOpen(r, "seq", seq);
    if (sequence == nullptr) return KVRM_INVALID;
    kvrm_status status = CheckTokens(r, salt, tokens, num_tokens);
    if (status == KVRM_OK) status = CheckEmpty(r, seq);
    if (status != KVRM_OK) return status;
    if (adopt_tokens > num_tokens) {
      return r.error.Set(KVRM_INVALID, "adopt_tokens: %u, must be at most num_tokens, %u",
                         adopt_tokens, num_tokens);
    }
    const Reservation reservation =
        r.pager->AdoptPrefix(SeqId{seq}, SaltOf(*salt), {tokens, num_tokens}, adopt_tokens);
    if (reservation.status == ReserveStatus::kOk) {
      r.ledger.Touch(*sequence);
      sequence->new_from = sequence->computed = adopt_tokens;
    }
    return StatusOf(r, reservation, "the index does not hold so many places of these tokens");
  });
}

kvrm_status kvrm_prefix_index(kvrm_runtime* runtime, kvrm_seq seq, const kvrm_salt* salt,
                              const int32_t* tokens, uint32_t num_tokens, uint32_t* pages) {
  return Call(runtime, When::kBetweenSteps, [&](kvrm_runtime& r) -> kvrm_status {
    SequenceLedger::Sequence* sequence = FindOpen(r, "seq", seq);
    if (sequence == nullptr) return KVRM_INVALID;
    const kvrm_status status = CheckTokens(r, salt, tokens, num_tokens);
    if (status != KVRM_OK) return status;
    if (num_tokens > sequence->new_from) {
      return r.error.Set(KVRM_INVALID, "num_tokens: %u, the sequence has %u places", num_tokens,
                         sequence->new_from);
    }
    if (sequence->publish_waits) {
      return r.error.Set(KVRM_INVALID, "rows wait in its window: kvrm_window_publish first");
    }
    const uint32_t known = std::min(num_tokens, sequence->computed);
    const uint32_t entered = r.pager->IndexPrefix(SeqId{seq}, SaltOf(*salt), {tokens, known});
    if (pages != nullptr) *pages = entered;
    return KVRM_OK;
  });
}

kvrm_status kvrm_prefix_clear(kvrm_runtime* runtime) {
  return Call(runtime, When::kBetweenSteps, [](kvrm_runtime& r) -> kvrm_status {
    r.pager->ClearPrefixIndex();
    return KVRM_OK;
  });
}
