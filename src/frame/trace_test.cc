// Frame traces: what is written is read back, what is broken is said with its place.
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "frame/field_codec.h"
#include "frame/frame_history_testing.h"
#include "frame/trace_reader.h"
#include "frame/trace_replay.h"
#include "frame/trace_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvrm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FrameHistory;
using ::testing::HasSubstr;
using testing::HistoryGeometry;
using ::testing::IsEmpty;
using ::testing::Not;

using Bytes = std::vector<std::byte>;

// Tests run beside each other, so each has names of its own.
std::string TracePath(const std::string& name) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return ::testing::TempDir() + test->name() + "_" + name + ".kvft";
}

Bytes ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return Bytes(bytes.begin(), bytes.end());
}

std::unique_ptr<TraceWriter> MakeWriter(const std::string& path, const TraceOptions& options = {}) {
  auto writer = TraceWriter::Create(path, HistoryGeometry(), FrameHistory::kCapacity, options);
  KVRM_CHECK(writer.ok(), "a test's trace can be made");
  return std::move(writer).value();
}

// A trace of `steps` frames of the history of `seed`, those up to `skipped` left out; a key frame
// every 8. `dumps`: what DumpFrame said of each as it was published.
Bytes TraceBytes(uint32_t seed, uint64_t steps, uint64_t skipped = 0,
                 std::map<uint64_t, std::string>* dumps = nullptr) {
  const std::string path = TracePath(std::to_string(seed));
  const auto writer = MakeWriter(path, {.key_interval = 8, .buffer_bytes = 4096});
  FrameHistory history(seed);
  while (history.epoch() < steps) {
    const FrameView frame = history.Step();
    if (history.epoch() <= skipped) continue;
    EXPECT_TRUE(writer->Append(frame).ok());
    if (dumps != nullptr) (*dumps)[history.epoch()] = DumpFrame(HistoryGeometry(), frame);
  }
  EXPECT_TRUE(writer->Close().ok());
  Bytes bytes = ReadFile(path);
  std::remove(path.c_str());
  return bytes;
}

std::unique_ptr<TraceReader> ReaderOf(const Bytes& bytes) {
  auto reader = TraceReader::FromBytes(bytes);
  KVRM_CHECK(reader.ok(), "a test's trace can be read");
  return std::move(reader).value();
}

std::string OpenError(const Bytes& bytes) {
  const auto reader = TraceReader::FromBytes(bytes);
  return reader.ok() ? "opened" : reader.error().message;
}

TEST(Trace, ShowsEachEpochAsItWasPublishedInWhateverOrderItIsAskedFor) {
  std::map<uint64_t, std::string> dumps;
  const Bytes bytes = TraceBytes(1, 100, 0, &dumps);
  const auto reader = ReaderOf(bytes);
  EXPECT_EQ(reader->damage(), "");
  ASSERT_EQ(reader->records().size(), 100u);
  EXPECT_EQ(reader->header().key_interval, 8u);
  EXPECT_EQ(reader->header().geometry.groups[1].window_tokens, 40u);
  EXPECT_EQ(reader->header().geometry.layer_part, HistoryGeometry().layer_part);
  EXPECT_EQ(reader->header().capacity.max_rows, FrameHistory::kCapacity.max_rows);
  TraceReplay replay(*reader);
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const uint64_t epoch = 1 + random() % 100;
    const auto record = reader->Find(epoch);
    ASSERT_TRUE(record.ok());
    const auto frame = replay.Seek(*record);
    ASSERT_TRUE(frame.ok()) << frame.error().message;
    ASSERT_EQ(DumpFrame(HistoryGeometry(), *frame), dumps[epoch]) << "epoch " << epoch;
    ASSERT_THAT(replay.Violations(), IsEmpty()) << "epoch " << epoch;
  }
  EXPECT_THAT(reader->Find(101).error().message,
              HasSubstr("epoch 101 is not there, only 1 to 100"));
  EXPECT_FALSE(reader->Find(0).ok());
}

TEST(Trace, ReplaysWithoutAViolationAlsoWhenItBeginsInMidLife) {
  for (uint64_t skipped : {0u, 1u, 37u}) {
    const Bytes bytes = TraceBytes(2, 600, skipped);
    const auto reader = ReaderOf(bytes);
    const ReplayReport report = ReplayTrace(*reader, 10);
    EXPECT_THAT(report.violations, IsEmpty()) << skipped;
    EXPECT_EQ(report.frames, 600 - skipped);
    EXPECT_EQ(reader->records().front().epoch, skipped + 1);
  }
}

TEST(Trace, AKeyFrameComesAtTheIntervalAndHoldsWaitingSequences) {
  const Bytes bytes = TraceBytes(3, 64);
  const auto reader = ReaderOf(bytes);
  bool waiting_held = false;
  for (size_t r = 0; r < 64; ++r) {
    EXPECT_EQ(reader->records()[r].key, r % 8 == 0);
    const auto frame = reader->Read(r);
    ASSERT_TRUE(frame.ok());
    for (const Delta& delta : frame->tables) {
      const auto slots = frame->block.slots();
      waiting_held |= std::none_of(slots.begin(), slots.end(),
                                   [&](const SlotHead& slot) { return slot.slot == delta.slot; });
    }
  }
  EXPECT_TRUE(waiting_held);
}

TEST(Trace, UnlessItIsToldOtherwiseAKeyFrameComesEvery256Steps) {
  const std::string path = TracePath("keys");
  const auto writer = MakeWriter(path);
  FrameHistory history(6);
  for (int step = 0; step < 520; ++step) ASSERT_TRUE(writer->Append(history.Step()).ok());
  ASSERT_TRUE(writer->Close().ok());
  const Bytes bytes = ReadFile(path);
  std::remove(path.c_str());
  std::vector<size_t> keys;
  const auto reader = ReaderOf(bytes);
  for (size_t r = 0; r < reader->records().size(); ++r) {
    if (reader->records()[r].key) keys.push_back(r);
  }
  EXPECT_THAT(keys, ElementsAre(0u, 256u, 512u));
}

TEST(Trace, CutOffAnywhereItIsReadableUpToThere) {
  const Bytes whole = TraceBytes(4, 20);
  const auto whole_reader = ReaderOf(whole);
  const uint64_t first = whole_reader->records()[0].offset;
  for (size_t size = first; size < whole.size(); ++size) {
    const Bytes bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    const auto reader = ReaderOf(bytes);
    size_t complete = 0;
    uint64_t end = first;
    for (const TraceRecord& record : whole_reader->records()) {
      const uint64_t record_end = record.offset + sizeof(TraceRecordHead) + record.payload_bytes;
      if (record_end > size) break;
      end = record_end;
      ++complete;
    }
    ASSERT_EQ(reader->records().size(), complete) << size;
    ASSERT_EQ(reader->cut_off(), end != size) << size;
    if (reader->cut_off()) {
      ASSERT_THAT(reader->damage(),
                  HasSubstr("record at byte " + std::to_string(end) + " is cut off"));
    }
    if (size % 64 == 0) {
      ASSERT_THAT(ReplayTrace(*reader, 1).violations, IsEmpty()) << size;
    }
  }
  EXPECT_THAT(OpenError(Bytes(whole.begin(), whole.begin() + 63)), HasSubstr("63 bytes"));
  EXPECT_THAT(OpenError(Bytes(whole.begin(), whole.begin() + 100)),
              HasSubstr("header_bytes is 168, must be at most 100"));
  EXPECT_THAT(OpenError({}), HasSubstr("0 bytes"));
}

TEST(Trace, AnyFlippedBitIsReportedWithTheEpochThatItHits) {
  const Bytes whole = TraceBytes(5, 6);
  const auto sound = ReaderOf(whole);
  const uint64_t first = sound->records()[0].offset;
  for (size_t at = 0; at < whole.size(); ++at) {
    Bytes bytes = whole;
    bytes[at] ^= std::byte{static_cast<unsigned char>(1u << at % 8)};
    auto opened = TraceReader::FromBytes(bytes);
    if (at < first) {
      ASSERT_FALSE(opened.ok()) << at;
      ASSERT_THAT(opened.error().message, HasSubstr("trace header: "));
      continue;
    }
    ASSERT_TRUE(opened.ok()) << at;
    size_t hit = 0;
    while (hit + 1 < sound->records().size() && sound->records()[hit + 1].offset <= at) ++hit;
    const uint64_t epoch = sound->records()[hit].epoch, offset = sound->records()[hit].offset;
    const std::string place = "record at byte " + std::to_string(offset);
    if (at < offset + sizeof(TraceRecordHead)) {
      ASSERT_EQ((*opened)->records().size(), hit) << at;
      ASSERT_FALSE((*opened)->cut_off()) << at;
      ASSERT_THAT((*opened)->damage(), HasSubstr(hit == 0 ? "first " + place : place)) << at;
      ASSERT_THAT((*opened)->damage(), HasSubstr(hit == 0 ? "" : "epoch " + std::to_string(epoch)));
    } else {
      const ReplayReport report = ReplayTrace(**opened, 4);
      ASSERT_EQ(report.num_violations, 1u) << at;
      ASSERT_THAT(report.violations[0],
                  AllOf(HasSubstr("epoch " + std::to_string(epoch) + ", " + place),
                        HasSubstr("checksum is wrong")));
    }
  }
}

// `bytes` with record `index` unpacked, changed by `change` and given checksums that fit.
Bytes Forged(const Bytes& bytes, size_t index,
             const std::function<void(std::span<std::byte>)>& change) {
  Bytes out = bytes;
  const auto reader = ReaderOf(bytes);
  const TraceRecord& record = reader->records()[index];
  std::byte* at = out.data() + record.offset;
  const std::span payload(at + sizeof(TraceRecordHead), record.payload_bytes);
  change(payload);
  TraceRecordHead head;
  Unpack(at, 1, &head);
  head.payload_checksum = TraceChecksum(payload);
  head.head_checksum = HeadChecksum(head);
  Pack(&head, 1, at);
  return out;
}

TEST(Trace, AForgedRecordBreaksTheHashChainAtItsEpoch) {
  const Bytes bytes = TraceBytes(6, 20);
  const Bytes forged = Forged(bytes, 5, [](std::span<std::byte> payload) {
    payload[sizeof(FrameHead)] ^= std::byte{1};  // the first row's token
  });
  const auto reader = ReaderOf(forged);
  const ReplayReport report = ReplayTrace(*reader, 10);
  EXPECT_THAT(report.violations,
              ElementsAre("epoch 6: FRAME-7: the chain hash is not that of its content"));
  EXPECT_EQ(report.frames, 20u);
}

TEST(Trace, DeltasThatDoNotFitEndTheReplayUntilTheNextKeyFrame) {
  const Bytes bytes = TraceBytes(6, 20);
  const auto reader = ReaderOf(bytes);
  size_t index = 1;
  while (reader->Read(index)->block.deltas().empty()) ++index;
  const FrameHead head = reader->Read(index)->block.head();
  const size_t at =
      sizeof(FrameHead) + head.num_rows * sizeof(Row) + head.num_slots * sizeof(SlotHead);
  const Bytes forged = Forged(bytes, index, [&](std::span<std::byte> payload) {
    payload[at + offsetof(Delta, kv_group)] = std::byte{3};
  });
  const auto forged_reader = ReaderOf(forged);
  const ReplayReport report = ReplayTrace(*forged_reader, 10);
  ASSERT_EQ(report.num_violations, 1u);
  EXPECT_THAT(report.violations[0],
              AllOf(HasSubstr("epoch " + std::to_string(head.epoch) + ": FRAME-0: a delta names"),
                    HasSubstr("(delta 0: slot ")));
  EXPECT_EQ(report.frames, 20 - (8 - index));
}

TEST(Trace, ASlotThatSaysAnotherThingOfItsTableThanTheDeltasMayNotBeShown) {
  const Bytes bytes = TraceBytes(6, 20);
  const auto reader = ReaderOf(bytes);
  size_t index = 1;
  while (reader->Read(index)->block.slots().empty()) ++index;
  const size_t at = sizeof(FrameHead) + reader->Read(index)->block.rows().size_bytes();
  const Bytes forged = Forged(bytes, index, [&](std::span<std::byte> payload) {
    payload[at + offsetof(SlotHead, num_segments)] = std::byte{11};  // within max_pages
    payload[at + offsetof(SlotHead, num_pages)] = std::byte{15};
  });
  const auto forged_reader = ReaderOf(forged);
  TraceReplay replay(*forged_reader);
  ASSERT_TRUE(replay.Seek(index).ok());
  const Status counts = replay.CheckCounts();
  ASSERT_FALSE(counts.ok());
  EXPECT_THAT(counts.error().message,
              HasSubstr("group 0 says 15 pages, 11 segments and 0 holes, its deltas lead to "));
  EXPECT_THAT(replay.Violations(), Not(IsEmpty()));
  ASSERT_TRUE(replay.Seek(index - 1).ok());
  EXPECT_TRUE(replay.CheckCounts().ok());
}

TEST(Trace, AKeyFrameThatDoesNotFollowFromTheDeltasIsReported) {
  const Bytes bytes = TraceBytes(6, 20);
  const Bytes forged = Forged(bytes, 8, [](std::span<std::byte> payload) {
    payload[sizeof(TraceKeyHead) + offsetof(Delta, page)] ^= std::byte{1};
  });
  const auto reader = ReaderOf(forged);
  const ReplayReport report = ReplayTrace(*reader, 10);
  ASSERT_EQ(report.num_violations, 1u);
  EXPECT_THAT(report.violations[0], HasSubstr("epoch 9: key frame entry 0 page is "));
}

TEST(Trace, SizesThatLieAreRefusedNamingFieldValueAndLimit) {
  const Bytes bytes = TraceBytes(6, 20);
  const auto error_of = [&](size_t index, const std::function<void(std::span<std::byte>)>& change) {
    const Bytes forged = Forged(bytes, index, change);
    const auto frame = ReaderOf(forged)->Read(index);
    return frame.ok() ? std::string("read") : frame.error().message;
  };
  const auto set = [](std::span<std::byte> payload, size_t at, uint32_t value) {
    for (int b = 0; b < 4; ++b) payload[at + b] = static_cast<std::byte>(value >> 8 * b);
  };
  EXPECT_THAT(
      error_of(
          8, [&](auto payload) { set(payload, offsetof(TraceKeyHead, num_tables), 0xFFFF'FFFF); }),
      AllOf(HasSubstr("epoch 9, record at byte "),
            HasSubstr("num_tables is 4294967295, at most ")));
  for (size_t field : {offsetof(FrameHead, num_rows), offsetof(FrameHead, num_slots),
                       offsetof(FrameHead, num_deltas)}) {
    EXPECT_THAT(error_of(3, [&](auto payload) { set(payload, field, 0xFFFF'FFFF); }),
                AllOf(HasSubstr("epoch 4, record at byte "), HasSubstr("4294967295"),
                      HasSubstr("bytes, but there are ")));
  }
  EXPECT_THAT(error_of(3, [&](auto payload) { set(payload, 0, 7); }),
              HasSubstr("magic is 7, not "));
  EXPECT_THAT(error_of(3, [&](auto payload) { set(payload, 8, 77); }),
              HasSubstr("the frame's epoch is 77"));
}

TEST(Trace, AHeaderOutOfRangeIsRefusedNamingFieldValueAndLimit) {
  const auto error = [](const std::function<void(TraceHeader&)>& change) {
    TraceHeader header{HistoryGeometry(), FrameHistory::kCapacity};
    change(header);
    const Status status = CheckTraceHeader(header);
    return status.ok() ? std::string("sound") : status.error().message;
  };
  EXPECT_EQ(error([](TraceHeader&) {}), "sound");
  EXPECT_THAT(error([](TraceHeader& h) { h.geometry.groups.clear(); }),
              HasSubstr("num_groups is 0"));
  EXPECT_THAT(error([](TraceHeader& h) { h.geometry.groups[1].page_tokens = 0; }),
              HasSubstr("group 1 page_tokens is 0, must be 1 to 1024"));
  EXPECT_THAT(error([](TraceHeader& h) { h.geometry.groups[0].pages_per_superblock = 65; }),
              HasSubstr("pages_per_superblock is 65, must be 1 to 64"));
  EXPECT_THAT(error([](TraceHeader& h) { h.geometry.groups[0].superblock_bytes = 1000; }),
              HasSubstr("superblock_bytes is 1000, must be 3 parts x 8 pages x 64 bytes or more"));
  EXPECT_THAT(error([](TraceHeader& h) { h.geometry.layer_group[2] = 2; }),
              HasSubstr("layer 2 group is 2, must be below 2"));
  EXPECT_THAT(error([](TraceHeader& h) { h.geometry.layer_part[0] = 3; }),
              HasSubstr("layer 0 part is 3, must be below 3"));
  EXPECT_THAT(error([](TraceHeader& h) { h.capacity.max_slots = 65536; }),
              HasSubstr("max_slots is 65536, must be 1 to 65535"));
  EXPECT_THAT(error([](TraceHeader& h) { h.capacity.max_pages = 1u << 24; }),
              HasSubstr("max_pages is 16777216, must be 1 to 1677721 for 5 slots"));
  EXPECT_THAT(error([](TraceHeader& h) { h.key_interval = 0; }), HasSubstr("key_interval is 0"));
}

// ---- writing

TEST(TraceWriter, AFullDiskIsAStatusThatStays) {
  auto writer = TraceWriter::Create("/dev/full", HistoryGeometry(), FrameHistory::kCapacity);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().kind, ErrorKind::kNoRoom);
  EXPECT_THAT(writer.error().message, HasSubstr("/dev/full: the trace cannot be written: "));
}

// Appends 200 frames while files may have 8 KiB, a limit that stands for a full disk. Exit code 7:
// from some frame on each Append failed, with one error.
[[noreturn]] void WriteUntilFull(const std::string& path) {
  const rlimit limit{8192, 8192};
  std::signal(SIGXFSZ, SIG_IGN);
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) std::_Exit(3);
  const auto writer = MakeWriter(path, {.key_interval = 8, .buffer_bytes = 3000});
  FrameHistory history(7);
  int failures = 0;
  Status status = Ok();
  while (history.epoch() < 200) {
    status = writer->Append(history.Step());
    if (status.ok() && failures > 0) std::_Exit(4);
    failures += status.ok() ? 0 : 1;
  }
  const Status closed = writer->Close();
  const bool told =
      failures > 100 && !closed.ok() && closed.error().message == status.error().message;
  std::_Exit(told ? 7 : 5);
}

TEST(TraceWriterDeathTest, WhatFitsOnAFullDiskIsAWholeTraceAndTheCallerGoesOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = TracePath("full");
  EXPECT_EXIT(WriteUntilFull(path), ::testing::ExitedWithCode(7), "");
  const Bytes bytes = ReadFile(path);
  EXPECT_LE(bytes.size(), 8192u);
  const auto reader = ReaderOf(bytes);
  EXPECT_EQ(reader->damage(), "");  // cut back to a whole record
  EXPECT_GT(reader->records().size(), 4u);
  EXPECT_THAT(ReplayTrace(*reader, 10).violations, IsEmpty());
}

TEST(TraceWriter, RefusesFramesThatDoNotFollow) {
  const std::string path = TracePath("gap");
  const auto writer = MakeWriter(path);
  FrameHistory history(8);
  EXPECT_TRUE(writer->Append(history.Step()).ok());
  history.Step();
  const Status gap = writer->Append(history.Step());
  ASSERT_FALSE(gap.ok());
  EXPECT_THAT(gap.error().message, HasSubstr("a frame of epoch 3, the trace's last is 1"));
  EXPECT_FALSE(writer->Append(history.Step()).ok());
  const Bytes kept = ReadFile(path);
  EXPECT_EQ(ReaderOf(kept)->records().size(), 1u);
  const auto builder = testing::MakeBuilder(HistoryGeometry(), {6, 16, 16});
  const FrameView other = builder->Publish(1, {}, {}, {});
  EXPECT_THAT(MakeWriter(path)->Append(other).error().message, HasSubstr("6 slots"));
}

TEST(TraceWriter, NoFileIsMadeWithoutARightPathOrGeometry) {
  const auto writer =
      TraceWriter::Create("/no/such/folder/x.kvft", HistoryGeometry(), FrameHistory::kCapacity);
  ASSERT_FALSE(writer.ok());
  EXPECT_THAT(writer.error().message,
              HasSubstr("/no/such/folder/x.kvft: the trace cannot be made"));
  const std::string path = TracePath("never");
  std::remove(path.c_str());
  EXPECT_FALSE(TraceWriter::Create(path, HistoryGeometry(), {5, 0, 16}).ok());
  EXPECT_FALSE(std::ifstream(path).good());
}

// ---- comparing

std::string Text(const Result<std::optional<TraceDifference>>& found) {
  if (!found.ok()) return found.error().message;
  if (!*found) return "equal";
  const TraceDifference& d = **found;
  const std::string epoch = d.epoch ? "epoch " + std::to_string(*d.epoch) + " " : "";
  return epoch + d.object + " " + d.field + ": " + d.first + " / " + d.second;
}

TEST(TraceDiff, NamesTheFirstEpochAndFieldThatDiffer) {
  const Bytes bytes = TraceBytes(9, 30);
  const auto reader = ReaderOf(bytes);
  EXPECT_EQ(Text(DiffTraces(*reader, *reader)), "equal");
  const auto diff = [&](const Bytes& other) { return Text(DiffTraces(*reader, *ReaderOf(other))); };
  size_t index = 10;
  while (reader->Read(index)->block.rows().size() < 2) ++index;
  const std::string epoch = "epoch " + std::to_string(index + 1) + " ";
  const int32_t token = reader->Read(index)->block.rows()[1].token;
  ASSERT_FALSE(reader->records()[index].key);
  EXPECT_EQ(
      diff(Forged(bytes, index,
                  [](auto payload) { payload[sizeof(FrameHead) + sizeof(Row)] ^= std::byte{1}; })),
      epoch + "row 1 token: " + std::to_string(token) + " / " + std::to_string(token ^ 1));
  EXPECT_THAT(
      diff(Forged(bytes, index,
                  [](auto payload) { payload[offsetof(FrameHead, chain_hash)] ^= std::byte{1}; })),
      ::testing::StartsWith(epoch + "head chain_hash: "));
  // Another history: some early difference, whatever it is.
  EXPECT_THAT(diff(TraceBytes(10, 30)), ::testing::StartsWith("epoch "));
}

TEST(TraceDiff, ComparesWhatBothHaveAndThenTheirEpochs) {
  const Bytes all = TraceBytes(9, 30), early = TraceBytes(9, 20), late = TraceBytes(9, 30, 10);
  EXPECT_EQ(Text(DiffTraces(*ReaderOf(all), *ReaderOf(early))), "trace epochs: 1 to 30 / 1 to 20");
  EXPECT_EQ(Text(DiffTraces(*ReaderOf(late), *ReaderOf(all))), "trace epochs: 11 to 30 / 1 to 30");
}

TEST(TraceDiff, BeginsWithTheGeometry) {
  const std::string path = TracePath("other");
  KvGeometry geometry = HistoryGeometry();
  geometry.groups[1].window_tokens = 48;
  ASSERT_TRUE(TraceWriter::Create(path, geometry, FrameHistory::kCapacity).ok());
  const Bytes other = ReadFile(path), bytes = TraceBytes(9, 3);
  EXPECT_EQ(Text(DiffTraces(*ReaderOf(bytes), *ReaderOf(other))), "group 1 window_tokens: 40 / 48");
}

}  // namespace
}  // namespace kvrm
