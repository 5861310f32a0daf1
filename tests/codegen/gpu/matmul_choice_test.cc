// Which matmuls use matrix instructions, and by which blocks.

#include <array>

#include <catch2/catch.hpp>

#include "codegen/gpu/matmul_config.h"
#include "support/error.h"

namespace forge::codegen::tests {
namespace {

/// The configuration of a Q8_0 weight [rows, k] times `tokens` tokens.
std::optional<TilesConfig> choose(const GpuTarget& target, std::int64_t rows, std::int64_t k, std::int64_t tokens,
                                  const Tuning& tuning, const EpilogueShape& shape = {}) {
  return choose_tiles(target, DType::kQ8_0, rows, k, tokens, 1, 0, shape, tuning);
}

}  // namespace

TEST_CASE("matrix instructions serve prefill, where the target has them and the shape allows") {
  const Tuning on{{"matrix", 1}}, off{{"matrix", 0}};
  const GpuTarget &card = *find_target("sm_90"), &older = *find_target("sm_75");
  CHECK(choose(card, 2048, 2048, 512, on).has_value());
  CHECK(!choose(card, 2048, 2048, 512, off).has_value());
  CHECK(!choose(older, 2048, 2048, 512, on).has_value());
  // Few tokens take weights straight to registers, where k is whole steps of them; fewer yet are multiplied by dots.
  const auto few = choose(card, 2048, 2048, 32, on);
  REQUIRE(few.has_value());
  CHECK((few->strips && few->tokens == 32 && !choose(card, 2048, 2048, 512, on)->strips));
  CHECK(choose(card, 2048, 2048, 16, on).has_value());
  CHECK(!choose(card, 2048, 2080, 32, on).has_value());
  CHECK(!choose(card, 48, 2048, 512, on).has_value());
  CHECK(!choose(card, 2048, 2040, 512, on).has_value());
  CHECK(!choose(card, 2048, 2048, 512, on, {.multiple_of = 96}).has_value());
  CHECK(!choose_tiles(card, DType::kF32, 2048, 2048, 512, 1, 0, {}, on).has_value());
  // Many rows get large blocks, few rows small ones; where k is long, blocks share it instead.
  const auto of = [&](std::int64_t rows, std::int64_t k, std::int64_t tokens = 512) {
    const auto config = *choose(card, rows, k, tokens, on);
    return std::array{config.rows, config.tokens, config.splits};
  };
  CHECK(of(16384, 2048) == std::array<std::int64_t, 3>{128, 256, 1});
  CHECK(of(2048, 2048) == std::array<std::int64_t, 3>{64, 64, 1});
  CHECK(of(4096, 14336) == std::array<std::int64_t, 3>{128, 256, 2});
  // The fastest of those measured.
  CHECK(of(2048, 8192) == std::array<std::int64_t, 3>{64, 128, 2});
  CHECK(of(2048, 8192, 128) == std::array<std::int64_t, 3>{64, 64, 4});
  CHECK(of(4096, 14336, 128) == std::array<std::int64_t, 3>{64, 128, 4});
  CHECK(of(28672, 4096, 128) == std::array<std::int64_t, 3>{128, 128, 1});
  CHECK(of(28672, 4096, 2048) == std::array<std::int64_t, 3>{128, 256, 1});
  // A tuned value is used or refused, never replaced.
  CHECK(choose(card, 2048, 2048, 512, {{"matrix", 1}, {"block_rows", 32}})->rows == 32);
  CHECK_THROWS_AS(choose(card, 2048, 2048, 512, {{"matrix", 1}, {"block_rows", 40}}), Error);
  CHECK_THROWS_AS(choose(card, 2048, 2048, 512, {{"matrix", 1}, {"waves_across", 64}}), Error);
  // The columns of a block are whole heads.
  CHECK(choose(card, 2048, 2048, 512, on, {.multiple_of = 128})->rows == 128);
}

TEST_CASE("decode where kernels overlap: the choices that were the fastest when measured") {
  const auto of = [](const char* target, DType type, std::int64_t rows, std::int64_t k, std::int64_t multiple,
                     MatmulUse use = MatmulUse::kPlain) {
    const auto config = choose_matmul(*find_target(target), type, rows, k, 1, {.multiple_of = multiple}, {}, use);
    return std::array{config.waves, config.waves_per_row, config.rows_per_team, config.units_ahead};
  };
  using Choice = std::array<std::int64_t, 4>;
  CHECK(of("sm_90", DType::kQ4_K, 28672, 4096, 32) == Choice{4, 1, 8, 1});
  CHECK(of("sm_90", DType::kQ4_K, 20480, 2560, 32) == Choice{4, 1, 8, 1});
  CHECK(of("sm_90", DType::kQ6_K, 262144, 2560, 16) == Choice{4, 1, 8, 1});
  CHECK(of("sm_90", DType::kQ4_K, 2048, 8192, 16) == Choice{8, 2, 4, 4});
  CHECK(of("sm_90", DType::kQ6_K, 2048, 8192, 16) == Choice{8, 2, 4, 4});
  CHECK(of("sm_90", DType::kQ4_K, 4096, 14336, 16) == Choice{8, 2, 4, 2});
  CHECK(of("sm_90", DType::kQ6_K, 4096, 14336, 16) == Choice{8, 2, 4, 2});
  CHECK(of("sm_90", DType::kQ4_K, 4096, 4096, 16) == Choice{8, 2, 4, 2});
  CHECK(of("sm_90", DType::kQ4_K, 4096, 2560, 16) == Choice{8, 1, 2, 3});
  CHECK(of("sm_90", DType::kQ4_K, 2560, 10240, 16, MatmulUse::kWholeRows) == Choice{16, 2, 4, 3});
  CHECK(of("sm_90", DType::kQ6_K, 2560, 10240, 16, MatmulUse::kWholeRows) == Choice{16, 2, 4, 2});  // 3 spill
  CHECK(of("sm_90", DType::kQ4_K, 1536, 2048, 32, MatmulUse::kSlots) == Choice{8, 1, 4, 1});
  CHECK(of("sm_90", DType::kQ8_0, 16384, 2048, 32) == Choice{8, 1, 4, 2});
  CHECK(of("sm_90", DType::kBF16, 2048, 8192, 16) == Choice{16, 8, 8, 2});
  CHECK(of("sm_90", DType::kBF16, 2048, 2048, 16) == Choice{8, 4, 8, 2});
  CHECK(of("sm_90", DType::kBF16, 3072, 2048, 16) == Choice{8, 4, 8, 2});
  CHECK(of("sm_90", DType::kBF16, 16384, 2048, 32) == Choice{4, 1, 8, 2});
  // Elsewhere a first batch is not loaded before the wait, and nothing has been measured.
  CHECK(of("sm_86", DType::kQ4_K, 4096, 14336, 16) == Choice{8, 2, 4, 1});
  CHECK(of("gfx1100", DType::kQ4_K, 28672, 4096, 32) == Choice{8, 1, 4, 2});
}

TEST_CASE("a block that sums a token's experts has whole waves for each, and rows that the epilogue allows") {
  const auto of = [](const char* target, std::int64_t k, std::int64_t slots, std::int64_t multiple,
                     const Tuning& tuning = {}) {
    const auto& of_target = *find_target(target);
    const EpilogueShape shape{.multiple_of = multiple};
    auto config = choose_matmul(of_target, DType::kQ4_K, 2048, k, 1, shape, tuning, MatmulUse::kSlots);
    config.sum_slots(of_target, slots, shape, tuning);
    CHECK(config.waves % slots == 0);
    CHECK(config.block_rows(of_target.wave) % multiple == 0);
    CHECK(config.waves * of_target.wave <= 1024);
    return std::array{config.waves, config.lanes_per_row, config.rows_per_team, config.units_ahead};
  };
  using Choice = std::array<std::int64_t, 4>;
  CHECK(of("sm_90", 768, 8, 16) == Choice{16, 16, 4, 1});  // the fastest when measured
  CHECK(of("sm_90", 768, 8, 32)[2] == 8);
  CHECK(of("sm_90", 768, 6, 16)[0] == 12);
  CHECK(of("gfx90a", 768, 8, 16)[0] == 8);
  CHECK(of("gfx90a", 768, 16, 16)[0] == 16);
  CHECK(of("sm_90", 768, 8, 16, {{"waves", 8}, {"units", 2}, {"lanes", 8}}) == Choice{8, 8, 4, 2});
  CHECK(of("sm_90", 1536, 4, 16) == Choice{16, 16, 2, 1});
}

TEST_CASE("matmuls of few tokens use matrix instructions from a number of them on, or as tuned") {
  const Tuning on{{"matrix", 1}};
  const GpuTarget &card = *find_target("sm_90"), &square = *find_target("gfx1100");
  // As many tokens as one instruction has, or fewer.
  const auto tokens = [&](const GpuTarget& target, std::int64_t of_step, std::int64_t least) {
    const auto config = choose(target, 2048, 2048, of_step, {{"matrix_tokens", least}});
    return config ? config->tokens : 0;
  };
  const auto of_4_bits = [&](const GpuTarget& target, std::int64_t of_step) {
    const auto config = choose_tiles(target, DType::kQ4_K, 2048, 2048, of_step, 1, 0, {}, on);
    return config && config->strips ? config->tokens : 0;
  };
  CHECK((of_4_bits(card, 8) == 8 && of_4_bits(square, 8) == 16 && of_4_bits(card, 4) == 0));
  // Floats need fewer tokens; integers of 8 bits, and weights of experts, more.
  const auto of_floats = [&](std::int64_t of_step, std::int64_t experts) {
    return choose_tiles(card, DType::kBF16, 2048, 2048, of_step, 1, experts, {}, on).has_value();
  };
  CHECK((of_floats(4, 0) && !of_floats(2, 0) && !of_floats(8, 16)));
  CHECK((!choose(card, 2048, 2048, 8, on).has_value() && choose(card, 2048, 2048, 16, on)->strips));
  CHECK(!choose_tiles(card, DType::kQ4_K, 2048, 2048, 8, 8, 128, {}, on).has_value());
  CHECK((tokens(card, 8, 8) == 8 && tokens(square, 8, 8) == 16));
  CHECK((tokens(card, 4, 4) == 8 && tokens(square, 4, 4) == 16 && tokens(card, 2, 4) == 0));
  CHECK((tokens(card, 2, 2) == 8 && tokens(card, 1, 0) == 0 && tokens(card, 8, 16) == 0));
  // Slots of an expert: room for twice the average; where strips do not fit, few tokens are multiplied by dots.
  const Tuning from_8{{"matrix_tokens", 8}};
  const auto of_experts = [&](std::int64_t step, std::int64_t k = 2048) {
    const auto config = choose_tiles(card, DType::kQ8_0, 2048, k, step, 8, 128, {}, from_8);
    return config && config->strips ? config->tokens : 0;
  };
  CHECK((of_experts(8) == 8 && of_experts(64) == 8 && of_experts(128) == 16 && of_experts(256) == 32));
  CHECK((of_experts(8, 2080) == 0 && !choose_tiles(card, DType::kQ8_0, 2048, 2080, 8, 8, 128, {}, from_8).has_value()));
}

}  // namespace forge::codegen::tests
