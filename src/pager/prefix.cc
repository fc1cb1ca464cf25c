// The prefix index, seen from the pager. Until it is built, nothing is entered and nothing found.
#include "pager/pager_state.h"

namespace kvrm {

uint32_t Pager::IndexPrefix(SeqId seq, PrefixSalt /*salt*/, std::span<const TokenId> /*tokens*/) {
  (void)state_->Find(seq);
  return 0;
}

uint32_t Pager::MatchPrefix(PrefixSalt /*salt*/, std::span<const TokenId> /*tokens*/) { return 0; }

Reservation Pager::AdoptPrefix(SeqId dst, PrefixSalt /*salt*/, std::span<const TokenId> /*tokens*/,
                               uint32_t num_tokens) {
  (void)state_->FindForEdit(dst);
  return {num_tokens == 0 ? ReserveStatus::kOk : ReserveStatus::kUnserviceable, 0};
}

void Pager::ClearPrefixIndex() {}

uint32_t Pager::State::ForgetPage(uint32_t /*group*/, PageId /*page*/) { return 0; }

void Pager::State::RecallPage(uint32_t /*group*/, PageId /*page*/, uint32_t /*memo*/) {}

}  // namespace kvrm
