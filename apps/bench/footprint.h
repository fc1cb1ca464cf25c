// Rows of a comparison in which less is better: the time from exec until a server can be asked, and
// the most memory that a row takes. They stand in one sheet with the rows of versus_run.h.
//
// ready: exec to the first 200 on /ready (llama-server: /health), the file in the page cache; the
// rivals with and without their warm-up, and the better one counts. kvrm has warmed up by then.
// OpenVINO GenAI, a library, is ready when its pipeline is made, and has run nothing.
//
// memory: the peak of resident bytes, file pages counted, of 32 sequences of 512 + 128 tokens, each
// rival in the settings of the speed row 32 x 512, as they are and with what may make them take
// less: the file not mapped, smaller batches, a cache that grows.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/versus_run.h"

namespace kvrm::cli {

enum class FootprintKind : uint8_t { kReady, kMemory };

struct FootprintRow {
  FootprintKind kind;
  std::string key;   // "ready"
  std::string name;  // "exec to ready"
};
const std::vector<FootprintRow>& FootprintRows();

// At most so many times the rival's figure, and at most so much of our own; 0: no such goal.
struct FootprintGoal {
  double at_most = 0, goal = 0;
  double own_at_most = 0, own_goal = 0;
};

// A setting of ours beside all settings of one family that are like it.
struct FootprintPair {
  std::string name;  // "llama.cpp family, KV f16"
  Contender own;
  std::vector<Contender> rivals;
  FootprintGoal goal;
};
std::vector<FootprintPair> FootprintPairs(const FootprintRow& row, const VersusSetting& setting);

// "goal", "met" or "MISSED".
const char* FootprintVerdict(const FootprintGoal& goal, double own, double share);

// The row as it is kept in the sheet; families that no setting ran of are left out. Errors: kvrm
// fails, or a setting that ran once fails later.
Result<boost::json::object> RunFootprint(const FootprintRow& row, const VersusSetting& setting,
                                         double max_others_percent);

}  // namespace kvrm::cli
