// Checks of a step's batch: the choice of the program variant by size, and the validation of block tables with windows.
#include "runtime/step_batch.h"

#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "support/error.h"

namespace forge::runtime {
namespace {

struct Bounds {
  std::size_t tokens, rows, sequences, hidden_width = 0;
};

/// Index of the variant that a batch of this size uses.
std::size_t chosen(const std::vector<Bounds>& variants, std::size_t tokens, std::size_t rows, std::size_t sequences,
                   bool hidden = false) {
  const std::vector<std::int32_t> zeros(64);
  const auto list = [&](std::size_t count) { return std::span(zeros).first(count); };
  const StepBatch batch{.ids = list(tokens), .rows = list(rows), .kv_length = list(sequences), .hidden = hidden};
  return static_cast<std::size_t>(&choose_variant(variants, batch) - variants.data());
}

TEST_CASE("a batch uses the first variant with room for its tokens, rows and sequences") {
  const std::vector<Bounds> variants{{1, 1, 1}, {4, 4, 4}, {32, 1, 1}, {32, 4, 4}};
  CHECK(chosen(variants, 1, 1, 1) == 0);
  CHECK(chosen(variants, 1, 0, 1) == 0);
  CHECK(chosen(variants, 2, 1, 1) == 1);
  CHECK(chosen(variants, 5, 1, 1) == 2);
  CHECK(chosen(variants, 5, 2, 1) == 3);
  CHECK(chosen(variants, 5, 1, 2) == 3);
  CHECK(chosen(variants, 32, 4, 4) == 3);
}

TEST_CASE("a batch that wants hidden rows uses a variant that returns them, and no other batch does") {
  const std::vector<Bounds> variants{{8, 8, 1}, {4, 4, 1, 16}, {32, 32, 1, 16}, {32, 32, 1}};
  CHECK(chosen(variants, 2, 2, 1, true) == 1);
  CHECK(chosen(variants, 5, 5, 1, true) == 2);
  CHECK(chosen(variants, 2, 2, 1) == 0);
  CHECK(chosen(variants, 9, 9, 1) == 3);
}

TEST_CASE("a batch that is larger than every variant is refused with its size") {
  const std::vector<Bounds> variants{{8, 2, 1}};
  for (const auto& size : {std::array<std::size_t, 3>{9, 2, 1}, {8, 3, 1}, {8, 2, 2}}) try {
      (void)chosen(variants, size[0], size[1], size[2]);
      FAIL("no error");
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::kInternal);
      const auto text = std::to_string(size[0]) + " tokens, " + std::to_string(size[1]) + " rows, " +
                        std::to_string(size[2]) + " sequences";
      CHECK(error.line().find(text) != std::string::npos);
    }
}

/// The block table that the executor gets for one sequence with blocks of 4 positions, when tokens [first, first +
/// count) are fed. Entries outside the window are replaced by 0.
std::vector<std::int32_t> taken(std::vector<std::int32_t> table, std::size_t first, std::size_t count,
                                std::size_t window) {
  std::vector<std::int32_t> ids(count), positions(count), sequence(count), out(table.size(), 77), sink(count + 1);
  for (std::size_t i = 0; i < count; ++i) positions[i] = static_cast<std::int32_t>(first + i);
  const auto length = static_cast<std::int32_t>(first + count);
  const KvPoolSize room{.blocks = 6, .window = window};
  copy_checked_inputs({.ids = ids,
                       .positions = positions,
                       .sequence = sequence,
                       .kv_length = std::span(&length, 1),
                       .block_table = table,
                       .table_stride = table.size()},
                      {.vocab = 1, .rooms = std::span(&room, 1), .block_tokens = 4, .table_blocks = table.size()},
                      {.ids = sink.data(),
                       .positions = sink.data(),
                       .sequence = sink.data(),
                       .rows = sink.data(),
                       .kv_length = sink.data(),
                       .block_table = out.data(),
                       .table_stride = table.size()});
  return out;
}

TEST_CASE("blocks outside the window may be missing, blocks that the step's first token sees must exist") {
  CHECK(taken({-1, -1, 3, 4, 5}, 13, 7, 5) == std::vector<std::int32_t>{0, 0, 3, 4, 5});  // sees 9 and later
  CHECK(taken({-1, 2, 3, 4, 5}, 13, 7, 7) == std::vector<std::int32_t>{0, 2, 3, 4, 5});   // sees 7 and later
  CHECK_THROWS_AS(taken({-1, -1, 3, 4, 5}, 13, 7, 7), Error);
  CHECK_THROWS_AS(taken({-1, -1, 3, 4, 5}, 13, 7, 0), Error);
  CHECK_THROWS_AS(taken({0, 1, 3, 6, 5}, 13, 7, 5), Error);  // block 6 does not exist
}

}  // namespace
}  // namespace forge::runtime
