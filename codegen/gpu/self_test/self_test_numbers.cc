// Expected results of SelfTestNumbers (kernels/gpu/self_test/self_test.h).
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "codegen/gpu/self_test/self_test_kernels.h"
#include "kernels/gpu/self_test/self_test_io.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/fp8.h"

namespace forge::codegen {
namespace {

using namespace gpu::self_test;

/// Edge cases of conversions and arithmetic: zeros, subnormals, rounding ties, the largest f16 values, infinities, NaN;
/// then ties, subnormals and the largest values of 8-bit floats.
constexpr float kEdges[] = {0.0F,
                            -0.0F,
                            1.0F,
                            -1.0F,
                            0x1p-149F,
                            -0x1p-149F,
                            0x1p-126F,
                            0x1p-127F,
                            0x1p-24F,
                            0x1p-25F,
                            0x1.8p-25F,
                            0x1.000002p-25F,
                            0x1p-14F,
                            0x1.ffcp-15F,
                            65504.0F,
                            -65504.0F,
                            65519.996F,
                            65520.0F,
                            65536.0F,
                            2049.0F,
                            2051.0F,
                            0x1.002p0F,
                            0x1.006p0F,
                            0x1.00201p0F,
                            0x1p127F,
                            0x1.fffffep127F,
                            0.5F,
                            1.5F,
                            2.5F,
                            -2.5F,
                            0.49999997F,
                            8388609.0F,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            0x1.1p0F,
                            0x1.3p0F,
                            0x1p-9F,
                            0x1p-10F,
                            0x1.8p-9F,
                            0x1p-11F,
                            232.0F,
                            240.0F,
                            248.0F,
                            448.0F,
                            -464.0F,
                            480.0F};

/// [NumberInput][kNumbers].
struct Inputs {
  std::vector<std::uint32_t> words;
  [[nodiscard]] std::uint32_t word(int input, std::size_t i) const { return words[input * kNumbers + i]; }
  [[nodiscard]] float number(int input, std::size_t i) const { return number_of(word(input, i)); }
};

Inputs make_inputs() {
  Inputs in;
  TestWords random(2);
  for (int input = 0; input < kNumberInputs; ++input)
    for (int i = 0; i < kNumbers; ++i) {
      std::uint32_t word = random.next();
      if (input >= kMildX) word = word_of(random.number(0, input == kMildX ? 100.0F : 4.0F));
      if (input == kMildX && i % 4 == 0) word = word_of(number_of(word) * 0x1p-6F);  // near 1, where log2 is small
      in.words.push_back(word);
    }
  // kAnyX and kAnyY have all pairs of edge cases, kMildX has each of them once.
  constexpr std::size_t kCount = std::size(kEdges);
  static_assert(kCount * kCount <= kNumbers);
  for (std::size_t a = 0; a < kCount; ++a)
    for (std::size_t b = 0; b < kCount; ++b) {
      in.words[kAnyX * kNumbers + a * kCount + b] = word_of(kEdges[a]);
      in.words[kAnyY * kNumbers + a * kCount + b] = word_of(kEdges[b]);
    }
  for (std::size_t a = 0; a < kCount; ++a) in.words[kMildX * kNumbers + a] = word_of(kEdges[a]);
  return in;
}

std::uint32_t dot4(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  for (int shift = 0; shift < 32; shift += 8)
    c += static_cast<std::uint32_t>(static_cast<std::int8_t>(a >> shift) * static_cast<std::int8_t>(b >> shift));
  return c;
}
/// Byte `index` of the 16 bytes in four words.
std::uint32_t byte_of(const std::uint32_t (&words)[4], std::uint32_t index) {
  return words[index / 4] >> index % 4 * 8 & 255U;
}
std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint32_t words[4] = {b, a, 0, 0};
  std::uint32_t out = 0;
  for (int shift = 0; shift < 32; shift += 8) out |= byte_of(words, selector >> shift & 7U) << shift;
  return out;
}
std::uint32_t lookup4(std::uint32_t codes, std::uint32_t a, std::uint32_t b) {
  const std::uint32_t words[4] = {a, b, ~a, ~b};
  std::uint32_t out = 0;
  for (int shift = 0; shift < 32; shift += 8) out |= byte_of(words, codes >> shift & 15U) << shift;
  return out;
}
std::uint32_t half_pair(float low, float high) {
  return quant::f16_of_f32(low) | static_cast<std::uint32_t>(quant::f16_of_f32(high)) << 16;
}
std::uint32_t bf16_pair(float low, float high) {
  return quant::bf16_of_f32(low) | static_cast<std::uint32_t>(quant::bf16_of_f32(high)) << 16;
}

/// The expected word of result `r` (NumberResult) for element i.
std::uint32_t expected(const Inputs& in, int r, std::size_t i) {
  const std::uint32_t a = in.word(kWordA, i), b = in.word(kWordB, i), c = in.word(kWordC, i);
  const float any_x = in.number(kAnyX, i), any_y = in.number(kAnyY, i), x = in.number(kMildX, i),
              y = in.number(kMildY, i), z = in.number(kMildZ, i);
  if (r >= kByte && r < kByte + 4) return word_of(static_cast<float>(a >> 8 * (r - kByte) & 255U));
  switch (r) {
    case kFloatToHalf:
      return quant::f16_of_f32(any_x);
    case kHalfPair:
      return half_pair(any_x, y);
    case kBf16Pair:
      return bf16_pair(x, y);
    case kDot4:
      return dot4(a, b, c);
    case kPermute:
      return permute(a, b, c & 0x07070707U);
    case kLookup4:
      return lookup4(c & 0x0f0f0f0fU, a, b);
    case kOpaque:
      return a;
    case kExp2:
      return word_of(static_cast<float>(std::exp2(static_cast<double>(x))));
    case kLog2:
      return word_of(static_cast<float>(std::log2(static_cast<double>(std::fabs(x)))));
    case kSqrt:
      return word_of(std::sqrt(std::fabs(any_x)));
    case kDivide:
      return word_of(any_x / y);
    case kQuotient:
      return word_of(x / y);
    case kInverseSqrt:
      return word_of(1.0F / std::sqrt(std::fabs(x) + 0x1p-20F));
    case kFma:
      return word_of(std::fma(any_x, y, z));
    case kMulAdd:
      return word_of(x * y + z);
    case kSubnormal:
      return word_of(x * 0x1p-120F);
    case kRound:
      return word_of(std::nearbyint(x));
    case kAbs:
      return word_of(std::fabs(any_x));
    case kMin:
      return word_of(any_x < any_y ? any_x : any_y);
    default:
      return word_of(any_x > any_y ? any_x : any_y);
  }
}

/// The expected word of an fp8 result.
template <bool Fnuz>
std::uint32_t expected_fp8(const Inputs& in, int r, std::size_t i) {
  using Fp8 = quant::E4M3<Fnuz>;
  const auto number = [&](int byte) { return Fp8::to_f32(static_cast<std::uint8_t>(in.word(kWordA, i) >> 8 * byte)); };
  if (r == kFp8Pair) return word_of(Fp8::to_f32(Fp8::of_f32(in.number(kAnyX, i))));
  if (r == kFp8Pair + 1) return word_of(Fp8::to_f32(Fp8::of_f32(in.number(kMildY, i))));
  if (r < kFp8Halves) return word_of(number(r - kFp8Numbers));
  const int first = 2 * (r - kFp8Halves);
  return half_pair(number(first), number(first + 1));
}

struct Row {
  int result;
  const char* name;
  SelfTestMatch match;
  float relative = 0, absolute = 0;
};
// exp2 and log2 use the hardware's instructions, which are approximate; exp2 may flush subnormal results to zero.
constexpr Row kRows[] = {
    {kFloatToHalf, "f16_of_f32", SelfTestMatch::kHalves},
    {kHalfPair, "f16_pair", SelfTestMatch::kHalfPairs},
    {kBf16Pair, "bf16_pair", SelfTestMatch::kBf16Pairs},
    {kDot4, "dot4", SelfTestMatch::kWords},
    {kPermute, "permute", SelfTestMatch::kWords},
    {kLookup4, "lookup4", SelfTestMatch::kWords},
    {kByte + 0, "byte_number<0>", SelfTestMatch::kFloats},
    {kByte + 1, "byte_number<1>", SelfTestMatch::kFloats},
    {kByte + 2, "byte_number<2>", SelfTestMatch::kFloats},
    {kByte + 3, "byte_number<3>", SelfTestMatch::kFloats},
    {kExp2, "exp2_of", SelfTestMatch::kNear, 1e-6F, 0x1p-126F},
    {kLog2, "log2_of", SelfTestMatch::kNear, 1e-6F, 1e-6F},
    {kSqrt, "sqrt_of", SelfTestMatch::kFloats},
    {kDivide, "division", SelfTestMatch::kFloats},
    {kQuotient, "quotient_of", SelfTestMatch::kNear, 5e-7F, 0x1p-126F},
    {kInverseSqrt, "inverse_sqrt_of", SelfTestMatch::kNear, 5e-7F, 0x1p-126F},
    {kFma, "fma_of", SelfTestMatch::kFloats},
    {kMulAdd, "product and sum, not contracted", SelfTestMatch::kFloats},
    {kSubnormal, "subnormal products", SelfTestMatch::kFloats},
    {kRound, "round_of", SelfTestMatch::kFloats},
    {kAbs, "abs_of", SelfTestMatch::kFloats},
    {kMin, "min_of", SelfTestMatch::kFloats},
    {kMax, "max_of", SelfTestMatch::kFloats},
    {kOpaque, "opaque", SelfTestMatch::kWords},
};
constexpr Row kFp8Rows[] = {
    {kFp8Pair + 0, "fp8_pair, low", SelfTestMatch::kFloats},
    {kFp8Pair + 1, "fp8_pair, high", SelfTestMatch::kFloats},
    {kFp8Numbers + 0, "fp8_numbers, 0", SelfTestMatch::kFloats},
    {kFp8Numbers + 1, "fp8_numbers, 1", SelfTestMatch::kFloats},
    {kFp8Numbers + 2, "fp8_numbers, 2", SelfTestMatch::kFloats},
    {kFp8Numbers + 3, "fp8_numbers, 3", SelfTestMatch::kFloats},
    {kFp8Halves + 0, "fp8_halves<0>", SelfTestMatch::kHalfPairs},
    {kFp8Halves + 1, "fp8_halves<1>", SelfTestMatch::kHalfPairs},
};

}  // namespace

SelfTestKernel self_test_numbers(const GpuTarget& target) {
  KernelText text{
      .header = "kernels/gpu/self_test/self_test.h", .kernel = "SelfTestNumbers", .defaults = {}, .before = {}};
  text.has_lds = false;
  text.blocks = kNumbers / kNumberThreads;
  text.threads = kNumberThreads;
  text.min_blocks = 2;  // covers FORGE_KERNEL_BOUNDS, which kernels of plans use too
  auto kernel = self_test_kernel(target, "numbers", std::move(text));
  const Inputs in = make_inputs();
  kernel.input = in.words;
  kernel.out_words = std::size_t{kNumberResults} * kNumbers;
  SelfTestSection halves{.name = "f32_of_f16", .first = kHalfToFloat * kNumbers, .match = SelfTestMatch::kFloats};
  for (std::uint32_t half = 0; half < 65536; ++half)
    halves.expected.push_back(word_of(quant::f32_of_f16(static_cast<std::uint16_t>(half))));
  kernel.sections.push_back(std::move(halves));
  const auto add = [&](const Row& row, auto&& expected_of) {
    SelfTestSection section{.name = row.name,
                            .first = static_cast<std::size_t>(row.result) * kNumbers,
                            .match = row.match,
                            .relative = row.relative,
                            .absolute = row.absolute};
    for (std::size_t i = 0; i < kNumbers; ++i) section.expected.push_back(expected_of(in, row.result, i));
    kernel.sections.push_back(std::move(section));
  };
  for (const auto& row : kRows)
    if (row.result != kPermute || target.permutes) add(row, expected);
  for (const auto& row : kFp8Rows)
    if (target.fp8 != Fp8Kind::kNone) add(row, target.fp8 == Fp8Kind::kFnuz ? expected_fp8<true> : expected_fp8<false>);
  return kernel;
}

}  // namespace forge::codegen
