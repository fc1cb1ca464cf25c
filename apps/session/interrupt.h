// Ctrl-C as a flag: commands that generate stop the answer and end in order.
#pragma once

namespace kvrm::cli {

// From now on SIGINT sets the flag instead of ending the process; blocking reads return EINTR.
void CatchInterrupts();
// True once after each SIGINT (or several of them).
bool TakeInterrupt();

}  // namespace kvrm::cli
