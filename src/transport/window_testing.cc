#include "transport/window_testing.h"

#include <cstring>
#include <utility>

namespace kvrm::testing {

WindowRig::WindowRig(const WindowRigConfig& config) : config_(config) {
  PagerConfig pager_config;
  auto& groups = pager_config.geometry.groups;
  groups.push_back(WindowGroup(config.full_page_tokens, 2, 0));
  if (config.sliding_page_tokens > 0) {
    groups.push_back(WindowGroup(config.sliding_page_tokens, 3, config.sliding_window));
  }
  for (const auto& group : groups) {
    pager_config.kv_bytes += config.superblocks * group.superblock_bytes;
  }
  pager_config.max_slots = config.slots;
  pager_config.max_seq_tokens = config.max_seq_tokens;
  pager_config.max_step_tokens = config.max_step_tokens;
  pager_config.scatter_seed = config.scatter_seed;
  pager_config.poison_freed = true;
  pager_ = Pager::Create(pager_config).value();
  const uint32_t max_pages = config.max_seq_tokens / 8 + 1;
  frames_ = FrameBuilder::Create(geometry(), {.max_slots = config.slots,
                                              .max_rows = config.slots * config.max_step_tokens,
                                              .max_pages = max_pages})
                .value();
  MakeWindows(max_pages);
}

bool WindowRig::AddRows(uint32_t id, const std::vector<TokenId>& tokens) {
  Sequence& seq = sequences_[id];
  const uint32_t length = Length(seq) + static_cast<uint32_t>(tokens.size());
  if (pager_->Reserve(SeqId{id}, length).status != ReserveStatus::kOk) return false;
  for (const TokenId token : tokens) Push(seq, token);
  return true;
}

bool WindowRig::Alias(uint32_t dst, uint32_t src, uint32_t tokens) {
  if (pager_->Alias(SeqId{dst}, SeqId{src}, tokens).status != ReserveStatus::kOk) return false;
  Sequence& from = sequences_[src];
  Sequence& to = sequences_[dst];
  to.tokens.assign(from.tokens.begin(), from.tokens.begin() + tokens);
  to.contents.assign(from.contents.begin(), from.contents.begin() + tokens);
  to.first_row = tokens;
  return true;
}

uint32_t WindowRig::Adopt(uint32_t dst, const std::vector<TokenId>& prompt) {
  const uint32_t match = pager_->MatchPrefix(kSalt, prompt);
  if (match == 0 ||
      pager_->AdoptPrefix(SeqId{dst}, kSalt, prompt, match).status != ReserveStatus::kOk) {
    return 0;
  }
  Sequence& seq = sequences_[dst];
  for (uint32_t i = 0; i < match; ++i) Push(seq, prompt[i]);
  seq.first_row = match;
  if (match == prompt.size()) {
    seq.first_row = match - 1;
    seq.no_write_row = true;
  }
  return match;
}

bool WindowRig::Trim(uint32_t id, uint32_t length) {
  if (!pager_->CanTrim(SeqId{id}, length)) return false;
  pager_->Trim(SeqId{id}, length);
  Sequence& seq = sequences_[id];
  seq.tokens.resize(length);
  seq.contents.resize(length);
  seq.first_row = std::min(seq.first_row, length);
  seq.no_write_row = false;
  return true;
}

void WindowRig::CommitAndPlan() {
  ++epoch_;
  const auto deltas = pager_->Commit(epoch_);
  copies_.assign(pager_->page_copies().begin(), pager_->page_copies().end());
  BuildRows();
  frame_ = frames_->Publish(epoch_, rows_, heads_, deltas);
  const auto violations = ValidateFrame(geometry(), frame_, nullptr);
  ASSERT_TRUE(violations.empty()) << violations[0];
  for (auto& [id, seq] : sequences_) seq.committed = Length(seq);
  Plan();
}

void WindowRig::Plan() {
  const auto trains = windows_->Plan(frame_, copies_);
  plan_.assign(trains.begin(), trains.end());
  CheckStages();
  engine_.Run(plan_);
  ScribbleOnClosedSlots();
  CheckVisible();
}

void WindowRig::RunRows() {
  for (const Row& row : rows_) {
    if ((row.flags & kRowNoWrite) != 0) continue;
    const Sequence& seq = sequences_[heads_by_slot_[row.slot]];
    WriteRow(row, seq.contents[row.kv_index]);
  }
}

void WindowRig::PlanAgain() {
  std::erase_if(plan_, [](const Train& train) { return train.cause != CopyCause::kStage; });
  const auto first = plan_;
  Plan();
  EXPECT_EQ(plan_, first) << "WINDOW-4: epoch " << epoch_;
}

void WindowRig::CheckPool() {
  for (const auto& [id, seq] : sequences_) {
    for (uint32_t g = 0; g < num_groups(); ++g) {
      const KvGroupGeometry& group = geometry().groups[g];
      const auto pages = pager_->pages(SeqId{id}, g);
      const uint32_t first = pager_->first_page(SeqId{id}, g);
      for (uint32_t token = first * group.page_tokens; token < Length(seq); ++token) {
        const PageId page = pages[token / group.page_tokens - first];
        if (page == kNullPage) continue;
        for (uint32_t part = 0; part < group.num_parts; ++part) {
          const std::byte* at = pager_->base(g) + group.PageOffset(page) +
                                part * group.part_stride_bytes() +
                                token % group.page_tokens * kTokenBytes;
          ASSERT_EQ(Load(at), Value(seq.contents[token], g, part))
              << "pool: epoch " << epoch_ << ", sequence " << id << ", group " << g << ", part "
              << part << ", token " << token << " of " << Length(seq);
        }
      }
    }
  }
}

void WindowRig::MakeWindows(uint32_t max_pages) {
  strides_.publish_age_steps = config_.publish_age_steps;
  strides_.max_seq_tokens = config_.max_seq_tokens;
  strides_.max_step_tokens = config_.max_step_tokens;
  for (const KvGroupGeometry& group : geometry().groups) {
    const uint32_t tokens = group.kind == KvGroupKind::kFull
                                ? config_.max_seq_tokens
                                : group.window_tokens + config_.max_step_tokens;
    WindowGeometry::Group window;
    window.window_tokens = (tokens + group.page_tokens - 1) / group.page_tokens * group.page_tokens;
    const uint64_t bytes = window.window_tokens * kTokenBytes;
    window.slot_stride_bytes =
        config_.parts_within_slots ? group.num_parts * (bytes + 8) : bytes + 16;
    window.part_stride_bytes =
        config_.parts_within_slots ? bytes + 8 : config_.slots * (bytes + 16);
    strides_.groups.push_back(window);
  }
  windows_ = WindowResidency::Create(geometry(), strides_, config_.slots, max_pages).value();
  windows_->set_tau_bytes(config_.tau_bytes);
  for (uint32_t group = 0; group < num_groups(); ++group) {
    const auto g = static_cast<uint8_t>(group);
    memory_.emplace_back(windows_->window_bytes(g), std::byte{0xEE});
    engine_.Bind({.kind = CopySpaceKind::kWindow, .kv_group = g}, memory_[g].data(),
                 memory_[g].size());
    engine_.Bind({.kind = CopySpaceKind::kPool, .kv_group = g}, pager_->base(g),
                 pager_->range_bytes(g));
  }
}

void WindowRig::BuildRows() {
  rows_.clear();
  heads_.clear();
  heads_by_slot_.clear();
  std::map<uint32_t, uint32_t> by_slot;
  for (const auto& [id, seq] : sequences_) by_slot[pager_->slot(SeqId{id}).value] = id;
  for (const auto& [slot, id] : by_slot) {
    const Sequence& seq = sequences_[id];
    SlotHead head{};
    head.slot = static_cast<uint16_t>(slot);
    head.seq_id = id;
    head.flags = pager_->lossy(SeqId{id}) ? kSlotLossyView : 0;
    head.row_begin = static_cast<uint32_t>(rows_.size());
    head.num_rows = Length(seq) - seq.first_row;
    for (uint32_t g = 0; g < num_groups(); ++g) head.num_tokens[g] = Length(seq);
    heads_.push_back(head);
    heads_by_slot_[slot] = id;
    for (uint32_t i = seq.first_row; i < Length(seq); ++i) {
      rows_.push_back({.token = seq.tokens[i],
                       .slot = head.slot,
                       .token_src = TokenSource::kImmediate,
                       .flags = static_cast<uint8_t>(seq.no_write_row ? kRowNoWrite : 0),
                       .position = i,
                       .kv_index = i,
                       .mask_id = kNone32,
                       .lse_target = -1,
                       .logits_idx = kNone32,
                       .reserved = 0});
    }
  }
}

void WindowRig::WriteRow(const Row& row, uint64_t contents) {
  for (uint32_t g = 0; g < num_groups(); ++g) {
    for (uint32_t part = 0; part < geometry().groups[g].num_parts; ++part) {
      const uint64_t value = Value(contents, g, part);
      std::memcpy(Place(g, part, row.slot, row.kv_index), &value, sizeof value);
    }
  }
}

void WindowRig::CheckStages() {
  std::map<std::pair<uint32_t, uint64_t>, bool> held;  // (group, window offset)
  for (uint32_t g = 0; g < num_groups(); ++g) {
    for (uint32_t slot = 0; slot < config_.slots; ++slot) {
      const auto resident = windows_->resident(g, AsSlot(slot));
      for (uint32_t token = resident.first_token; token < resident.end_token; ++token) {
        for (uint32_t part = 0; part < geometry().groups[g].num_parts; ++part) {
          held[{g, static_cast<uint64_t>(Place(g, part, slot, token) - memory_[g].data())}] = true;
        }
      }
    }
  }
  for (const Train& train : plan_) {
    if (train.cause != CopyCause::kStage) continue;
    for (uint64_t i = 0; i < train.bytes; i += kTokenBytes) {
      ++staged_places_;
      ASSERT_EQ(held.count({train.destination.kv_group, train.destination_offset + i}), 0u)
          << "WINDOW-2: epoch " << epoch_;
    }
  }
}

void WindowRig::CheckVisible() {
  for (const SlotHead& head : heads_) {
    const uint32_t id = heads_by_slot_[head.slot];
    const Sequence& seq = sequences_[id];
    if (head.num_rows == 0) continue;
    for (uint32_t g = 0; g < num_groups(); ++g) {
      const KvGroupGeometry& group = geometry().groups[g];
      const uint32_t window = group.kind == KvGroupKind::kFull ? kNone32 : group.window_tokens;
      const uint32_t first = seq.first_row + 1 > window ? seq.first_row + 1 - window : 0;
      const uint32_t end = seq.no_write_row ? seq.first_row + 1 : seq.first_row;
      const uint32_t* pages = frame_.SlotPages(g, head.slot);
      for (uint32_t token = first; token < end; ++token) {
        if (pages[token / group.page_tokens] == 0) continue;
        for (uint32_t part = 0; part < group.num_parts; ++part) {
          ASSERT_EQ(Load(Place(g, part, head.slot, token)), Value(seq.contents[token], g, part))
              << "WINDOW-1: epoch " << epoch_ << ", slot " << head.slot << ", group " << g
              << ", part " << part << ", token " << token << ", first row " << seq.first_row;
        }
      }
    }
  }
}

void WindowRig::ScribbleOnClosedSlots() {
  for (uint32_t slot = 0; slot < config_.slots; ++slot) {
    if (heads_by_slot_.count(slot) != 0) continue;
    for (uint32_t g = 0; g < num_groups(); ++g) {
      const WindowGeometry::Group& window = strides_.groups[g];
      for (uint32_t part = 0; part < geometry().groups[g].num_parts; ++part) {
        std::memset(Place(g, part, slot, 0), 0xDD, window.window_tokens * kTokenBytes);
      }
    }
  }
}

}  // namespace kvrm::testing
