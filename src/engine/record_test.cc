// A record replayed gives the same commits and tokens, whatever the clock shows now; one that was
// changed is told, with the step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstring>
#include <thread>

#include "engine/record_fields.h"
#include "engine/record_testing.h"
#include "frame/field_codec.h"

namespace kvrm {
namespace {

using testing::FileBytes;
using testing::Greedy;
using ::testing::HasSubstr;
using testing::PacedRig;
using testing::RandomPrompt;
using testing::ReadBytes;
using testing::Recorded;
using testing::RecordedOptions;
using testing::RecordLoad;
using testing::RecordPath;
using testing::ReplayBytes;
using testing::RigHeader;

using Bytes = std::vector<std::byte>;

// ---- replay

class RecordReplay : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RecordReplay, GivesTheSameCommitsAndTokens) {
  const Recorded recorded = RecordLoad(GetParam());
  ASSERT_GT(recorded.metrics.sched.preempted, 0u);
  ASSERT_GT(recorded.metrics.requests_cancelled, 0u);
  const auto report = ReplayBytes(FileBytes(recorded.path));
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_FALSE(report->divergence) << report->divergence->step << ": " << report->divergence->what;
  EXPECT_EQ(report->chain_hash, recorded.chain_hash);
  EXPECT_EQ(report->commits, recorded.metrics.commits);
  EXPECT_GT(report->steps, report->commits);  // some were rolled back
  EXPECT_EQ(report->tokens, recorded.metrics.output_tokens);
  EXPECT_EQ(report->requests, recorded.metrics.requests_submitted);
  EXPECT_TRUE(report->closed);
}
// Seeds of loads in which sequences lose their pages.
INSTANTIATE_TEST_SUITE_P(Seeds, RecordReplay, ::testing::Values<uint64_t>(1, 2, 3, 5, 6, 7, 8));

// The clock does decide: the same load under one ten times as slow is cut into other steps. So a
// record would be worth little that left its readings out.
TEST(Record, UnderAClockTenTimesAsSlowTheSameLoadIsOtherStepsAndItsRecordStillReplays) {
  const Recorded usual = RecordLoad(3);
  const Bytes usual_bytes = FileBytes(usual.path);
  const Recorded slow = RecordLoad(3, 40, /*slowness=*/10);
  EXPECT_NE(slow.chain_hash, usual.chain_hash);
  for (const Bytes& bytes : {usual_bytes, FileBytes(slow.path)}) {
    const auto report = ReplayBytes(bytes);
    ASSERT_TRUE(report.ok());
    EXPECT_FALSE(report->divergence);
  }
}

TEST(Record, AnEngineThatIsSetUpOtherwiseIsRefused) {
  const Bytes bytes = FileBytes(RecordLoad(4, 3).path);
  const auto reader = RecordReader::FromBytes(bytes);
  ASSERT_TRUE(reader.ok());
  RecordHeader header = (*reader)->header();
  header.settings.max_itl_us /= 2;
  testing::Replayer replayer(header);
  const auto report = replayer.Run(**reader);
  ASSERT_FALSE(report.ok());
  EXPECT_THAT(report.error().message, HasSubstr("max_itl_us is 4500, recorded 9000"));
}

// With the same settings, but step times that another machine measured: it parts somewhere.
TEST(Record, OtherStepTimesThanTheRecordedOnesDivergeAndTheStepIsTold) {
  const Bytes bytes = FileBytes(RecordLoad(4).path);
  const auto reader = RecordReader::FromBytes(bytes);
  ASSERT_TRUE(reader.ok());
  RecordHeader header = (*reader)->header();
  for (StepSample& sample : header.step_samples) sample.us *= 3;
  testing::Replayer replayer(header);
  const auto report = replayer.Run(**reader);
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_TRUE(report->divergence);
  EXPECT_GT(report->divergence->step, 0u);
  EXPECT_EQ(report->divergence->step, report->steps);
}

// ---- what was changed

struct Place {
  size_t offset;
  uint64_t step;
  RecordKind kind;
};

// Where each entry begins, told by lengths alone.
std::vector<Place> PlacesOf(const Bytes& bytes) {
  RecordFileHead file_head;
  Unpack(bytes.data(), 1, &file_head);
  std::vector<Place> places;
  uint64_t step = 0;
  for (size_t at = file_head.header_bytes; at < bytes.size();) {
    RecordHead head;
    Unpack(bytes.data() + at, 1, &head);
    step += head.kind == RecordKind::kStep ? 1 : 0;
    places.push_back({at, step, head.kind});
    at += sizeof head + head.payload_bytes;
  }
  return places;
}

// Checksums that fit what the entries say.
void Mend(Bytes& bytes) {
  RecordFileHead file_head;
  Unpack(bytes.data(), 1, &file_head);
  uint64_t checksum = file_head.checksum;
  for (const Place& place : PlacesOf(bytes)) {
    RecordHead head;
    Unpack(bytes.data() + place.offset, 1, &head);
    const auto payload = std::span(bytes).subspan(place.offset + sizeof head, head.payload_bytes);
    head.checksum = checksum = RecordChecksum(head, payload, checksum);
    Pack(&head, 1, bytes.data() + place.offset);
  }
}

// Every entry once, each time at another of its bytes.
TEST(Record, AFlippedByteIsReportedWithItsStep) {
  const Bytes bytes = FileBytes(RecordLoad(5, 12).path);
  const std::vector<Place> places = PlacesOf(bytes);
  ASSERT_GT(places.size(), 100u);
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t end = i + 1 < places.size() ? places[i + 1].offset : bytes.size();
    const size_t at = places[i].offset + i * 7 % (end - places[i].offset);
    Bytes flipped = bytes;
    flipped[at] ^= std::byte{0x10};
    const Status read = ReadBytes(flipped);
    ASSERT_FALSE(read.ok()) << "byte " << at;
    // A flipped kind may be taken for a step, or no longer for one.
    const std::string told = read.error().message;
    const auto names = [&](uint64_t step) {
      return told.find("in step " + std::to_string(step) + ":") != std::string::npos;
    };
    EXPECT_TRUE(names(places[i].step) || names(places[i].step + 1) || names(places[i].step - 1))
        << told;
    EXPECT_THAT(told, HasSubstr("at offset " + std::to_string(places[i].offset)));
  }
}

TEST(Record, AFlippedByteOfTheHeaderIsReported) {
  const Bytes bytes = FileBytes(RecordLoad(5, 2).path);
  const size_t header_bytes = PlacesOf(bytes).front().offset;
  for (size_t at = 0; at < header_bytes; ++at) {
    Bytes flipped = bytes;
    flipped[at] ^= std::byte{1};
    const auto reader = RecordReader::FromBytes(flipped);
    ASSERT_FALSE(reader.ok()) << "byte " << at;
    EXPECT_THAT(reader.error().message, HasSubstr("record header: "));
  }
}

// With checksums that fit, so that only the replay can tell.
TEST(Record, AnotherTokenDivergesAtItsStep) {
  const Bytes bytes = FileBytes(RecordLoad(6, 12).path);
  uint32_t changed = 0;
  for (const Place& place : PlacesOf(bytes)) {
    if (place.kind != RecordKind::kCommit) continue;
    RecordOutcome outcome;
    const size_t at = place.offset + sizeof(RecordHead) + sizeof(RecordCommit);
    Unpack(bytes.data() + at, 1, &outcome);
    if (outcome.num_tokens == 0 || place.step % 16 != 3) continue;
    Bytes spoilt = bytes;
    spoilt[at + sizeof outcome + offsetof(RecordToken, token)] ^= std::byte{1};
    Mend(spoilt);
    const auto report = ReplayBytes(spoilt);
    ASSERT_TRUE(report.ok()) << report.error().message;
    ASSERT_TRUE(report->divergence);
    EXPECT_EQ(report->divergence->step, place.step);
    EXPECT_THAT(report->divergence->what, HasSubstr("gets token "));
    ++changed;
  }
  EXPECT_GT(changed, 3u);
}

TEST(Record, AnotherReadingOfTheClockDiverges) {
  Bytes bytes = FileBytes(RecordLoad(3).path);
  for (const Place& place : PlacesOf(bytes)) {  // from the middle on every other step is longer
    if (place.kind != RecordKind::kStep || place.offset < bytes.size() / 2) continue;
    RecordClock clock;
    Unpack(bytes.data() + place.offset + sizeof(RecordHead), 1, &clock);
    clock.now_us += 40'000 * (static_cast<int64_t>(place.step) / 2);
    Pack(&clock, 1, bytes.data() + place.offset + sizeof(RecordHead));
  }
  Mend(bytes);
  const auto report = ReplayBytes(bytes);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->divergence);
}

// Its process died: whole entries up to somewhere, or half of one.
TEST(Record, ACutRecordReplaysUpToTheCut) {
  const Bytes bytes = FileBytes(RecordLoad(7, 8).path);
  const std::vector<Place> places = PlacesOf(bytes);
  const size_t last = places.back().offset;
  const auto whole = ReplayBytes(std::span(bytes).first(last));
  ASSERT_TRUE(whole.ok());
  EXPECT_FALSE(whole->closed);
  EXPECT_FALSE(whole->divergence);
  for (size_t cut = places[places.size() - 3].offset + 1; cut < last; ++cut) {
    if (cut == places[places.size() - 2].offset) continue;
    const Status read = ReadBytes(std::span(bytes).first(cut));
    ASSERT_FALSE(read.ok());
    EXPECT_THAT(read.error().message, ::testing::AnyOf(HasSubstr("the file ends within it"),
                                                       HasSubstr("are left in the file")));
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_THAT(ReadBytes(longer).error().message, HasSubstr("come after the entry that closes"));
}

TEST(Record, EntriesOutOfOrderAreRefused) {
  const Bytes bytes = FileBytes(RecordLoad(8, 6).path);
  const std::vector<Place> places = PlacesOf(bytes);
  for (const auto& [kind, words] : {std::pair{RecordKind::kCommit, "commit outside a step"},
                                    std::pair{RecordKind::kStep, "must be commit or rollback"}}) {
    Bytes spoilt(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(places.front().offset));
    for (size_t i = 0; i < places.size(); ++i) {
      // A step goes with what ends it, so the other is left alone.
      const bool ends =
          places[i].kind == RecordKind::kCommit || places[i].kind == RecordKind::kRollback;
      if (kind == RecordKind::kCommit ? places[i].kind == RecordKind::kStep : ends) continue;
      const size_t end = i + 1 < places.size() ? places[i + 1].offset : bytes.size();
      spoilt.insert(spoilt.end(), bytes.begin() + static_cast<ptrdiff_t>(places[i].offset),
                    bytes.begin() + static_cast<ptrdiff_t>(end));
    }
    Mend(spoilt);
    const auto report = ReplayBytes(spoilt);
    ASSERT_FALSE(report.ok());
    EXPECT_THAT(report.error().message, HasSubstr(words));
  }
}

// ---- writing

TEST(RecordWriter, OnlyTheOwnerMayReadItEvenWhereAFileWasBefore) {
  std::ofstream(RecordPath()) << "open to all";
  ASSERT_EQ(::chmod(RecordPath().c_str(), 0666), 0);
  struct stat info{};
  ASSERT_EQ(::stat(RecordLoad(1, 2).path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

TEST(RecordWriter, AFullDiskAtTheStartIsAnError) {
  const auto writer = RecordWriter::Create("/dev/full", {});
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().kind, ErrorKind::kNoRoom);
  EXPECT_THAT(writer.error().message, HasSubstr("/dev/full: the record cannot be written: "));
  EXPECT_THAT(RecordWriter::Create("/no/such/folder/x.kvrec", {}).error().message,
              HasSubstr("/no/such/folder/x.kvrec: the record cannot be made"));
}

// Records while files may have 16 KiB, a limit that stands for a disk that fills. Exit code 7: the
// engine served all, and the log was told once.
[[noreturn]] void RecordUntilFull(const std::string& path) {
  const rlimit limit{16384, 16384};
  std::signal(SIGXFSZ, SIG_IGN);
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) std::_Exit(3);
  const auto rig = PacedRig(RecordedOptions(), 1, 1);
  int told = 0;
  auto writer = RecordWriter::Create(path, RigHeader(rig->engine(), RecordedOptions()),
                                     {.log = [&](std::string_view) { ++told; }});
  if (!writer.ok()) std::_Exit(4);
  rig->engine().SetRecorder(writer->get());
  testing::RunIrregularLoad(*rig, 1, 60);
  const Status closed = (*writer)->Close();
  const bool served = rig->sink().num_finished() == 61;
  std::_Exit(served && told == 1 && !closed.ok() && closed.error().kind != ErrorKind::kInvalidInput
                 ? 7
                 : 5);
}

TEST(RecordWriterDeathTest, AFullDiskEndsTheRecordAndNotTheEngine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = RecordPath();
  EXPECT_EXIT(RecordUntilFull(path), ::testing::ExitedWithCode(7), "");
  const Bytes bytes = FileBytes(path);
  EXPECT_LE(bytes.size(), 16384u);
  const auto report = ReplayBytes(bytes);  // cut back to a whole entry
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_FALSE(report->divergence);
  EXPECT_FALSE(report->closed);
  EXPECT_GT(report->commits, 10u);
}

TEST(RecordWriter, ADiskThatIsTooSlowEndsTheRecordAndNotTheEngine) {
  const std::string path = RecordPath();
  const auto rig = PacedRig(RecordedOptions(), 1, 1);
  std::atomic<int> told{0};
  auto writer = RecordWriter::Create(
      path, RigHeader(rig->engine(), RecordedOptions()),
      {.buffer_bytes = 300, .log = [&](std::string_view) { ++told; }});  // no prompt fits
  ASSERT_TRUE(writer.ok());
  rig->engine().SetRecorder(writer->get());
  testing::RunIrregularLoad(*rig, 1, 40);
  EXPECT_EQ(rig->sink().num_finished(), 41u);
  EXPECT_THAT((*writer)->Close().error().message, HasSubstr("300 bytes"));
  EXPECT_EQ(told, 1);
  const auto report = ReplayBytes(FileBytes(path));
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_FALSE(report->divergence);
}

TEST(RecordWriter, AFlushLeavesNothingBehind) {
  const auto rig = PacedRig(RecordedOptions(), 1, 1);
  auto writer = RecordWriter::Create(RecordPath(), RigHeader(rig->engine(), RecordedOptions()));
  ASSERT_TRUE(writer.ok());
  rig->engine().SetRecorder(writer->get());
  rig->Submit(Greedy(RandomPrompt(20, 1), 5));
  for (uint64_t step = 1; step <= 4; ++step) {
    rig->engine().Step();
    (*writer)->Flush();
    const auto report = ReplayBytes(FileBytes(RecordPath()));
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->commits, step);
  }
}

// A law that breaks is what a record is wanted for most.
TEST(RecordWriterDeathTest, AFailedCheckFlushesFirst) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string path = RecordPath();
  EXPECT_DEATH(
      {
        const auto rig = PacedRig(RecordedOptions(), 1, 1);
        auto writer = RecordWriter::Create(path, RigHeader(rig->engine(), RecordedOptions()));
        rig->engine().SetRecorder(writer->get());
        rig->Submit(Greedy(RandomPrompt(20, 1), 5));
        for (int i = 0; i < 3; ++i) rig->engine().Step();
        KVRM_CHECK(false, "a law that a test breaks");
      },
      "a law that a test breaks");
  const auto report = ReplayBytes(FileBytes(path));
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->commits, 3u);
  EXPECT_FALSE(report->closed);
}

}  // namespace
}  // namespace kvrm
