// A decoder for the tests of shared prefixes: it writes real bytes where the pager says, at once or
// one step late, and can tell whether a sequence finds its own. Test code only.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "pager/pager.h"
#include "pager/pager_testing.h"

namespace kvrm::testing {

using Tokens = std::vector<TokenId>;

inline constexpr PrefixSalt kTenant{1, 7};

inline Tokens Count(TokenId from, uint32_t count) {
  Tokens tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = from + static_cast<TokenId>(i);
  return tokens;
}

inline Tokens Join(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A pool of `pages` pages besides the null page, each a superblock of its own; freed ones are
// poisoned.
inline PagerConfig PoolOf(uint32_t pages, uint32_t max_slots = 8) {
  PagerConfig config = TinyConfig(1);
  config.geometry.groups[0].pages_per_superblock = 1;
  config.geometry.groups[0].superblock_bytes = 192;
  config.kv_bytes = (pages + 1) * 192;
  config.max_slots = max_slots;
  config.poison_freed = true;
  return config;
}

class Decoder {
 public:
  // `depth`: steps that the executor runs behind the commit, 0 or 1.
  explicit Decoder(const PagerConfig& config, uint32_t depth = 0)
      : pager_(MakePager(config)), depth_(depth) {}

  struct Stream {
    SeqId seq;
    Tokens tokens;
    PrefixSalt salt;
    uint32_t num_cached = 0;
  };

  Pager& pager() { return *pager_; }
  uint64_t num_copies() const { return num_copies_; }

  // In a step: opens a sequence, adopts what it can of `tokens` and reserves the rest. nullopt:
  // deferred, and nothing changed.
  std::optional<Stream> Admit(const Tokens& tokens, const PrefixSalt& salt = kTenant) {
    const std::optional<SeqId> seq = pager_->Open();
    if (!seq) return std::nullopt;
    const Pager::Savepoint mark = pager_->Mark(*seq);
    Stream stream{*seq, tokens, salt, pager_->MatchPrefix(salt, tokens)};
    EXPECT_EQ(pager_->AdoptPrefix(*seq, salt, tokens, stream.num_cached).status,
              ReserveStatus::kOk);
    const auto all = static_cast<uint32_t>(tokens.size());
    if (pager_->Reserve(*seq, all).status != ReserveStatus::kOk) {
      pager_->Rollback(mark);
      pager_->Close(*seq);
      return std::nullopt;
    }
    Plan(stream, stream.num_cached);
    return stream;
  }

  // In a step: one token more; false when there is no room.
  bool Append(Stream& stream, TokenId token) {
    const auto length = static_cast<uint32_t>(stream.tokens.size());
    if (pager_->Reserve(stream.seq, length + 1).status != ReserveStatus::kOk) return false;
    stream.tokens.push_back(token);
    Plan(stream, length);
    return true;
  }

  // Commits the step; executes and completes the one that is `depth` steps older.
  void Finish() {
    const uint64_t epoch = ++epoch_;
    (void)pager_->Commit(epoch);
    Step step{epoch, {pager_->page_copies().begin(), pager_->page_copies().end()}, {}};
    num_copies_ += step.copies.size();
    for (const auto& [stream, from] : planned_) CollectWrites(stream, from, step);
    planned_.clear();
    running_.push_back(std::move(step));
    while (running_.size() > depth_) Execute();
  }
  void FinishAll() {
    while (!running_.empty()) Execute();
  }
  // The step that was planned is given up before its commit.
  void GiveUp() {
    pager_->RollbackStep();
    planned_.clear();
  }

  uint32_t Index(const Stream& stream) {
    return pager_->IndexPrefix(stream.seq, stream.salt, stream.tokens);
  }
  // Admits, computes, enters and ends a request, alone.
  Stream RunToEnd(const Tokens& tokens, const PrefixSalt& salt = kTenant) {
    pager_->BeginStep();
    std::optional<Stream> stream = Admit(tokens, salt);
    EXPECT_TRUE(stream);
    Finish();
    FinishAll();
    ExpectOwn(*stream);
    Index(*stream);
    End({*stream});
    return *stream;
  }
  void End(const std::vector<Stream>& streams) {
    pager_->BeginStep();
    for (const Stream& stream : streams) pager_->Close(stream.seq);
    Finish();
    FinishAll();
  }

  // Each place that a next row would see holds what these tokens give: the answer of a solo run.
  // Requires: the steps that wrote it have been executed.
  void ExpectOwn(const Stream& stream) {
    const std::vector<uint32_t> values = ValuesOf(stream.tokens);
    ASSERT_EQ(pager_->num_tokens(stream.seq), stream.tokens.size());
    for (uint32_t g = 0; g < pager_->geometry().groups.size(); ++g) {
      const KvGroupGeometry& group = pager_->geometry().groups[g];
      uint32_t place = 0;
      if (group.window_tokens > 0 && values.size() >= group.window_tokens) {
        place = static_cast<uint32_t>(values.size()) + 1 - group.window_tokens;
      }
      const uint32_t first_page = pager_->first_page(stream.seq, g);
      for (; place < values.size(); ++place) {
        const PageId page = pager_->pages(stream.seq, g)[place / group.page_tokens - first_page];
        for (uint32_t part = 0; part < group.num_parts; ++part) {
          uint32_t held = 0;
          std::memcpy(&held, At(g, page, place, part), sizeof held);
          ASSERT_EQ(held, values[place] + part) << "group " << g << " place " << place;
        }
      }
    }
  }

  void ExpectIdle() {
    ExpectSound(*pager_);
    for (uint32_t g = 0; g < pager_->geometry().groups.size(); ++g) {
      const PagerBooks books = pager_->books(g);
      EXPECT_EQ(books.in_use, 1u);  // the null page
      EXPECT_EQ(books.limbo, 0u);
      EXPECT_EQ(books.free + books.cached + 1, books.total);
    }
  }

 private:
  struct Write {
    uint32_t group;
    PageId page;
    uint32_t place;
    uint32_t value;
  };
  struct Step {
    uint64_t epoch;
    std::vector<Pager::PageCopy> copies;
    std::vector<Write> writes;
  };

  // Of each place a number that depends on all tokens up to it, as keys and values do.
  static std::vector<uint32_t> ValuesOf(const Tokens& tokens) {
    std::vector<uint32_t> values;
    uint32_t value = 2'166'136'261u;
    for (TokenId token : tokens) {
      value = (value ^ static_cast<uint32_t>(token)) * 16'777'619u;
      values.push_back(value);
    }
    return values;
  }

  std::byte* At(uint32_t g, PageId page, uint32_t place, uint32_t part) {
    const KvGroupGeometry& group = pager_->geometry().groups[g];
    return pager_->base(g) + group.PageOffset(page) + part * group.part_stride_bytes() +
           place % group.page_tokens * sizeof(uint32_t);
  }

  void Plan(const Stream& stream, uint32_t from) { planned_.emplace_back(stream, from); }

  void CollectWrites(const Stream& stream, uint32_t from, Step& step) {
    const std::vector<uint32_t> values = ValuesOf(stream.tokens);
    for (uint32_t g = 0; g < pager_->geometry().groups.size(); ++g) {
      const uint32_t first_page = pager_->first_page(stream.seq, g);
      const uint32_t page_tokens = pager_->geometry().groups[g].page_tokens;
      for (uint32_t place = from; place < values.size(); ++place) {
        const PageId page = pager_->pages(stream.seq, g)[place / page_tokens - first_page];
        step.writes.push_back({g, page, place, values[place]});
      }
    }
  }

  void Execute() {
    const Step step = std::move(running_.front());
    running_.pop_front();
    for (const Pager::PageCopy& copy : step.copies) {
      const KvGroupGeometry& group = pager_->geometry().groups[copy.kv_group];
      for (uint32_t part = 0; part < group.num_parts; ++part) {
        std::memcpy(At(copy.kv_group, copy.destination, 0, part),
                    At(copy.kv_group, copy.source, 0, part), group.part_page_bytes);
      }
    }
    for (const Write& write : step.writes) {
      const uint32_t parts = pager_->geometry().groups[write.group].num_parts;
      for (uint32_t part = 0; part < parts; ++part) {
        const uint32_t value = write.value + part;
        std::memcpy(At(write.group, write.page, write.place, part), &value, sizeof value);
      }
    }
    pager_->StepDone(step.epoch);
  }

  std::unique_ptr<Pager> pager_;
  const uint32_t depth_;
  uint64_t epoch_ = 0;
  uint64_t num_copies_ = 0;
  std::vector<std::pair<Stream, uint32_t>> planned_;  // and the first place that it writes
  std::deque<Step> running_;
};

}  // namespace kvrm::testing
