// Writes JSON text, piece by piece, into a string that the caller owns. It nests nothing on the
// stack and allocates only what the string needs. Thread-compatible.
//
// Law: text handed to String() and Key() is valid UTF-8 (a document with half a character in it is
// not JSON); whoever has bytes of unknown origin sanitises them first. Checked from tier 2 up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvrm {

class JsonWriter {
 public:
  // Appends to `out`, which outlives the writer.
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  JsonWriter& Key(std::string_view key);
  JsonWriter& String(std::string_view text);
  JsonWriter& Uint(uint64_t value);
  JsonWriter& Int(int64_t value);
  // The shortest decimal that reads back as the same number: equal numbers print equally. JSON has
  // no infinities and no NaN: they become null.
  JsonWriter& Float(float value);
  JsonWriter& Double(double value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  // `json` is one complete value, or the beginning of one that later calls continue.
  JsonWriter& Raw(std::string_view json, bool complete = true);

 private:
  void BeforeValue();

  std::string& out_;
  bool comma_ = false;  // a value precedes at this level
};

}  // namespace kvrm
