// kvrm record show: what a record holds. Token ids only where they are asked for.
#include <fmt/format.h>

#include <cstdio>
#include <sstream>
#include <string>

#include "engine/record_fields.h"
#include "engine/record_runtime.h"
#include "frame/field_codec.h"
#include "kvrm/commands.h"
#include "record/record.h"
#include "text/utf8.h"

namespace kvrm::cli {
namespace {

struct Counts {
  uint64_t entries = 0, requests = 0, prompt_tokens = 0, cancels = 0, idle = 0, steps = 0,
           commits = 0, tokens = 0, preempted = 0, rollbacks = 0;
  int64_t first_us = 0, last_us = 0;
};

void Count(const RecordEntry& entry, Counts& counts) {
  ++counts.entries;
  switch (entry.kind) {
    case RecordKind::kSubmit:
      ++counts.requests;
      counts.prompt_tokens += entry.request.prompt.size();
      return;
    case RecordKind::kCancel:
      ++counts.cancels;
      return;
    case RecordKind::kIdle:
      ++counts.idle;
      return;
    case RecordKind::kStep:
      if (counts.steps++ == 0) counts.first_us = entry.now_us;
      counts.last_us = entry.now_us;
      return;
    case RecordKind::kCommit:
      ++counts.commits;
      counts.tokens += entry.tokens.size();
      counts.preempted += entry.commit.num_preempted;
      return;
    case RecordKind::kRollback:
      ++counts.rollbacks;
      return;
    case RecordKind::kStop:
    case RecordKind::kMaintain:
    case RecordKind::kPause:
    case RecordKind::kClosed:
      return;
  }
}

std::string IdsText(const std::vector<TokenId>& ids) {
  return fmt::format("[{}]", fmt::join(ids, " "));
}

// What requests got: " 3:token" each, or how many.
std::string OutcomeText(const RecordEntry& entry, bool with_tokens) {
  std::string text = fmt::format(", {} tokens, {} ends", entry.tokens.size(), entry.ends.size());
  if (!with_tokens) return text;
  for (const RecordToken& token : entry.tokens)
    text += fmt::format(" {}:{}", token.id, token.token);
  for (const RecordEnd& end : entry.ends) text += fmt::format(" {}:end{}", end.id, end.reason);
  return text;
}

std::string EntryText(const RecordEntry& entry, bool with_tokens) {
  std::string text = fmt::format("{:>8} {:<8}", entry.step, RecordKindName(entry.kind));
  switch (entry.kind) {
    case RecordKind::kSubmit:
      text += " " + FieldsText(entry.submit);
      if (with_tokens) text += ", prompt " + IdsText(entry.request.prompt);
      return text;
    case RecordKind::kCancel:
      return text + fmt::format(" id {}", entry.id.value);
    case RecordKind::kStep:
      return text + fmt::format(" now_us {}", entry.now_us);
    case RecordKind::kCommit:
      return text + " " + FieldsText(entry.commit) + OutcomeText(entry, with_tokens);
    case RecordKind::kPause:
      return text + OutcomeText(entry, with_tokens);
    case RecordKind::kIdle:
    case RecordKind::kStop:
    case RecordKind::kMaintain:
    case RecordKind::kRollback:
    case RecordKind::kClosed:
      return text;
  }
  return text;
}

void PrintSummary(const RecordReader& reader, const Counts& counts) {
  std::istringstream lines(reader.header().text);
  for (std::string line; std::getline(lines, line);) fmt::print("{}\n", ForMessage(line, 200));
  fmt::print("{}\n", FieldsText(reader.header().settings));
  fmt::print("{} bytes, {} entries{}\n", reader.file_bytes(), counts.entries,
             reader.closed() ? "" : "; it was not closed: its process died");
  fmt::print("{} requests with {} prompt tokens, {} cancels, {} idle seconds\n", counts.requests,
             counts.prompt_tokens, counts.cancels, counts.idle);
  fmt::print("{} steps in {:.3f} s, {} commits, {} rollbacks, {} tokens, {} preemptions\n",
             counts.steps, static_cast<double>(counts.last_us - counts.first_us) / 1e6,
             counts.commits, counts.rollbacks, counts.tokens, counts.preempted);
}

void PrintJson(const RecordReader& reader, const Counts& counts) {
  fmt::print(
      "{{\"settings\":{},\"bytes\":{},\"closed\":{},\"entries\":{},\"requests\":{},"
      "\"prompt_tokens\":{},\"cancels\":{},\"idle\":{},\"steps\":{},\"commits\":{},"
      "\"rollbacks\":{},\"tokens\":{},\"preemptions\":{},\"us\":{}}}\n",
      FieldsJson(reader.header().settings), reader.file_bytes(), reader.closed(), counts.entries,
      counts.requests, counts.prompt_tokens, counts.cancels, counts.idle, counts.steps,
      counts.commits, counts.rollbacks, counts.tokens, counts.preempted,
      counts.last_us - counts.first_us);
}

}  // namespace

Result<std::unique_ptr<RecordReader>> OpenNamedRecord(const OptionValues& values) {
  if (values.positionals().empty()) return InvalidInput("a record is needed: FILE.kvrec");
  return RecordReader::Open(values.positionals()[0]);
}

int RunRecordShow(const OptionValues& values) {
  const auto reader = OpenNamedRecord(values);
  if (!reader.ok()) return Failed(values, reader.error());
  const bool with_tokens = values.Flag("tokens");
  const bool with_entries = values.Flag("entries") || with_tokens;
  Counts counts;
  for (;;) {
    const auto entry = (*reader)->Next();
    if (!entry.ok()) return Failed(values, entry.error());
    if (*entry == nullptr) break;
    Count(**entry, counts);
    if (with_entries) fmt::print("{}\n", EntryText(**entry, with_tokens));
  }
  values.Flag("json") ? PrintJson(**reader, counts) : PrintSummary(**reader, counts);
  return kExitDone;
}

}  // namespace kvrm::cli
