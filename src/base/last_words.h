// What the process still does when a KVRM_CHECK is about to end it: write out what is of use to
// whoever looks for the bug.
#pragma once

namespace kvrm {

// One function, called on the failing thread with `arg` after the line is printed; nullptr =
// nothing. Not where a CheckTrap lives. It must return. Thread-safe.
using LastWords = void (*)(void* arg);
void SetLastWords(LastWords say, void* arg);

}  // namespace kvrm
