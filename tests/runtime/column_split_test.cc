// The split of a matmul's columns between CPU threads: every column is computed once, no unit is cut, and all threads
// finish at about the same time. This matters for decode steps, whose few rows leave only columns to share.

#include "runtime/cpu/column_split.h"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace forge::runtime;

namespace {

TileSection section(std::size_t begin, std::size_t end, std::size_t unit) {
  TileSection out;
  out.begin = begin;
  out.end = end;
  out.unit = unit;
  return out;
}

/// Columns that the busiest of `threads` threads computes when each thread takes the next piece as soon as it is idle.
std::size_t busiest(const std::vector<TilePiece>& pieces, std::size_t threads) {
  std::vector<std::size_t> work(threads);
  for (const auto& piece : pieces) *std::ranges::min_element(work) += piece.end - piece.begin;
  return *std::ranges::max_element(work);
}

}  // namespace

TEST_CASE("pieces cover all columns once, in order, in whole units") {
  const std::vector<TileSection> sections{section(0, 576, 64), section(576, 768, 64), section(768, 968, 16),
                                          section(968, 1069, 1), section(1069, 1072, 48)};
  for (const std::size_t threads : {1, 2, 3, 64}) {
    CAPTURE(threads);
    std::size_t at = 0;
    for (const auto& piece : split_columns(sections, threads)) {
      const auto& whole = sections[piece.section];
      REQUIRE(whole.begin + piece.begin == at);
      REQUIRE(piece.begin % whole.unit == 0);
      REQUIRE(piece.begin < piece.end);
      REQUIRE(whole.begin + piece.end <= whole.end);
      at = whole.begin + piece.end;
    }
    REQUIRE(at == 1072);
  }
  REQUIRE(split_columns({}, 2).empty());
}

TEST_CASE("threads finish within one unit of each other, and one thread gets few pieces") {
  for (const std::size_t width : {576, 960, 3072, 49152}) {
    const std::vector<TileSection> one{section(0, width, 32)};
    for (const std::size_t threads : {2, 3, 8}) {
      CAPTURE(width, threads);
      REQUIRE(busiest(split_columns(one, threads), threads) <= width / threads + 32);
    }
    REQUIRE(split_columns(one, 1).size() == (width + 1343) / 1344);
  }
}

TEST_CASE("a piece with the maximum number of rows fits the scratch, and a unit is never cut") {
  const std::vector<TileSection> one{section(0, 151936, 16)};
  for (const std::size_t threads : {1, 2}) {
    const auto pieces = split_columns(one, threads);
    for (const auto& piece : pieces) REQUIRE((piece.end - piece.begin) * kSplitRows <= kTileFloats);
    REQUIRE(pieces.size() < 400);
  }
  const std::vector<TileSection> wide{section(0, 4096, 4096)};
  REQUIRE(split_columns(wide, 2).size() == 1);
}
