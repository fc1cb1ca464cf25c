// The field list's laws: bytes do not depend on the machine, nothing is lost, everything is shown.
#include "frame/field_codec.h"

#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace kvrm {
namespace {

template <class T>
T RandomStruct(std::mt19937& random) {
  std::array<std::byte, sizeof(T)> bytes;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return std::bit_cast<T>(bytes);
}

template <class T>
class FieldCodec : public ::testing::Test {};
using Listed = ::testing::Types<FrameHead, Row, SlotHead, Delta, Segment>;
TYPED_TEST_SUITE(FieldCodec, Listed);

TYPED_TEST(FieldCodec, UnpackingWhatWasPackedGivesTheSameBytes) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    const auto object = RandomStruct<TypeParam>(random);
    std::array<std::byte, sizeof(TypeParam)> slow, quick;
    PackFields(FieldsOf<TypeParam>::list, &object, slow.data());
    Pack(&object, 1, quick.data());
    ASSERT_EQ(slow, quick);  // the short way of little-endian machines is the same
    TypeParam back{}, quick_back{};
    UnpackFields(FieldsOf<TypeParam>::list, slow.data(), &back);
    Unpack(slow.data(), 1, &quick_back);
    ASSERT_EQ(std::memcmp(&back, &object, sizeof object), 0);
    ASSERT_EQ(std::memcmp(&quick_back, &object, sizeof object), 0);
  }
}

TYPED_TEST(FieldCodec, EveryByteThatDiffersIsFoundUnderTheNameOfItsField) {
  std::mt19937 random(2);
  const auto object = RandomStruct<TypeParam>(random);
  EXPECT_FALSE(FirstDifference(object, object).has_value());
  for (const Field& field : FieldsOf<TypeParam>::list) {
    for (uint32_t byte = 0; byte < field.bytes(); ++byte) {
      auto other = object;
      reinterpret_cast<unsigned char*>(&other)[field.offset + byte] ^= 0x40;
      const auto difference = FirstDifference(object, other);
      ASSERT_TRUE(difference.has_value());
      EXPECT_EQ(difference->name, FieldName(field, byte / field.width));
      EXPECT_NE(difference->first, difference->second);
    }
  }
}

TYPED_TEST(FieldCodec, ReservedBytesAreTheOnlyOnesThatMustBeZero) {
  for (const Field& field : FieldsOf<TypeParam>::list) {
    for (uint32_t byte = 0; byte < field.bytes(); ++byte) {
      TypeParam object{};
      reinterpret_cast<unsigned char*>(&object)[field.offset + byte] = 1;
      const auto found = NonzeroReserved(object);
      ASSERT_EQ(found.has_value(), field.kind == FieldKind::kReserved) << field.name;
      if (found) {
        EXPECT_EQ(found->name, FieldName(field, byte / field.width));
      }
    }
  }
}

TEST(FieldBytes, AreLittleEndianAtTheStatedOffsets) {
  Row row{};
  row.token = -2;
  row.slot = 0x0102;
  row.position = 0x01020304;
  std::array<std::byte, sizeof(Row)> bytes;
  PackFields(FieldsOf<Row>::list, &row, bytes.data());
  EXPECT_EQ(bytes[0], std::byte{0xFE});
  EXPECT_EQ(bytes[3], std::byte{0xFF});
  EXPECT_EQ(bytes[4], std::byte{0x02});
  EXPECT_EQ(bytes[5], std::byte{0x01});
  EXPECT_EQ(bytes[8], std::byte{0x04});
  EXPECT_EQ(bytes[11], std::byte{0x01});
}

TEST(FieldText, ShowsEachKindOfFieldAndHidesReservedZeros) {
  Segment segment{};
  segment.offset_bytes = 12'288;
  segment.position_shift = -16;
  segment.score_bias = 0.5f;
  segment.row_mask = ~uint64_t{0};
  EXPECT_EQ(FieldsText(segment),
            "offset_bytes 12288, first_token 0, num_pages 0, first_page 0, position_shift -16, "
            "score_bias 0.5, kv_group 0, head_begin 0, head_end 0, layer_begin 0, layer_end 0, "
            "row_mask ffffffffffffffff");
  segment.reserved1 = 7;
  EXPECT_THAT(FieldsText(segment), ::testing::HasSubstr("layer_end 0, reserved1 7, row_mask"));
  SlotHead slot{};
  slot.num_tokens[1] = 3;
  EXPECT_THAT(FieldsText(slot), ::testing::HasSubstr("num_tokens [0, 3, 0, 0], first_token"));
}

TEST(FieldJson, SaysEveryFieldInJson) {
  Delta delta{};
  delta.slot = 2;
  delta.kind = DeltaKind::kHole;
  delta.count = 5;
  EXPECT_EQ(FieldsJson(delta),
            "{\"slot\":2,\"kv_group\":0,\"kind\":4,\"index\":0,\"page\":0,\"count\":5,"
            "\"first_token_place\":0,\"reserved\":0}");
  Segment segment{};
  segment.score_bias = std::numeric_limits<float>::infinity();
  EXPECT_THAT(FieldsJson(segment), ::testing::HasSubstr("\"score_bias\":null,"));
  FrameHead head{};
  head.magic = kFrameMagic;
  EXPECT_THAT(FieldsJson(head), ::testing::HasSubstr("{\"magic\":\"4652564b\",\"version\":0,"));
  EXPECT_THAT(FieldsJson(head), ::testing::HasSubstr("\"reserved\":[0,0,0,0,0]}"));
}

}  // namespace
}  // namespace kvrm
