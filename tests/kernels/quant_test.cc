// The block formats, q8a activation quantisation and the x16 weight layout are exact to their definitions.

#include "kernels/quant/fp8.h"
#include "tests/kernels/support.h"

#include <limits>
#include <type_traits>
#include <vector>

using namespace forge;
using namespace forge::quant;
using forge::test::Guarded;
using forge::test::Random;

namespace {

// f16 by definition: sign, exponent, mantissa.
double f16_by_definition(std::uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("every f16 widens to its value and narrows back to its bits") {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    const float wide = f32_of_f16(half);
    if ((half & 0x7fff) > 0x7c00) {
      REQUIRE(std::isnan(wide));
      REQUIRE((f16_of_f32(wide) & 0x7fff) > 0x7c00);
    } else {
      if ((half & 0x7fff) < 0x7c00) REQUIRE(static_cast<double>(wide) == f16_by_definition(half));
      REQUIRE(f16_of_f32(wide) == half);
    }
  }
  REQUIRE(f32_of_f16(0x7c00) == std::numeric_limits<float>::infinity());
  REQUIRE(std::signbit(f32_of_f16(0x8000)));
}

TEST_CASE("f32 narrows to the nearest f16, ties to even") {
  for (std::uint32_t i = 0; i < 0x7c00; ++i) {  // values around the midpoint of every two neighbours
    const double low = f16_by_definition(static_cast<std::uint16_t>(i));
    const double high = i == 0x7bff ? 65536.0 : f16_by_definition(static_cast<std::uint16_t>(i + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const auto even = static_cast<std::uint16_t>(i % 2 == 0 ? i : i + 1);
    REQUIRE(f16_of_f32(middle) == even);
    REQUIRE(f16_of_f32(std::nextafter(middle, 0.0f)) == i);
    REQUIRE(f16_of_f32(std::nextafter(middle, 1e9f)) == i + 1);
    REQUIRE(f16_of_f32(-middle) == (even | 0x8000));
  }
  REQUIRE(f16_of_f32(1e30f) == 0x7c00);
  REQUIRE(f16_of_f32(1e-30f) == 0);
}

TEMPLATE_TEST_CASE("8-bit floats: each code has its number, and f32 narrows to the nearest one, ties to even", "",
                   E4M3<false>, E4M3<true>) {
  constexpr bool kFnuz = std::is_same_v<TestType, E4M3<true>>;
  constexpr int kCodes = kFnuz ? 128 : 127, kSign = 128;  // codes that are numbers and not negative
  const auto by_definition = [](int code) {
    const int exponent = code / 8, mantissa = code % 8, bias = kFnuz ? 8 : 7;
    return std::ldexp(exponent == 0 ? mantissa : mantissa + 8, std::max(exponent, 1) - bias - 3);
  };
  const auto narrow = [](double value) { return static_cast<int>(TestType::of_f32(static_cast<float>(value))); };
  for (int code = 0; code < kCodes; ++code) {
    const auto number = by_definition(code);
    REQUIRE(static_cast<double>(TestType::to_f32(static_cast<std::uint8_t>(code))) == number);
    REQUIRE(narrow(number) == code);
    const int negative = kFnuz && code == 0 ? 0 : code + kSign;
    REQUIRE(narrow(-number) == negative);
    if (code > 0) REQUIRE(static_cast<double>(TestType::to_f32(static_cast<std::uint8_t>(negative))) == -number);
    if (code + 1 == kCodes) break;
    const auto middle = static_cast<float>((number + by_definition(code + 1)) / 2);
    REQUIRE(narrow(middle) == (code % 2 == 0 ? code : code + 1));
    REQUIRE(narrow(std::nextafter(middle, 0.0F)) == code);
    REQUIRE(narrow(std::nextafter(middle, 1e9F)) == code + 1);
  }
  CHECK(by_definition(kCodes - 1) == (kFnuz ? 240 : 448));
  for (const double large : {kFnuz ? 241.0 : 449.0, 256.0 * (kFnuz ? 1 : 2), 1e30, static_cast<double>(INFINITY)}) {
    CHECK(narrow(large) == kCodes - 1);
    CHECK(narrow(-large) == kCodes - 1 + kSign);
  }
  for (const int nan : kFnuz ? std::vector{kSign} : std::vector{kCodes, kCodes + kSign})
    CHECK(std::isnan(TestType::to_f32(static_cast<std::uint8_t>(nan))));
  CHECK(std::isnan(TestType::to_f32(TestType::of_f32(NAN))));
  CHECK(narrow(-1e-30) == (kFnuz ? 0 : kSign));
}

TEST_CASE("f32 narrows to the nearest bf16, ties to even") {
  rc::prop("against rounding in double", [] {
    const auto pattern = *rc::gen::arbitrary<std::uint32_t>();
    const float value = f32_of_bits(pattern);
    if (std::isnan(value)) {
      RC_ASSERT(std::isnan(f32_of_bf16(bf16_of_f32(value))));
      return;
    }
    const std::uint32_t low = pattern & 0xffff0000u, rest = pattern & 0xffffu;
    const bool up = rest > 0x8000u || (rest == 0x8000u && (low & 0x10000u));
    RC_ASSERT(bf16_of_f32(value) == static_cast<std::uint16_t>((low >> 16) + (up ? 1 : 0)));
  });
}

TEMPLATE_TEST_CASE("a block keeps its values within half a step, and affine form equals dequantisation", "", BlockQ8_0,
                   BlockQ4_0, BlockQ4_1) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const auto x = random.floats(32, round % 3 == 0 ? 1e-3f : 10.0f);
    TestType block;
    float back[32];
    quantize_block(x.data(), block);
    dequantize_block(block, back);
    // For Q4_0 a whole step: the extreme value of the other sign is clipped.
    const float step = std::fabs(block_scale(block)) * (sizeof(TestType) == 18 ? 1.1f : 0.6f) + 1e-5f;
    for (int i = 0; i < 32; ++i) {
      REQUIRE(std::fabs(back[i] - x[static_cast<std::size_t>(i)]) <= step + 0.001f * std::fabs(back[i]));
      const float affine = block_scale(block) * static_cast<float>(raw_value(block, i)) + block_offset(block);
      REQUIRE(affine == Approx(back[i]).margin(1e-4));
    }
  }
  const float zeros[32] = {};
  TestType block;
  float back[32];
  quantize_block(zeros, block);
  dequantize_block(block, back);
  for (const float value : back) REQUIRE(value == 0);
}

TEST_CASE("Q4 nibbles have the order of GGUF files") {
  BlockQ4_1 block{f16_of_f32(2.0f), f16_of_f32(-3.0f), {}};
  block.qs[5] = 0xa7;
  float out[32];
  dequantize_block(block, out);
  REQUIRE(out[5] == 2.0f * 7 - 3);
  REQUIRE(out[21] == 2.0f * 10 - 3);
  BlockQ4_0 old{f16_of_f32(0.5f), {}};
  old.qs[0] = 0x0f;
  dequantize_block(old, out);
  REQUIRE(out[0] == 3.5f);
  REQUIRE(out[16] == -4.0f);
}

TEST_CASE("q8a rows: strides, zeros and non-finite values") {
  REQUIRE(q8a_row_bytes(32) == 64);
  REQUIRE(q8a_row_bytes(576) == 768);
  REQUIRE(q8a_row_bytes(2048) == 2560);
  float x[32] = {};
  std::int8_t q[32];
  float scale = 1, sum = 1;
  quantize_q8a_block(x, q, &scale, &sum);
  REQUIRE((scale == 0 && sum == 0 && q[0] == 0));
  x[3] = -254;
  x[4] = 1;  // 0.5 steps: rounds to even, 0
  x[5] = 3;  // 1.5 steps: rounds to even, 2
  quantize_q8a_block(x, q, &scale, &sum);
  REQUIRE(scale == 2);
  REQUIRE((q[3] == -127 && q[4] == 0 && q[5] == 2));
  REQUIRE(sum == 2.0f * -125);
  for (float& each : x) each *= 0x1p-110f;  // too small for a reciprocal: all quants are zero
  quantize_q8a_block(x, q, &scale, &sum);
  REQUIRE((scale == 0x1p-109f && q[3] == 0 && sum == 0));
  for (float& each : x) each *= 0x1p110f;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    x[7] = bad;
    quantize_q8a_block(x, q, &scale, &sum);
    REQUIRE((std::isnan(scale) && std::isnan(sum) && q[3] == 0));
  }
}

TEST_CASE("x16 gives back its rows' values, and their bytes where it keeps them, and pads with zeros") {
  Random random(2);
  for (const DType type : test::all_types())
    for (const std::size_t rows : {1, 15, 16, 17, 50})
      for (const std::size_t columns : {32, 96, 576}) {
        const std::size_t k = test::whole_blocks(type, columns);
        CAPTURE(dtype_name(type), rows, k);
        const test::Weight weight(type, rows, k, random);
        const std::size_t bytes = row_bytes(type, k), groups = x16_groups(rows);
        REQUIRE(weight.packed.size() == groups * x16_group_bytes(type, k));
        Guarded<std::byte> native(rows * bytes);
        if (unpack_rows(type, k, 0, groups, weight.packed.data(),
                        [&](std::size_t row) { return row < rows ? native.data() + row * bytes : nullptr; }))
          REQUIRE(std::memcmp(native.data(), weight.native.data(), rows * bytes) == 0);
        native.check();
        std::vector<float> a(k), b(k);
        for (std::size_t row = 0; row < groups * 16; ++row) {
          REQUIRE(dequantize_row(type, Layout::kX16, weight.packed.data(), k, row, b.data()));
          if (row < rows) {
            REQUIRE(dequantize_row(type, Layout::kNative, weight.native.data(), k, row, a.data()));
            REQUIRE(test::same_bits(a.data(), b.data(), k));
          } else {
            for (const float value : b) REQUIRE(value == 0);
          }
        }
      }
}

TEST_CASE(
    "x16 is no larger than the file, except for grids, base 3 and single bits, which take at most 4.5 bits a weight") {
  for (const DType type : test::block_types()) {
    CAPTURE(dtype_name(type));
    const bool grid = dtype_name(type).starts_with("iq1") || dtype_name(type).starts_with("iq2") ||
                      dtype_name(type).starts_with("iq3") || type == DType::kTQ1_0 || type == DType::kQ1_0;
    const std::size_t row = layout_row_bytes(Layout::kX16, type, 256);
    if (grid)
      CHECK((row > row_bytes(type, 256) && row * 8 <= 256 * 9 / 2));
    else
      CHECK(row == row_bytes(type, 256));
    CHECK(layout_row_bytes(Layout::kNative, type, 256) == row_bytes(type, 256));
  }
}

TEMPLATE_TEST_CASE("x16: a group is contiguous, and a unit has its scales right after its quants", "", BlockQ8_0,
                   BlockQ4_0, BlockQ4_1) {
  using Unit = X16Unit<TestType>;
  REQUIRE(Unit::kBytes % 64 == 0);
  REQUIRE(Unit::kBytes == Unit::kBlocks * 16 * sizeof(TestType));
  for (std::size_t blocks = 1; blocks < 8; ++blocks) {
    std::size_t end = 0;
    for (std::size_t first = 0; first < blocks; first += Unit::kBlocks) {
      const std::size_t count = std::min(Unit::kBlocks, blocks - first);
      for (std::size_t i = 0; i < count; ++i, end += Unit::kQuantBytes)
        REQUIRE(x16_place<TestType>(blocks, first + i).quants == end);
      for (std::size_t i = 0; i < count; ++i, end += Unit::kScaleBytes)
        REQUIRE(x16_place<TestType>(blocks, first + i).scales == end);
    }
    REQUIRE(end == blocks * 16 * sizeof(TestType));
  }
}

TEST_CASE("x16: quants and scales are where the kernels read them") {
  Random random(3);
  test::Weight weight(DType::kQ4_1, 16, 64, random);
  BlockQ4_1 block;
  std::memcpy(&block, weight.native.data() + 7 * row_bytes(DType::kQ4_1, 64) + sizeof(block),
              sizeof(block));  // row 7, block 1
  const auto* group = reinterpret_cast<const std::uint8_t*>(weight.packed.data());
  REQUIRE(group[320 + 2 * 64 + 7 * 4 + 3] == block.qs[11]);
  REQUIRE(std::memcmp(group + 320 + 256 + 2 * 7, &block.d, 2) == 0);
  REQUIRE(std::memcmp(group + 320 + 256 + 32 + 2 * 7, &block.m, 2) == 0);
  test::Weight bytes(DType::kQ8_0, 16, 96, random);
  const auto* row = bytes.native.data() + 7 * row_bytes(DType::kQ8_0, 96);
  BlockQ8_0 wide[3];
  std::memcpy(wide, row, sizeof(wide));
  group = reinterpret_cast<const std::uint8_t*>(bytes.packed.data());
  REQUIRE(group[512 + 2 * 64 + 7 * 4 + 3] == wide[1].qs[11] + 128);
  REQUIRE(std::memcmp(group + 1024 + 32 + 2 * 7, &wide[1].d, 2) == 0);
  REQUIRE(group[1088 + 2 * 64 + 7 * 4 + 3] == wide[2].qs[11] + 128);  // the unit that is not full
  REQUIRE(std::memcmp(group + 1088 + 512 + 2 * 7, &wide[2].d, 2) == 0);
}

TEST_CASE("a slice of groups packs like the whole, from rows of several tensors") {
  Random random(4);
  const std::size_t k = 96, bytes = row_bytes(DType::kQ8_0, k);
  const test::Weight all(DType::kQ8_0, 70, k, random);
  std::vector<std::byte> slice(2 * x16_group_bytes(DType::kQ8_0, k));
  cpu::pack_rows(
      cpu::kernels(cpu::CpuClass::kGeneric), DType::kQ8_0, k, 3, 2,
      [&](std::size_t row) { return row < 70 ? all.native.data() + row * bytes : nullptr; }, slice.data());
  REQUIRE(std::memcmp(slice.data(), all.packed.data() + 3 * x16_group_bytes(DType::kQ8_0, k), slice.size()) == 0);
}

// Each class has its own compilation of the packer, and all must write the same x16 layout.
TEST_CASE("every class packs the same bytes at any alignment and writes nothing outside") {
  Random random(5);
  for (const auto* kernels : test::all_kernels())
    for (const DType type : test::all_types())
      for (const std::size_t rows : {16, 3})
        for (const std::size_t columns : {32, 37, 320}) {
          const std::size_t k = is_float(type) ? columns : test::whole_blocks(type, columns);
          CAPTURE(test::label(*kernels), dtype_name(type), rows, k);
          const test::Weight weight(type, rows, k, random);
          Guarded<std::byte> native(weight.native.size(), 2), packed(weight.packed.size(), 1);
          std::memcpy(native.data(), weight.native.data(), native.size());
          const std::byte* at[kX16Rows]{};
          for (std::size_t row = 0; row < rows; ++row) at[row] = native.data() + row * row_bytes(type, k);
          kernels->pack(type)(at, k, packed.data());
          packed.check();
          REQUIRE(std::memcmp(packed.data(), weight.packed.data(), packed.size()) == 0);
        }
}

TEST_CASE("types that no weight can have are refused") {
  std::byte bytes[256]{};
  float out[256];
  REQUIRE_FALSE(has_kernels(DType::kQ8_1));
  REQUIRE_FALSE(dequantize_row(DType::kQ8_1, Layout::kNative, bytes, 256, 0, out));
  REQUIRE_FALSE(dequantize_row(DType::kQ8_K, Layout::kX16, bytes, 256, 0, out));
  REQUIRE_FALSE(quantize_row(DType::kQ4_K, out, 256, bytes));
  for (const auto cpu_class : cpu::all_classes()) REQUIRE(cpu::kernels(cpu_class).pack(DType::kI32) == nullptr);
}
