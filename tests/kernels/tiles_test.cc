// The tile (AMX) matmul kernels, on the model of the tile registers and, where the CPU has AMX, on its registers.
// Decode has the same bits as the class without tiles; prefill on the CPU has the same bits as on the model.
// tests/device/amx_check.cc checks the CPU further.

#include "tests/kernels/support.h"

using namespace forge;
using forge::test::Guarded;
using forge::test::Random;

namespace forge::cpu {
namespace class_tiles_generic {
MatmulFn matmul_of_blocks(DType type);
MatmulFn prompt_matmul_of_blocks(DType type);
}  // namespace class_tiles_generic
#if defined(__x86_64__)
namespace class_tiles_avx512 {
MatmulFn matmul_of_blocks(DType type);
MatmulFn prompt_matmul_of_blocks(DType type);
}  // namespace class_tiles_avx512
#endif
}  // namespace forge::cpu

namespace {

struct Model {
  std::string name;
  cpu::MatmulFn (*matmul)(DType type);
  cpu::MatmulFn (*prompt_matmul)(DType type);
  const cpu::Kernels* plain;
};
std::vector<Model> models() {
  std::vector<Model> out{{"generic", cpu::class_tiles_generic::matmul_of_blocks,
                          cpu::class_tiles_generic::prompt_matmul_of_blocks, &cpu::kernels(cpu::CpuClass::kGeneric)}};
#if defined(__x86_64__)
  if (cpu::runs_here(cpu::CpuClass::kAvx512Vnni))
    out.push_back({"avx512", cpu::class_tiles_avx512::matmul_of_blocks,
                   cpu::class_tiles_avx512::prompt_matmul_of_blocks, &cpu::kernels(cpu::CpuClass::kAvx512Vnni)});
  constexpr auto kAmx = cpu::CpuClass::kAvx512VnniAmx;
  if (cpu::runs_here(kAmx))
    out.push_back({"the CPU's own", [](DType type) { return cpu::kernels(kAmx).matmul(type); },
                   [](DType type) { return cpu::kernels(kAmx).prompt_matmul(type); },
                   &cpu::kernels(cpu::CpuClass::kAvx512Vnni)});
#endif
  return out;
}
std::vector<DType> types_of(const Model& model) {
  std::vector<DType> out;
  for (const DType type : test::block_types())
    if (model.matmul(type) != nullptr) out.push_back(type);
  return out;
}

struct Shape {
  std::size_t rows, columns, tokens;
  bool mapped = false;
};

/// A weight and rows of x of one shape, and the matmul that runs on them.
struct Inputs {
  Inputs(DType t, const Shape& of, unsigned seed) : Inputs(t, of, Random(seed)) {}

  /// Runs tokens [first, first + count); the rest of the result keeps its fill pattern.
  [[nodiscard]] std::vector<float> run(cpu::MatmulFn matmul, std::size_t first, std::size_t count) const {
    Guarded<float> out(count * stride - 3);
    matmul(weight.packed.data(), k, groups, x.data() + (shape.mapped ? 0 : first * x_stride), x_stride,
           shape.mapped ? map.data() + first : nullptr, count, out.data(), stride);
    out.check();
    return {out.data(), out.data() + out.size()};
  }
  [[nodiscard]] std::vector<float> run(cpu::MatmulFn matmul) const { return run(matmul, 0, shape.tokens); }
  [[nodiscard]] const std::byte* row(std::size_t token) const {
    return x.data() + (shape.mapped ? static_cast<std::size_t>(map[token]) : token) * x_stride;
  }

  DType type;
  Shape shape;
  std::size_t k, groups, x_stride, stride;
  test::Weight weight;
  std::vector<std::byte> x;
  std::vector<std::int32_t> map;

 private:
  Inputs(DType t, const Shape& of, Random random)
      : type(t),
        shape(of),
        k(test::whole_blocks(t, of.columns)),
        groups(quant::x16_groups(of.rows)),
        x_stride(quant::q8a_row_bytes(k)),
        stride(16 * groups + 3),
        weight(t, of.rows, k, random),
        x(test::q8a_rows(random.floats(of.tokens * k), k)),
        map(of.tokens) {
    for (auto& place : map) place = random.below(static_cast<int>(of.tokens));
  }
};

void check(const Model& model, DType type, const Shape& shape, unsigned seed) {
  const Inputs inputs(type, shape, seed);
  CAPTURE(model.name, dtype_name(type), shape.rows, inputs.k, shape.tokens, shape.mapped);
  const auto got = inputs.run(model.matmul(type)), want = inputs.run(model.plain->matmul(type));
  REQUIRE(!got.empty());
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (test::bits(got[i]) != test::bits(want[i]))
      FAIL("token " << i / inputs.stride << " row " << i % inputs.stride << ": " << got[i] << ", expected " << want[i]);
}

/// Runs `one` on a model, a type, fewer than `tokens` tokens and a shape, all drawn by RapidCheck.
template <class Check>
void check_any(Check one, std::size_t tokens) {
  const auto all = models();
  const auto& model = all[*rc::gen::inRange<std::size_t>(0, all.size())];
  const DType type = *rc::gen::elementOf(types_of(model));
  one(model, type,
      {*rc::gen::inRange<std::size_t>(1, 70), 32 * *rc::gen::inRange<std::size_t>(1, 60),
       *rc::gen::inRange<std::size_t>(1, tokens), *rc::gen::arbitrary<bool>()},
      *rc::gen::arbitrary<unsigned>());
}

}  // namespace

TEST_CASE("tiles give the same bits as the class without them, for every type") {
  for (const auto& model : models())
    for (const DType type : types_of(model)) {
      check(model, type, {33, 96, 24}, 1);          // an odd group, an odd number of parts
      check(model, type, {16, 32, 24}, 2);          // one part
      check(model, type, {40, 800, 19}, 3);         // a second strip of one part, a padded remainder
      check(model, type, {32, 1536, 27, true}, 4);  // rows at any address, a remainder for the kernel without tiles
    }
}

TEST_CASE("tiles with every number of tokens, also more than the panels hold") {
  for (const auto& model : models())
    for (const DType type : {DType::kQ4_1, DType::kQ6_K}) {
      for (std::size_t tokens = 1; tokens <= 26; ++tokens) check(model, type, {17, 64, tokens}, 5);
      check(model, type, {48, 64, 96 + 31}, 6);
    }
}

TEST_CASE("tiles: any shape") {
  rc::prop("is bit for bit the plain kernel's", [] { check_any(check, 40); });
}

TEST_CASE("tiles: the largest dot products are exact, and zero tokens or groups do nothing") {
  for (const auto& model : models())
    for (const DType type : types_of(model)) {
      const std::size_t k = test::whole_blocks(type, 64), stride = quant::q8a_row_bytes(k);
      Random random(7);
      test::Weight weight(type, 16, k, random);
      for (const int quant : {0x00, 0x7f, 0x80, 0xff}) {
        CAPTURE(model.name, dtype_name(type), quant);
        std::fill(weight.native.begin(), weight.native.end(), static_cast<std::byte>(quant));
        test::tame_scales(test::weight_blocks(type), weight.native);
        weight.pack();
        std::vector<float> x(24 * k, 127.0f);
        for (std::size_t i = k; i < 24 * k; ++i) x[i] = i % 3 ? -127.0f : 127.0f;
        const auto rows = test::q8a_rows(x, k);
        float got[24 * 16], want[24 * 16];
        model.matmul(type)(weight.packed.data(), k, 1, rows.data(), stride, nullptr, 24, got, 16);
        model.plain->matmul(type)(weight.packed.data(), k, 1, rows.data(), stride, nullptr, 24, want, 16);
        REQUIRE(test::same_bits(got, want, 24 * 16));
      }
      float out = 3;
      model.matmul(type)(nullptr, k, 0, nullptr, stride, nullptr, 40, &out, 16);
      model.matmul(type)(nullptr, k, 4, nullptr, stride, nullptr, 0, &out, 16);
      REQUIRE(out == 3);
    }
}

namespace {

/// Checks a prefill matmul: each sum is within two BF16 roundings of the exact one, nothing after its rows is written,
/// and a row alone has the same bits as among others. Returns the squares of all errors divided by those of all
/// products.
double check_prompt(const Model& model, DType type, const Shape& shape, unsigned seed) {
  const Inputs inputs(type, shape, seed);
  const std::size_t k = inputs.k, stride = inputs.stride;
  CAPTURE(model.name, dtype_name(type), shape.rows, k, shape.tokens, shape.mapped);
  const auto all = inputs.run(model.prompt_matmul(type));
  std::vector<float> weights(shape.rows * k);
  for (std::size_t r = 0; r < shape.rows; ++r)
    REQUIRE(
        quant::dequantize_row(type, quant::Layout::kNative, inputs.weight.native.data(), k, r, weights.data() + r * k));
  double error = 0, squares = 0;
  for (std::size_t t = 0; t < shape.tokens; ++t)
    for (std::size_t r = 0; r < shape.rows; ++r) {
      const auto* row = reinterpret_cast<const std::int8_t*>(inputs.row(t));
      const auto* scales = reinterpret_cast<const float*>(row + quant::q8a_scales_offset(k));
      double want = 0, magnitude = 0;
      for (std::size_t i = 0; i < k; ++i) {
        const double product = static_cast<double>(weights[r * k + i]) * static_cast<double>(scales[i / 32]) * row[i];
        want += product;
        magnitude += std::abs(product);
        squares += product * product;
      }
      const double off = static_cast<double>(all[t * stride + r]) - want;
      REQUIRE(std::abs(off) <= magnitude * 0x1.02p-7);  // 2^-8 for each factor, and the rounding of f32
      error += off * off;
    }
  for (std::size_t t = 0; t < shape.tokens; t += 1 + shape.tokens / 3) {
    const std::size_t count = std::min<std::size_t>(1 + seed % 5, shape.tokens - t);
    const auto some = inputs.run(model.prompt_matmul(type), t, count);
    for (std::size_t i = 0; i < count; ++i)
      REQUIRE(test::same_bits(some.data() + i * stride, all.data() + (t + i) * stride, 16 * inputs.groups));
  }
  return squares == 0 ? 0 : error / squares;
}

}  // namespace

TEST_CASE("BF16 prefill by tiles: close to the exact sums, and each row depends on itself alone") {
  for (const auto& model : models())
    for (const DType type : types_of(model)) {
      // Each factor's error is at most 2^-8, half of that on average: 2 * (2^-8)^2 / 6 of the products' squares.
      constexpr double kBound = 1e-5;
      REQUIRE(check_prompt(model, type, {33, 96, 24}, 1) <= kBound);  // an odd group, an odd panel, padded
      // A second strip, panels in pairs and a remainder.
      REQUIRE(check_prompt(model, type, {40, 800, 50}, 3) <= kBound);
      REQUIRE(check_prompt(model, type, {64, 1536, 32, true}, 4) <= kBound);  // rows at any address
      REQUIRE(check_prompt(model, type, {32, 64, 300}, 5) <= kBound);         // more than the panels hold
      check_prompt(model, type, {16, 32, 1}, 2);                              // one part, one row
    }
  rc::prop("any shape", [] { check_any(check_prompt, 70); });
}

TEST_CASE("BF16 prefill by tiles: classes with FMA give the same bits") {
  std::vector<Model> fused;
  for (const auto& model : models())
    if (test::fuses(*model.plain)) fused.push_back(model);
  if (fused.empty()) return tests::skip_case("this CPU runs no class with FMA that multiplies prompts by tiles");
  for (const auto& model : fused)
    for (const DType type : types_of(fused[0])) {
      const Inputs inputs(type, {48, 800, 21}, 11);
      CAPTURE(model.name, dtype_name(type));
      const auto got = inputs.run(model.prompt_matmul(type)), want = inputs.run(fused[0].prompt_matmul(type));
      REQUIRE(test::same_bits(got.data(), want.data(), got.size()));
    }
}
