// The command language in which the heart's tests speak to pager and frame: one verb a line.
//
//     setup sliding
//     open s1 text 3 salt 0
//     grow s1 40 hint 60
//     commit
//
// A sequence is named by a register, s0..s9, because ids are the pager's choice. Every command has
// a meaning in every state: what does not apply (an edit of an empty register, `back` without
// `mark`) is skipped. So any subset of a script is a script, and a failing one can be made smaller
// by leaving lines out. `#` begins a comment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvrm::heart {

inline constexpr uint32_t kRegisters = 10;
inline constexpr uint32_t kTexts = 32;
inline constexpr uint32_t kSalts = 3;
inline constexpr uint32_t kMostNumber = 0xFFFF;  // of any number in a command

enum class Verb : uint8_t {
  kOpen,      // open s1 text 3 salt 0: its tokens come from text 3
  kClose,     // close s1
  kGrow,      // grow s1 40 hint 60: Reserve 40 places more, the hint 60 beyond these
  kReserve,   // reserve s1 450 hint 0: Reserve places [0, 450)
  kAlias,     // alias s2 s1 40: the first 40 places of s1, or as many as may be shared
  kTrim,      // trim s1 17: Trim from place 17 on, if CanTrim
  kCut,       // cut s1 3: Trim the last 3 places, if CanTrim
  kCold,      // cold s1 group 0 from 16 for 48: TrimPages
  kText,      // text s1 4: tokens come from text 4 from now on
  kMark,      // mark s1
  kBack,      // back: Rollback to the mark
  kCommit,    // commit
  kAgain,     // again: Commit the last epoch once more
  kRollback,  // rollback: RollbackStep
  kDone,      // done 1: StepDone of the epoch before the last one
  kIndex,     // index s1: IndexPrefix of its tokens
  kMatch,     // match text 3 salt 0 tokens 100: MatchPrefix
  kAdopt,     // adopt s2 text 3 salt 0 tokens 100: MatchPrefix, then AdoptPrefix of what it found
  kClear,     // clear: ClearPrefixIndex
  kBusy,      // busy: Maintain(kBusy)
  kIdle,      // idle: Maintain(kIdle)
};
inline constexpr uint32_t kVerbs = 21;

struct Command {
  Verb verb = Verb::kCommit;
  uint32_t seq = 0;    // register
  uint32_t other = 0;  // register of the source; salt; KV group
  uint32_t n = 0;      // the command's first number
  uint32_t m = 0;      // its second number
  bool operator==(const Command&) const = default;
};
std::string ToText(const Command& command);

struct Script {
  uint32_t setup = 0;  // index into Setups()
  std::vector<Command> commands;
  bool operator==(const Script&) const = default;
};
std::string ToText(const Script& script);
// The script, or in `error` the line that cannot be read and why.
std::optional<Script> ParseScript(std::string_view text, std::string* error);

// For fuzzing: every byte string is a script. Byte 0 the setup, then six bytes a command.
Script ScriptOfBytes(std::span<const uint8_t> bytes);
std::vector<uint8_t> BytesOfScript(const Script& script);

}  // namespace kvrm::heart
