// What a model file says about its tokenizer, as plain data: read by `model`, used by `text`, which
// know nothing of each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/string_list.h"

namespace kvrm {

enum class TokenType : uint8_t {  // GGUF's numbers
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// Where add_space_prefix puts its blank; "text" is what lies between special tokens.
enum class SpacePrefix : uint8_t {
  kEach,              // before each text, by normalizing it
  kEachUnlessBlank,   // before each that does not begin with a blank, after normalizing
  kFirstUnlessBlank,  // the same, but only at the very beginning
};

// Bits of TokenizerSpec::found: how a special token is found in a text. Two say which white space
// it takes along; the third, that it is looked for when the text has been normalized, not before,
// and in its own normalized form (marks are not, whatever it says).
inline constexpr uint8_t kStripsLeft = 1;
inline constexpr uint8_t kStripsRight = 2;
inline constexpr uint8_t kFoundNormalized = 4;

// Plain data, as read from a model file; `text` knows no file format.
struct TokenizerSpec {
  // GGUF's names: "gpt2", byte-level BPE; "llama", SentencePiece BPE (blanks written as U+2581, a
  // token <0xNN> for each byte) by scores, or by merges where it has no scores; "gemma4", by merges
  // and with runs of line ends apart.
  std::string model;
  std::string pre;               // "gpt2" only: "smollm", "gpt-2", ...
  StringList tokens;             // in the file's own form (GPT-2 byte characters for "gpt2")
  std::vector<TokenType> types;  // [tokens]; empty = all normal
  StringList merges;             // "left right", best first
  std::vector<float> scores;     // [tokens]; "llama"
  TokenId bos = -1, eos = -1, eot = -1, unknown = -1, padding = -1;  // -1 = none
  std::vector<TokenId> ends;  // what else ends an answer, by generation_config.json
  bool add_bos = false, add_eos = false;
  bool add_bos_unsaid = false;  // by the pre-tokenizer's name then ("gpt2"), not by add_bos
  bool add_space_prefix = false;
  SpacePrefix space_prefix = SpacePrefix::kEach;
  bool cuts_at_blanks = false;  // "llama": each blank begins a piece that merges do not leave
  std::vector<uint8_t> found;   // [at most tokens], bits of the above; absent = none
  bool fuse_unknown = true;     // "llama": a run of unknown characters is one unknown token
  // What the pre-tokenizer's name implies, unless the file says otherwise.
  std::optional<bool> nfc;                // the text is brought to NFC first
  std::optional<bool> whole_piece_first;  // a piece that is a token as a whole is not merged
  std::string chat_template;              // empty = none
};

}  // namespace kvrm
