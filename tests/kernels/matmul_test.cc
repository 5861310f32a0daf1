// CPU matmul kernels: agree with the scalar definition, and give the same bits in every tiling.

#include "tests/kernels/support.h"

using namespace forge;
using forge::test::Guarded;
using forge::test::Random;

namespace {

template <class Block>
float quantised_reference(const std::byte* native, const std::byte* x, std::size_t k) {
  const auto* q = reinterpret_cast<const std::int8_t*>(x);
  const auto* scale = reinterpret_cast<const float*>(x + quant::q8a_scales_offset(k));
  const auto* sum = reinterpret_cast<const float*>(x + quant::q8a_sums_offset(k));
  float total = 0;
  for (std::size_t b = 0; b < k / Block::kElems; ++b) {
    Block block;
    std::memcpy(&block, native + b * sizeof(Block), sizeof(Block));
    if constexpr (quant::HasPacking<Block>) {
      std::uint8_t raw[Block::kElems];
      raw_values(block, raw);
      // One sub-block after another, each with its own scale.
      for (unsigned s = 0; s < Block::kElems / Block::kSub; ++s) {
        const std::size_t first = b * Block::kElems + s * Block::kSub;
        int dot = 0, x_total = 0;
        for (unsigned i = 0; i < Block::kSub; ++i) {
          dot += raw[s * Block::kSub + i] * q[first + i];
          x_total += q[first + i];
        }
        const float x_scale = scale[first / 32];
        if (!Block::kMinimum) dot -= static_cast<int>(Block::kZero) * x_total;
        total = std::fma(quant::sub_scale(block, s) * x_scale, static_cast<float>(dot), total);
        if (Block::kMinimum)
          total = std::fma(quant::sub_offset(block, s), x_scale * static_cast<float>(x_total), total);
      }
    } else {
      int dot = 0;
      for (int i = 0; i < 32; ++i) dot += static_cast<int>(raw_value(block, i)) * q[32 * b + static_cast<unsigned>(i)];
      if constexpr (!std::is_same_v<Block, quant::BlockQ4_1>) {
        const int bias = std::is_same_v<Block, quant::BlockQ8_0> ? 128 : 8;
        for (unsigned i = 0; i < 32; ++i) dot -= bias * q[32 * b + i];
      }
      total = std::fma(quant::block_scale(block) * scale[b], static_cast<float>(dot), total);
      if constexpr (std::is_same_v<Block, quant::BlockQ4_1>)
        total = std::fma(quant::block_offset(block), sum[b], total);
    }
  }
  return total;
}

float float_reference(const float* w, const float* x, std::size_t k) {
  float total = 0;
  for (std::size_t block = 0; block < k; block += 256) {
    float chains[2] = {};
    for (std::size_t i = block; i < std::min(k, block + 256); ++i) chains[i % 2] = std::fma(w[i], x[i], chains[i % 2]);
    total += chains[0] + chains[1];
  }
  return total;
}

/// The reference for classes that multiply BF16: x is rounded to BF16, and columns are summed in pairs, the odd one
/// first.
float bf16_reference(const float* w, const float* x, std::size_t k) {
  std::vector<float> rounded(k);
  for (std::size_t i = 0; i < k; ++i) rounded[i] = quant::f32_of_bf16(quant::bf16_of_f32(x[i]));
  float total = 0;
  for (std::size_t block = 0; block < k; block += 256) {
    float chains[2] = {};
    for (std::size_t i = block; i < std::min(k, block + 256); i += 2) {
      float& chain = chains[i / 2 % 2];
      if (i + 1 < k) chain += w[i + 1] * rounded[i + 1];
      chain += w[i] * rounded[i];
    }
    total += chains[0] + chains[1];
  }
  return total;
}

/// The contract of kernels.h, for one row.
float reference(const cpu::Kernels& kernels, const test::Weight& weight, std::size_t row, const std::byte* x) {
  const std::byte* native = weight.native.data() + row * row_bytes(weight.type, weight.k);
  float value = 0;
  if (quant::with_block(weight.type, [&]<class Block>(std::type_identity<Block>) {
        value = quantised_reference<Block>(native, x, weight.k);
      }))
    return value;
  std::vector<float> w(weight.k);
  quant::dequantize_native(weight.type, native, weight.k, w.data());
  const bool is_dot = weight.type == DType::kBF16 && cpu::uses_bf16_dots(kernels.cpu_class);
  return (is_dot ? bf16_reference : float_reference)(w.data(), reinterpret_cast<const float*>(x), weight.k);
}

/// Root mean square of a row's values, at least 1. The rounding error of the generic class is proportional to it.
float magnitude(const test::Weight& weight, std::size_t row) {
  std::vector<float> w(weight.k);
  quant::dequantize_native(weight.type, weight.native.data() + row * row_bytes(weight.type, weight.k), weight.k,
                           w.data());
  double squares = 0;
  for (const float value : w) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::max(1.0f, static_cast<float>(std::sqrt(squares / static_cast<double>(weight.k))));
}

struct Input {
  std::vector<std::byte> rows;
  std::size_t stride;
};
Input input_for(DType type, std::size_t tokens, std::size_t k, Random& random) {
  const auto x = random.floats(tokens * k);
  if (!is_float(type)) return {test::q8a_rows(x, k), quant::q8a_row_bytes(k)};
  std::vector<std::byte> bytes(x.size() * 4);
  std::memcpy(bytes.data(), x.data(), bytes.size());
  return {bytes, 4 * k};
}

void check_against_reference(const cpu::Kernels& kernels, DType type, std::size_t rows, std::size_t columns,
                             std::size_t tokens, unsigned seed) {
  const std::size_t k = test::whole_blocks(type, columns);
  CAPTURE(test::label(kernels), dtype_name(type), rows, k, tokens);
  Random random(seed);
  const test::Weight weight(type, rows, k, random);
  const Input x = input_for(type, tokens, k, random);
  const std::size_t padded = 16 * quant::x16_groups(rows), stride = padded + 5;
  Guarded<float> out(tokens * stride - 5, seed % 3);
  kernels.matmul(type)(weight.packed.data(), k, quant::x16_groups(rows), x.rows.data(), x.stride, nullptr, tokens,
                       out.data(), stride);
  out.check();
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t n = 0; n < rows; ++n) {
      const float want = reference(kernels, weight, n, x.rows.data() + t * x.stride), got = out[t * stride + n];
      if (test::fuses(kernels)
              ? test::bits(want) != test::bits(got)
              : !(std::fabs(want - got) <= 1e-5f * std::sqrt(static_cast<float>(k)) * 4 * magnitude(weight, n)))
        FAIL("row " << n << " token " << t << ": " << got << ", expected " << want);
    }
    for (std::size_t n = rows; n < padded; ++n) REQUIRE(out[t * stride + n] == 0);
    for (std::size_t n = padded; n < stride && t + 1 < tokens; ++n) REQUIRE(std::isnan(out[t * stride + n]));
  }
}

}  // namespace

TEST_CASE("matmul fulfils its contract in every class and tile size") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const DType type : test::all_types()) {
      for (std::size_t tokens = 1; tokens <= 14; ++tokens) check_against_reference(*kernels, type, 33, 96, tokens, 1);
      check_against_reference(*kernels, type, 16, 32, 1, 2);
      check_against_reference(*kernels, type, 1, 4160, 29, 3);   // several strips of k
      check_against_reference(*kernels, type, 20, 20512, 1, 4);  // more than one strip for one token
    }
}

namespace {

/// Checks one random shape of a type on a random class.
void check_random_shape(DType type) {
  const auto all = test::all_kernels();
  const cpu::Kernels& kernels = *all[*rc::gen::inRange<std::size_t>(0, all.size())];
  const auto rows = *rc::gen::inRange<std::size_t>(1, 60), k = 32 * *rc::gen::inRange<std::size_t>(1, 60);
  const auto tokens = *rc::gen::weightedOneOf<std::size_t>(
      {{1, rc::gen::just<std::size_t>(1)}, {2, rc::gen::inRange<std::size_t>(2, 30)}});
  check_against_reference(kernels, type, rows, k, tokens, *rc::gen::arbitrary<unsigned>());
}

}  // namespace

TEST_CASE("any shape, with one row or many, has the scalar reference's bits") {
  rc::prop("of any type", [] { check_random_shape(*rc::gen::elementOf(test::all_types())); });
}

TEST_CASE("every type: 1,000 shapes have the scalar reference's bits", "[.nightly]") {
  for (const DType type : test::all_types())
    for (int round = 0; round < 10; ++round)  // 100 shapes each
      rc::prop(std::string(dtype_name(type)), [&] { check_random_shape(type); });
}

TEST_CASE("float weights take any k") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
      for (std::size_t k = 1; k <= 9; ++k) check_against_reference(*kernels, type, 17, k, 5, 5);
}

// The kernels process large weights in pieces that fit into L2; the pieces must not show in the results.
TEST_CASE("splitting many groups to fit L2 does not change results") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    check_against_reference(*kernels, DType::kQ8_0, 512, 2048, 13, 6);
}

TEST_CASE("extreme quants neither saturate nor overflow") {
  // All weights at one end of their range and all x at +-127 give the largest possible dot products.
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const DType type : test::block_types())
      for (const int quant : {0x00, 0x7f, 0x80, 0xff}) {
        CAPTURE(test::label(*kernels), dtype_name(type), quant);
        Random random(7);
        const std::size_t k = test::whole_blocks(type, 64);
        test::Weight weight(type, 16, k, random);
        std::fill(weight.native.begin(), weight.native.end(), static_cast<std::byte>(quant));
        test::tame_scales(test::weight_blocks(type), weight.native);
        weight.pack();
        std::vector<float> x(3 * k, 127.0f);
        for (std::size_t i = k; i < 2 * k; ++i) x[i] = -127.0f;
        for (std::size_t i = 2 * k; i < 3 * k; i += 2) x[i] = -127.0f;
        const auto rows = test::q8a_rows(x, k);
        const std::size_t stride = quant::q8a_row_bytes(k);
        float out[3][16], alone[16];
        kernels->matmul(type)(weight.packed.data(), k, 1, rows.data(), stride, nullptr, 3, out[0], 16);
        kernels->matmul(type)(weight.packed.data(), k, 1, rows.data(), stride, nullptr, 1, alone, 16);
        REQUIRE(test::same_bits(alone, out[0], 16));
        for (std::size_t t = 0; t < 3; ++t)
          for (std::size_t n = 0; n < 16; ++n) {
            const float want = reference(*kernels, weight, n, rows.data() + t * stride);
            REQUIRE(out[t][n] == Approx(want).epsilon(1e-5).margin(0.01));
            if (test::fuses(*kernels)) REQUIRE(test::bits(out[t][n]) == test::bits(want));
          }
      }
}

TEST_CASE("blocks with equal activations are as exact as others") {
  // All 32 quants are then +-127, and for one scale in seven scale * sum / scale exceeds their sum slightly.
  std::vector<float> values;
  for (int i = 1; i <= 40; ++i)
    values.insert(values.end(), {0.1f * static_cast<float>(i), -0.1f * static_cast<float>(i)});
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const DType type : test::block_types()) {
      CAPTURE(test::label(*kernels), dtype_name(type));
      Random random(11);
      const std::size_t k = test::whole_blocks(type, 64);
      const test::Weight weight(type, 16, k, random);
      std::vector<float> x;
      for (const float value : values) x.insert(x.end(), k, value);
      const auto rows = test::q8a_rows(x, k);
      const std::size_t stride = quant::q8a_row_bytes(k), tokens = values.size();
      std::vector<float> out(tokens * 16), alone(16);
      kernels->matmul(type)(weight.packed.data(), k, 1, rows.data(), stride, nullptr, tokens, out.data(), 16);
      for (std::size_t t = 0; t < tokens; ++t) {
        CAPTURE(values[t]);
        kernels->matmul(type)(weight.packed.data(), k, 1, rows.data() + t * stride, stride, nullptr, 1, alone.data(),
                              16);
        REQUIRE(test::same_bits(alone.data(), out.data() + 16 * t, 16));
        for (std::size_t n = 0; n < 16; ++n) {
          const float want = reference(*kernels, weight, n, rows.data() + t * stride);
          REQUIRE(out[16 * t + n] == Approx(want).epsilon(1e-4).margin(1e-3));
        }
      }
    }
}

// Batch invariance of matmuls: each random window of groups, with tokens selected through a row map, must repeat the
// bits of the full product.
TEST_CASE("a result depends only on its row and its token") {
  rc::prop("any window of tokens and groups, through a row map, gives the same bits", [] {
    const auto all = test::all_kernels();
    const cpu::Kernels& kernels = *all[*rc::gen::inRange<std::size_t>(0, all.size())];
    const DType type = *rc::gen::elementOf(test::all_types());
    const std::size_t k = test::whole_blocks(type, 32 * *rc::gen::inRange<std::size_t>(1, 50));
    const std::size_t groups = *rc::gen::inRange<std::size_t>(1, 6);
    const std::size_t tokens = *rc::gen::inRange<std::size_t>(1, 40);
    Random random(*rc::gen::arbitrary<unsigned>());
    const test::Weight weight(type, 16 * groups, k, random);
    const Input x = input_for(type, tokens, k, random);
    const std::size_t width = 16 * groups;
    std::vector<float> whole(tokens * width);
    kernels.matmul(type)(weight.packed.data(), k, groups, x.rows.data(), x.stride, nullptr, tokens, whole.data(),
                         width);

    const std::size_t group0 = *rc::gen::inRange<std::size_t>(0, groups);
    const auto map = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::int32_t>>(
        rc::gen::inRange<std::int32_t>(0, static_cast<std::int32_t>(tokens))));
    std::vector<float> part(map.size() * width);
    kernels.matmul(type)(weight.packed.data() + group0 * quant::x16_group_bytes(type, k), k, groups - group0,
                         x.rows.data(), x.stride, map.data(), map.size(), part.data(), width);
    for (std::size_t t = 0; t < map.size(); ++t)
      RC_ASSERT(test::same_bits(part.data() + t * width,
                                whole.data() + static_cast<std::size_t>(map[t]) * width + 16 * group0,
                                width - 16 * group0));
  });
}

TEST_CASE("zero tokens or zero groups do nothing") {
  for (const cpu::Kernels* kernels : test::all_kernels())
    for (const DType type : test::all_types()) {
      float out = 3;
      kernels->matmul(type)(nullptr, 64, 0, nullptr, 64, nullptr, 4, &out, 16);
      kernels->matmul(type)(nullptr, 64, 4, nullptr, 64, nullptr, 0, &out, 16);
      REQUIRE(out == 3);
    }
}

TEST_CASE("other types have no kernel") {
  for (const cpu::Kernels* kernels : test::all_kernels()) {
    REQUIRE(kernels->matmul(DType::kQ8_1) == nullptr);
    for (const auto type : {DType::kQ8A_32, DType::kQ8A_16}) REQUIRE(kernels->matmul(type) == nullptr);
  }
}
