// CPU class names, RoPE tables and embedding rows.

#include <numbers>

#include "kernels/cpu/rope.h"
#include "tests/kernels/support.h"
#include "tests/support/skip.h"

using namespace forge;
using forge::test::Guarded;
using forge::test::Random;

TEST_CASE("class names parse back, and each kernel table reports its class") {
  for (const auto c : cpu::all_classes()) {
    REQUIRE(cpu::parse(cpu::name(c)) == c);
    const auto got = cpu::kernels(c).cpu_class;
    REQUIRE((got == c || (got == cpu::CpuClass::kGeneric && !cpu::runs_here(c))));
    // A class of this architecture that this CPU cannot run, so no test here covers it.
    if (!cpu::runs_here(c) && cpu::name(c).substr(0, 3) == cpu::name(cpu::detect()).substr(0, 3))
      tests::skip_part("this CPU does not run class " + std::string(cpu::name(c)));
  }
  REQUIRE_FALSE(cpu::parse("x86-64-v5").has_value());
  REQUIRE_FALSE(cpu::parse("").has_value());
  REQUIRE(cpu::runs_here(cpu::CpuClass::kGeneric));
  REQUIRE(cpu::runs_here(cpu::detect()));
  REQUIRE_FALSE(cpu::features().empty());
}

TEST_CASE("RoPE frequencies: unscaled, linear scaling, frequency factors") {
  cpu::RopeParams params{.dims = 64, .base = 10000};
  float plain[32], scaled[32];
  cpu::rope_frequencies(params, plain);
  REQUIRE(plain[0] == 1.0f);
  REQUIRE(plain[16] == Approx(0.01f));
  params.scaling = cpu::RopeScaling::kLinear;
  params.factor = 4;
  cpu::rope_frequencies(params, scaled);
  for (int i = 0; i < 32; ++i) REQUIRE(scaled[i] == Approx(plain[i] / 4));
  std::vector<float> factors(32, 1.0f);
  factors[5] = 8;
  params = {.dims = 64, .base = 10000, .freq_factors = factors.data()};
  cpu::rope_frequencies(params, scaled);
  REQUIRE(scaled[5] == Approx(plain[5] / 8));
  REQUIRE(scaled[6] == plain[6]);
  REQUIRE(cpu::rope_magnitude(params) == 1.0f);
}

TEST_CASE("YaRN keeps fast pairs, stretches slow ones and ramps between") {
  cpu::RopeParams params{.dims = 128,
                         .base = 10000,
                         .scaling = cpu::RopeScaling::kYarn,
                         .factor = 4,
                         .original_context = 4096,
                         .ext_factor = 1};
  float plain[64], scaled[64];
  cpu::rope_frequencies({.dims = 128, .base = 10000}, plain);
  cpu::rope_frequencies(params, scaled);
  // Pairs that turn more than 32 times over 4096 positions stay as they are; pairs that turn less than once are
  // stretched.
  const double low = std::floor(128 * std::log(4096 / (32 * 2 * std::numbers::pi)) / (2 * std::log(10000.0)));
  const double high = std::ceil(128 * std::log(4096 / (2 * std::numbers::pi)) / (2 * std::log(10000.0)));
  REQUIRE((low == 20 && high == 46));
  for (int i = 0; i <= 20; ++i) REQUIRE(scaled[i] == plain[i]);
  for (int i = 46; i < 64; ++i) REQUIRE(scaled[i] == Approx(plain[i] / 4));
  REQUIRE(scaled[33] == Approx(plain[33] * (0.5 + 0.5 / 4)));
  REQUIRE(cpu::rope_magnitude(params) == Approx(1 + 0.1 * std::log(4.0)));
  params.ext_factor = 0;
  cpu::rope_frequencies(params, scaled);
  REQUIRE(scaled[0] == 0.25f);
  REQUIRE(cpu::rope_magnitude(params) == 1.0f);
}

TEST_CASE("RoPE tables hold cos and sin of position times frequency, also at large positions") {
  const cpu::RopeParams params{.dims = 8, .base = 500000, .attn_factor = 1.5};
  const std::int32_t positions[] = {0, 1, 131071};
  Guarded<float> table(3 * 10 - 2);
  cpu::rope_table(positions, 3, params, table.data(), 10);
  table.check();
  for (std::size_t t = 0; t < 3; ++t)
    for (std::size_t i = 0; i < 4; ++i) {
      const double angle = positions[t] * std::pow(500000.0, -static_cast<double>(i) / 4);
      REQUIRE(table[t * 10 + 2 * i] == static_cast<float>(1.5 * std::cos(angle)));
      REQUIRE(table[t * 10 + 2 * i + 1] == static_cast<float>(1.5 * std::sin(angle)));
    }
  float frequencies[4], from_frequencies[8];
  cpu::rope_frequencies(params, frequencies);
  cpu::rope_table(positions + 1, 1, frequencies, 8, {.base = 1.5f}, from_frequencies, 8);
  for (std::size_t i = 0; i < 8; ++i) REQUIRE(from_frequencies[i] == Approx(table[10 + i]).margin(1e-6));
  // The attention temperature grows at each multiple of the original context length.
  const std::int32_t far[] = {0, 999, 1000, 2999, 3000};
  float tempered[5 * 8], plain[5 * 8];
  cpu::rope_table(far, 5, frequencies, 8, {.base = 1.5f}, plain, 8);
  cpu::rope_table(far, 5, frequencies, 8, {.base = 1.5f, .temperature = 0.25f, .length = 1000}, tempered, 8);
  const double factors[] = {1, 1, 1 + 0.25 * std::log(2.0), 1 + 0.25 * std::log(3.0), 1 + 0.25 * std::log(4.0)};
  for (std::size_t i = 0; i < 5 * 8; ++i) REQUIRE(tempered[i] == Approx(plain[i] * factors[i / 8]).margin(1e-6));
  cpu::rope_table(far, 5, frequencies, 8, {.base = 1.5f, .temperature = 0.25f, .length = 1000, .offset = 1}, tempered,
                  8);
  const double sooner[] = {1, factors[2], factors[2], factors[4], factors[4]};
  for (std::size_t i = 0; i < 5 * 8; ++i) REQUIRE(tempered[i] == Approx(plain[i] * sooner[i / 8]).margin(1e-6));
}

TEST_CASE("embedding rows are read from both layouts, and ids outside the table give zeros") {
  Random random(1);
  for (const DType type : test::all_types())
    for (const auto layout : {quant::Layout::kNative, quant::Layout::kX16}) {
      CAPTURE(dtype_name(type));
      const std::size_t k = test::whole_blocks(type, 64), stride = k + 6;
      const test::Weight table(type, 37, k, random);
      const std::int32_t ids[] = {36, 0, -1, 17, 37, 2147483647};
      Guarded<float> out(6 * stride - 6);
      const auto& bytes = layout == quant::Layout::kX16 ? table.packed : table.native;
      REQUIRE(cpu::embed_rows(type, layout, bytes.data(), 37, ids, {out.data(), 6, k, stride}));
      out.check();
      for (std::size_t t = 0; t < 6; ++t) {
        std::vector<float> want(k);
        if (ids[t] >= 0 && ids[t] < 37)
          quant::dequantize_native(type, table.native.data() + static_cast<std::size_t>(ids[t]) * row_bytes(type, k), k,
                                   want.data());
        REQUIRE(test::same_bits(want.data(), out.data() + t * stride, k));
      }
    }
  float out[256];
  const std::int32_t id = 0;
  REQUIRE_FALSE(cpu::embed_rows(DType::kQ8_1, quant::Layout::kNative, nullptr, 1, &id, {out, 1, 256, 256}));
}
