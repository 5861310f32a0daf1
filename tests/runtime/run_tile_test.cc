// Tiles of the CPU executor on hand-made steps: tile sizes, and which of the two matmul kernels computes each row. Rows
// of long prompts use a different kernel than decode rows, so a wrong choice would break batch invariance.

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/cpu/run_steps.h"

namespace forge::runtime {
namespace {

/// A matmul kernel that writes kValue plus the first float of the row's activations, so that results name the kernel
/// and the row.
template <int kValue>
void write_value(const std::byte*, std::size_t, std::size_t groups, const std::byte* x, std::size_t x_row_bytes,
                 const std::int32_t*, std::size_t tokens, float* out, std::size_t out_stride) {
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t i = 0; i < 16 * groups; ++i)
      out[t * out_stride + i] = kValue + *reinterpret_cast<const float*>(x + t * x_row_bytes);
}

/// The results of rows marked by `prompt` (1: row of a long prompt), one value per row, for a step 16 columns wide.
/// `knows`: the step has a separate kernel for prompts.
std::vector<float> rows_of(const std::vector<std::uint8_t>& prompt, bool knows) {
  const std::size_t rows = prompt.size();
  std::vector<float> x(rows), out(16 * rows), scratch(kTileFloats);
  for (std::size_t t = 0; t < rows; ++t) x[t] = static_cast<float>(t);
  CpuStep step;
  step.kind = StepKind::kTile;
  TileInstr source{.kind = plan::TileOpKind::kMatmul}, store{.kind = plan::TileOpKind::kStore};
  source.a = reinterpret_cast<std::byte*>(x.data());
  source.x_row_bytes = sizeof(float);
  source.matmul = write_value<1000>;
  source.prompt_matmul = knows ? write_value<2000> : source.matmul;
  store.a = reinterpret_cast<std::byte*>(out.data());
  store.stride = 16;
  step.sections.push_back(
      {.begin = 0, .end = 16, .unit = 16, .tile_width = 16, .tile_tokens = 24, .ops = {source, store}});
  step.pieces.push_back({.section = 0, .begin = 0, .end = 16});
  ThreadPool pool(1);
  StepIo io;
  io.prompt = prompt;
  io.tokens = rows;
  StepContext context;
  context.kernels = &cpu::kernels(cpu::CpuClass::kGeneric);
  context.io = &io;
  context.pool = &pool;
  context.scratch.push_back({.tile = scratch.data()});
  run_step(step, context);
  std::vector<float> first;
  for (std::size_t t = 0; t < rows; ++t) {
    for (std::size_t i = 1; i < 16; ++i) REQUIRE(out[16 * t + i] == out[16 * t]);
    first.push_back(out[16 * t]);
  }
  return first;
}

TEST_CASE("a tile of any width fits its scratch, and one more row would not") {
  for (std::size_t width = 1; width <= kTileFloats; ++width) {
    const auto rows = tile_rows(width, 256);
    const bool fits = rows >= 1 && rows <= 256 && rows * tile_stride(width) <= kTileFloats;
    const bool full = rows == 256 || (rows + 1) * tile_stride(width) > kTileFloats;
    if (!fits || !full) FAIL("width " << width << ", rows " << rows);
  }
  CHECK(tile_rows(300, 256) == 215);  // with 218 = 65536 / 300 rows the last one would lie beyond the scratch
}

TEST_CASE("prompt rows use the prompt kernel, in runs, and all other rows use the other one") {
  CHECK(rows_of({1}, true) == std::vector<float>{2000});
  CHECK(rows_of({0, 1, 1, 0}, true) == std::vector<float>{1000, 2001, 2002, 1003});
  CHECK(rows_of({1, 0, 1}, false) == std::vector<float>{1000, 1001, 1002});
  std::vector<std::uint8_t> kinds(200);
  std::vector<float> want(200);
  for (std::size_t t = 0; t < kinds.size(); ++t) {
    kinds[t] = t % 61 > 20 ? 1 : 0;  // runs that cross tile borders
    want[t] = static_cast<float>((kinds[t] != 0 ? 2000 : 1000) + t);
  }
  CHECK(rows_of(kinds, true) == want);
}

}  // namespace
}  // namespace forge::runtime
