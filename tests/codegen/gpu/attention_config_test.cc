// What a step of decode attention reserves for the workers that share a row: enough for the rows that its kernel does
// by matrix instructions, and for the short ones that it does without.

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "codegen/gpu/attention_config.h"
#include "codegen/gpu/tile_sizes.h"

namespace forge::codegen {
namespace {

struct Heads {
  std::int64_t heads, kv_heads, dim;
};
constexpr Heads kLlama8b{32, 8, 128}, kLlama1b{32, 8, 64}, kQwen3Moe{32, 4, 128}, kGemma3{8, 4, 256}, kSmol{9, 3, 64},
    kOneKvHead{64, 1, 128};
constexpr Heads kShapes[] = {kLlama8b, kLlama1b, kQwen3Moe, kGemma3, kSmol, kOneKvHead};

AttentionConfig one_row(const Heads& shape, std::int64_t positions, const Tuning& tuning = {},
                        const AttentionChoice& asked = {}, DType type = DType::kF16) {
  ir::AttentionAttrs attention;
  attention.heads = shape.heads;
  attention.kv_heads = shape.kv_heads;
  attention.head_dim = shape.dim;
  return choose_attention(*find_target("sm_90"), attention, {1, 1, 1, positions / kGpuKvBlockTokens}, {type}, tuning,
                          asked);
}

/// Bytes of the partial results of a row: sums of a head's values, and the maximum and weight of its scores.
std::int64_t bytes_of(const Heads& shape, std::int64_t workers) {
  return workers > 1 ? shape.heads * workers * (shape.dim + 2) * 4 : 0;
}

}  // namespace

TEST_CASE("attention by length has blocks, counters and scratch for rows of both kinds") {
  for (const auto& shape : kShapes)
    for (const std::int64_t positions : {256, 4096, 32768}) {
      CAPTURE(shape.heads, shape.kv_heads, shape.dim, positions);
      const auto config = one_row(shape, positions);
      REQUIRE(config.short_rows);
      REQUIRE(config.head_tiles);
      const auto& rows = *config.short_rows;
      const auto group = shape.heads / shape.kv_heads;
      CHECK((group % config.heads_per_block == 0 && group % rows.heads_per_block == 0));
      const auto long_jobs = shape.heads / config.heads_per_block, short_jobs = shape.heads / rows.heads_per_block;
      CHECK(config.counters == std::max(long_jobs, short_jobs));
      CHECK(config.blocks == std::max(long_jobs * config.workers, short_jobs * rows.workers));
      CHECK(config.scratch_bytes == std::max(bytes_of(shape, config.workers), bytes_of(shape, rows.workers)));
      // A worker has a minimum of keys, and the workers of a long row fill the card.
      CHECK((config.workers - 1) * config.tokens_per_worker < positions);
      CHECK((rows.workers - 1) * config.tokens_per_worker < rows.tokens);
      constexpr std::int64_t kUnits = 128;
      if (positions == 32768) CHECK(config.blocks > kUnits - long_jobs);
    }
}

TEST_CASE("attention by length splits neither kind of row where the user wants it whole, and both where split") {
  for (const auto& shape : kShapes) {
    CAPTURE(shape.heads, shape.kv_heads, shape.dim);
    const auto whole = one_row(shape, 4096, {}, {.split = false});
    REQUIRE(whole.short_rows);
    CHECK((whole.workers == 1 && whole.short_rows->workers == 1 && whole.scratch_bytes == 0));
    const auto split = one_row(shape, 4096, {{"workers", 1}}, {.split = true});
    CHECK((split.workers == 2 && split.short_rows->workers >= 2));
  }
}

TEST_CASE("attention by length is for one row, and --tune can do without or move its limit") {
  CHECK(!one_row(kLlama8b, 4096, {{"head_tiles", 0}}).short_rows);
  CHECK(!one_row(kLlama8b, 4096, {{"head_tiles", 1}}).short_rows);
  CHECK(one_row(kLlama8b, 4096).short_rows->tokens * kLlama8b.dim ==
        one_row(kLlama1b, 4096).short_rows->tokens * kLlama1b.dim);
  CHECK(!one_row(kLlama8b, 4096, {{"short_tokens", 0}}).short_rows);
  // Of types with scales the kernel for long rows is the faster one in short rows, too.
  for (const auto type : {DType::kQ8_0, DType::kQ4_0}) CHECK(!one_row(kLlama8b, 4096, {}, {}, type).short_rows);
  CHECK(one_row(kLlama8b, 4096, {}, {}, DType::kFp8).short_rows);
  // Heads that share no keys have no tile.
  CHECK(!one_row({8, 8, 128}, 4096).short_rows);
}

TEST_CASE("a block has the most heads of a KV head that its kernel can take") {
  const auto heads_of = [](const Heads& shape) {
    const auto config = one_row(shape, 4096);
    return std::pair(config.heads_per_block, config.short_rows->heads_per_block);
  };
  CHECK(heads_of(kLlama8b) == std::pair<std::int64_t, std::int64_t>(4, 2));
  CHECK(heads_of({14, 2, 64}) == std::pair<std::int64_t, std::int64_t>(7, 1));
  CHECK(heads_of({24, 2, 64}) == std::pair<std::int64_t, std::int64_t>(12, 2));
  CHECK(heads_of(kOneKvHead) == std::pair<std::int64_t, std::int64_t>(16, 2));
  CHECK(heads_of({16, 1, 256}) == std::pair<std::int64_t, std::int64_t>(8, 2));  // tiles of eight columns
}

TEST_CASE("caches in fewer bytes than f16 have longer chunks, or fewer blocks of small heads") {
  for (const auto type : {DType::kQ8_0, DType::kQ4_0, DType::kFp8}) {
    const auto of_type = [&](const Heads& shape) { return one_row(shape, 32768, {}, {}, type); };
    CHECK(of_type(kLlama8b).head_tiles->chunk_tiles == 2);
    CHECK(one_row(kLlama8b, 32768).head_tiles->chunk_tiles == 1);
    CHECK(of_type(kLlama1b).blocks == 128);
    CHECK(one_row(kLlama1b, 32768).blocks == 256);
  }
}

TEST_CASE("small heads take four tokens a team by length, as larger ones do, and eight without") {
  CHECK(one_row(kLlama1b, 4096).team_tokens == 4);
  CHECK(one_row({8, 8, 64}, 4096).team_tokens == 8);
  CHECK(one_row(kLlama1b, 4096, {{"team_tokens", 2}}).team_tokens == 2);
}

}  // namespace forge::codegen
