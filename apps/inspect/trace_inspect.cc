#include "inspect/trace_inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "frame/field_codec.h"
#include "frame/frame_json.h"
#include "frame/trace_reader.h"
#include "frame/trace_replay.h"
#include "kvrm/commands.h"
#include "session/session.h"

namespace kvrm::cli {
namespace {

constexpr size_t kMaxPrintedViolations = 100;

int Print(const OptionValues& values, std::string text, int exit_code) {
  if (!text.ends_with('\n')) text += '\n';
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? exit_code : OutputFailed(values);
}

// A string of ours or of the system's, quoted.
std::string Quoted(const std::string& text) {
  return boost::json::serialize(boost::json::string(text));
}

const char* KindName(KvGroupKind kind) {
  switch (kind) {
    case KvGroupKind::kFull:
      return "full";
    case KvGroupKind::kSliding:
      return "sliding";
    case KvGroupKind::kSummary:
      return "summary";
    case KvGroupKind::kState:
      return "state";
  }
  return "unknown";
}

std::string GroupText(const KvGroupGeometry& group) {
  std::string text = KindName(group.kind);
  if (group.window_tokens > 0) text += fmt::format(", window of {} tokens", group.window_tokens);
  return text +
         fmt::format("; pages of {} tokens, {} parts x {} bytes; {} pages a superblock of {}",
                     group.page_tokens, group.num_parts, group.part_page_bytes,
                     group.pages_per_superblock, SizeText(group.superblock_bytes));
}

size_t KeyFrames(const TraceReader& reader) {
  const auto records = reader.records();
  return static_cast<size_t>(std::count_if(records.begin(), records.end(),
                                           [](const TraceRecord& record) { return record.key; }));
}

std::string SummaryText(const TraceReader& reader) {
  const auto records = reader.records();
  const FrameCapacity& capacity = reader.header().capacity;
  std::string text = "frame trace of " + SizeText(reader.file_bytes()) + ": " +
                     std::to_string(records.size()) + " frames";
  if (!records.empty()) {
    text += fmt::format(", epochs {} to {}, {} key frames (one in {})", records.front().epoch,
                        records.back().epoch, KeyFrames(reader), reader.header().key_interval);
  }
  text += fmt::format("\ncapacity: {} slots, {} rows, {} pages a slot and group\n",
                      capacity.max_slots, capacity.max_rows, capacity.max_pages);
  const auto& groups = reader.header().geometry.groups;
  for (size_t g = 0; g < groups.size(); ++g) {
    text += fmt::format("group {}: {}\n", g, GroupText(groups[g]));
  }
  return text + "end: " + (reader.damage().empty() ? "a whole record" : reader.damage()) + '\n';
}

std::string SummaryJson(const TraceReader& reader) {
  const auto records = reader.records();
  const FrameCapacity& capacity = reader.header().capacity;
  std::string groups;
  for (const KvGroupGeometry& group : reader.header().geometry.groups) {
    groups += (groups.empty() ? "" : ",") + FieldsJson(ToTraceGroup(group));
  }
  return fmt::format(
      "{{\"bytes\":{},\"frames\":{},\"first_epoch\":{},\"last_epoch\":{},\"key_frames\":{},"
      "\"key_interval\":{},\"max_slots\":{},\"max_rows\":{},\"max_pages\":{},\"groups\":[{}],"
      "\"cut_off\":{},\"damage\":{}}}",
      reader.file_bytes(), records.size(), records.empty() ? 0 : records.front().epoch,
      records.empty() ? 0 : records.back().epoch, KeyFrames(reader), reader.header().key_interval,
      capacity.max_slots, capacity.max_rows, capacity.max_pages, groups, reader.cut_off(),
      reader.damage().empty() ? "null" : Quoted(reader.damage()));
}

// A file that ends in mid-record was being written; any other damage is a fault of its bytes.
int FailedIfDamaged(const OptionValues& values, const TraceReader& reader, int exit_code) {
  if (reader.damage().empty() || reader.cut_off() || exit_code != kExitDone) return exit_code;
  return Failed(values, InvalidInput(reader.damage()));
}

int Summary(const OptionValues& values, const TraceReader& reader) {
  const std::string text = values.Flag("json") ? SummaryJson(reader) : SummaryText(reader);
  return FailedIfDamaged(values, reader, Print(values, text, kExitDone));
}

int ShowEpoch(const OptionValues& values, const TraceReader& reader) {
  const auto record = reader.Find(static_cast<uint64_t>(values.Int("epoch")));
  if (!record.ok()) return Failed(values, record.error());
  TraceReplay replay(reader);
  const auto frame = replay.Seek(*record);
  if (!frame.ok()) return Failed(values, frame.error());
  // Whatever else may be unsound is shown as it is; --replay tells.
  if (const Status counts = replay.CheckCounts(); !counts.ok()) {
    return Failed(values, counts.error());
  }
  const KvGeometry& geometry = reader.header().geometry;
  return Print(values,
               values.Flag("json") ? FrameJson(geometry, *frame) : DumpFrame(geometry, *frame),
               kExitDone);
}

std::string ReportJson(const ReplayReport& report) {
  std::string violations;
  for (const std::string& violation : report.violations) {
    violations += (violations.empty() ? "" : ",") + Quoted(violation);
  }
  return fmt::format(
      "{{\"frames\":{},\"rows\":{},\"deltas\":{},\"num_violations\":{},\"violations\":[{}]}}",
      report.frames, report.rows, report.deltas, report.num_violations, violations);
}

std::string ReportText(const ReplayReport& report) {
  std::string text;
  for (const std::string& violation : report.violations) text += violation + '\n';
  return text + fmt::format("replayed {} frames, {} rows, {} deltas: {} violations\n",
                            report.frames, report.rows, report.deltas, report.num_violations);
}

int Replay(const OptionValues& values, const TraceReader& reader) {
  const ReplayReport report = ReplayTrace(reader, kMaxPrintedViolations);
  const std::string text = values.Flag("json") ? ReportJson(report) : ReportText(report);
  const int exit_code = Print(values, text, kExitDone);
  if (exit_code != kExitDone || report.num_violations == 0) {
    return FailedIfDamaged(values, reader, exit_code);
  }
  return Failed(values, InvalidInput("the trace has " + std::to_string(report.num_violations) +
                                     " violations, first: " + report.violations[0]));
}

std::string DifferenceText(const TraceDifference& difference) {
  return (difference.epoch ? "epoch " + std::to_string(*difference.epoch) + ", " : "") +
         difference.object + ": " + difference.field + " is " + difference.first +
         " in the first and " + difference.second + " in the second";
}

std::string DifferenceJson(const std::optional<TraceDifference>& difference) {
  if (!difference) return "{\"equal\":true}";
  return fmt::format(
      "{{\"equal\":false,\"epoch\":{},\"object\":{},\"field\":{},\"first\":{},\"second\":{}}}",
      difference->epoch ? std::to_string(*difference->epoch) : "null", Quoted(difference->object),
      Quoted(difference->field), Quoted(difference->first), Quoted(difference->second));
}

int Diff(const OptionValues& values, const TraceReader& reader) {
  const auto other = TraceReader::Open(values.Text("diff"));
  if (!other.ok()) return Failed(values, other.error());
  const auto difference = DiffTraces(reader, **other);
  if (!difference.ok()) return Failed(values, difference.error());
  if (values.Flag("json")) {
    const int exit_code = Print(values, DifferenceJson(*difference), kExitDone);
    if (exit_code != kExitDone) return exit_code;
  }
  if (*difference) return Failed(values, InvalidInput(DifferenceText(**difference)));
  return values.Flag("json") ? kExitDone : Print(values, "the traces are equal", kExitDone);
}

}  // namespace

bool IsFrameTrace(const std::string& path) {
  if (path.ends_with(".kvft")) return true;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  char magic[4] = {};
  std::ifstream file(path, std::ios::binary);
  file.read(magic, sizeof magic);
  return file.gcount() == sizeof magic && std::memcmp(magic, "KVFT", sizeof magic) == 0;
}

int InspectTrace(const OptionValues& values, const std::string& path) {
  const bool one_epoch = values.Int("epoch") > 0, diff = !values.Text("diff").empty();
  if (int{one_epoch} + int{diff} + int{values.Flag("replay")} > 1) {
    return UsageError(values, "give one of --epoch, --replay and --diff");
  }
  const auto reader = TraceReader::Open(path);
  if (!reader.ok()) return Failed(values, reader.error());
  if (one_epoch) return ShowEpoch(values, **reader);
  if (diff) return Diff(values, **reader);
  return values.Flag("replay") ? Replay(values, **reader) : Summary(values, **reader);
}

}  // namespace kvrm::cli
