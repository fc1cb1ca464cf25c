// docs/frame.md stays honest: its worked examples are what these frames print.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/superblock.h"
#include "frame/fields.h"
#include "frame/frame.h"
#include "frame/frame_testing.h"
#include "frame/trace_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvrm {
namespace {

using ::testing::IsEmpty;
using testing::MakeBuilder;
using testing::MakeDelta;
using testing::MakeRow;
using testing::MakeSlot;

std::string Document() {
  std::ifstream in(KVRM_SOURCE_DIR "/docs/frame.md");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// A group at fp16 of `layers` layers, as the superblock rule makes it.
KvGroupGeometry Fp16Group(uint32_t layers, uint32_t kv_heads, uint32_t head_size,
                          uint32_t window_tokens = 0) {
  KvGroupGeometry group;
  group.kind = window_tokens > 0 ? KvGroupKind::kSliding : KvGroupKind::kFull;
  group.window_tokens = window_tokens;
  group.num_parts = layers;
  group.part_page_bytes = uint64_t{kv_heads} * head_size * 2 * 2 * group.page_tokens;
  const auto choice = ChooseSuperblock(group.num_parts, group.part_page_bytes);
  KVRM_CHECK(choice.ok(), "the superblock rule takes the models of the document");
  group.superblock_bytes = choice->superblock_bytes;
  group.pages_per_superblock = choice->pages_per_superblock;
  return group;
}

std::string GeometryText(const KvGeometry& geometry) {
  std::string out;
  for (size_t g = 0; g < geometry.groups.size(); ++g) {
    const KvGroupGeometry& group = geometry.groups[g];
    const uint64_t used = group.pages_per_superblock * group.page_bytes();
    char line[200];
    std::snprintf(
        line, sizeof line,
        "group %zu: %s, %u layers: b = %llu, S = %llu, P = %u; %.1f %% of S unused, a full "
        "run of %llu bytes\n",
        g, group.kind == KvGroupKind::kSliding ? "sliding" : "full", group.num_parts,
        static_cast<unsigned long long>(group.part_page_bytes),
        static_cast<unsigned long long>(group.superblock_bytes), group.pages_per_superblock,
        100.0 * static_cast<double>(group.superblock_bytes - used) /
            static_cast<double>(group.superblock_bytes),
        static_cast<unsigned long long>(group.part_stride_bytes()));
    out += line;
  }
  return out;
}

Row TokenRow(uint16_t slot, uint32_t kv_index, int32_t token, uint32_t logits_idx = kNone32) {
  Row row = MakeRow(slot, kv_index, logits_idx);
  row.token = token;
  return row;
}

SlotHead Head(uint16_t slot, uint32_t seq_id, uint32_t num_tokens, uint32_t row_begin,
              uint32_t num_rows, uint32_t groups = 1) {
  SlotHead head = MakeSlot(slot, num_tokens, row_begin, num_rows, groups);
  head.seq_id = seq_id;
  return head;
}

// The last frame of `builder`, sound and shown in the document.
void ExpectInDocument(const KvGeometry& geometry, const FrameView& frame,
                      const FrameHead& previous) {
  EXPECT_THAT(ValidateFrame(geometry, frame, &previous), IsEmpty());
  const std::string document = Document();
  for (const std::string& text : {GeometryText(geometry), DumpFrame(geometry, frame)}) {
    EXPECT_NE(document.find("```\n" + text + "```\n"), std::string::npos)
        << "docs/frame.md should have:\n```\n"
        << text << "```";
  }
}

TEST(FrameDocument, ShowsSmolLm2WithItsOneGroup) {
  KvGeometry geometry;
  geometry.groups = {Fp16Group(/*layers=*/30, /*kv_heads=*/3, /*head_size=*/64)};
  const auto builder = MakeBuilder(geometry, {.max_slots = 4, .max_rows = 64, .max_pages = 128});
  const FrameHead previous =
      *builder
           ->Publish(1, {}, std::vector{Head(0, 32, 256, 0, 0), Head(1, 33, 16, 0, 0)},
                     std::vector{MakeDelta(DeltaKind::kAppend, 0, 0, 1, 16),
                                 MakeDelta(DeltaKind::kAppend, 1, 0, 17, 1)})
           .head;
  const FrameView frame = builder->Publish(
      2,
      std::vector{TokenRow(0, 256, 28, 0), TokenRow(2, 0, 1), TokenRow(2, 1, 9690),
                  TokenRow(2, 2, 198, 1)},
      std::vector{Head(0, 32, 257, 0, 1), Head(1, 33, 16, 1, 0), Head(2, 34, 3, 1, 3)},
      std::vector{MakeDelta(DeltaKind::kAppend, 0, 16, 18, 1),
                  MakeDelta(DeltaKind::kAppend, 2, 0, 19, 1)});
  ExpectInDocument(geometry, frame, previous);
}

TEST(FrameDocument, ShowsGemma3WithAFullAndASlidingGroup) {
  KvGeometry geometry;
  geometry.groups = {
      Fp16Group(/*layers=*/3, /*kv_heads=*/1, /*head_size=*/256),
      Fp16Group(/*layers=*/15, /*kv_heads=*/1, /*head_size=*/256, /*window_tokens=*/512)};
  const auto builder = MakeBuilder(geometry, {.max_slots = 4, .max_rows = 64, .max_pages = 128});
  const FrameHead previous =
      *builder
           ->Publish(1, {}, std::vector{Head(0, 70, 591, 0, 0, 2)},
                     std::vector{MakeDelta(DeltaKind::kAppend, 0, 0, 1, 37, 0),
                                 MakeDelta(DeltaKind::kAppend, 0, 0, 1, 16, 1),
                                 MakeDelta(DeltaKind::kAppend, 0, 16, 17, 17, 1),
                                 MakeDelta(DeltaKind::kAppend, 0, 33, 34, 4, 1),
                                 MakeDelta(DeltaKind::kHole, 0, 0, 0, 4, 1)})
           .head;
  const FrameView frame = builder->Publish(
      2, std::vector{TokenRow(0, 591, 818, 0), TokenRow(1, 800, 107), TokenRow(1, 801, 4368, 1)},
      std::vector{Head(0, 70, 592, 0, 1, 2), Head(1, 71, 802, 1, 2, 2)},
      std::vector{MakeDelta(DeltaKind::kHole, 0, 4, 0, 1, 1),
                  MakeDelta(DeltaKind::kAppend, 1, 0, 42, 42, 0),
                  MakeDelta(DeltaKind::kAppend, 1, 42, 84, 8, 0),
                  MakeDelta(DeltaKind::kHole, 1, 0, 0, 18, 1),
                  MakeDelta(DeltaKind::kAppend, 1, 18, 51, 17, 1),
                  MakeDelta(DeltaKind::kAppend, 1, 35, 68, 15, 1),
                  MakeDelta(DeltaKind::kExtend, 1, 50, 92, 1, 0),
                  MakeDelta(DeltaKind::kExtend, 1, 50, 83, 1, 1)});
  ExpectInDocument(geometry, frame, previous);
}

// ---- the grammar

// "magic:4 version:4 ... num_tokens:4{4} ..." of a field list.
template <class T>
std::string Grammar() {
  std::string out;
  for (const Field& field : FieldsOf<T>::list) {
    if (!out.empty()) out += ' ';
    out += field.name;
    out += ':' + std::to_string(field.kind == FieldKind::kReserved ? field.bytes() : field.width);
    if (field.count > 1 && field.kind != FieldKind::kReserved) {
      out += '{' + std::to_string(field.count) + '}';
    }
  }
  return out;
}

// Words alone, so that the document may break lines where it likes.
std::string OneBlank(const std::string& text) {
  std::istringstream words(text);
  std::string out, word;
  while (words >> word) out += (out.empty() ? "" : " ") + word;
  return out;
}

template <class T>
void ExpectGrammarInDocument() {
  const std::string rule =
      std::string(FieldsOf<T>::name) + " = " + Grammar<T>() + " ; " + std::to_string(sizeof(T));
  EXPECT_NE(OneBlank(Document()).find(rule), std::string::npos)
      << "docs/frame.md should have: " << rule;
}

TEST(FrameDocument, StatesEveryLayoutAsTheFieldListDoes) {
  ExpectGrammarInDocument<FrameHead>();
  ExpectGrammarInDocument<Row>();
  ExpectGrammarInDocument<SlotHead>();
  ExpectGrammarInDocument<Delta>();
  ExpectGrammarInDocument<Segment>();
  ExpectGrammarInDocument<TraceFileHead>();
  ExpectGrammarInDocument<TraceGroup>();
  ExpectGrammarInDocument<TraceLayer>();
  ExpectGrammarInDocument<TraceRecordHead>();
  ExpectGrammarInDocument<TraceKeyHead>();
}

}  // namespace
}  // namespace kvrm
