// The families, one a file; family.cc holds the table.
#pragma once

#include "model/family.h"

namespace kvrm {

extern const Family kLlama;
extern const Family kMistral;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kSmolLm3;
extern const Family kGemma2;
extern const Family kGemma3;

}  // namespace kvrm
