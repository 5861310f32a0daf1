// The kernels that measure a card compile for every target without a GPU, do not spill, and execute little else than
// what they measure.
#include "codegen/gpu/card_rates.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/gpu/card_rates_io.h"
#include "tests/codegen/gpu/kernels.h"

namespace forge::codegen::tests {
namespace {

using namespace gpu::card_rates;

/// Instructions of the kernel's only loop that has one which begins with `name`: all of them, and those.
struct LoopCounts {
  int all = 0, named = 0;
};
LoopCounts loop_counts(const Function& function, std::string_view name) {
  LoopCounts out;
  const auto flow = control_flow(function);
  for (std::size_t loop = 0; loop < flow.loops.size(); ++loop) {
    LoopCounts counts;
    for (const std::size_t block : flow.loops[loop].blocks)
      for (std::size_t i = flow.blocks[block].first; i < flow.blocks[block].end; ++i) {
        ++counts.all;
        counts.named += function.instructions[i].mnemonic.starts_with(name) ? 1 : 0;
      }
    if (counts.named == 0) continue;
    CHECK(out.named == 0);
    out = counts;
  }
  return out;
}

Function function_of(const std::string& text, const std::string& entry) {
  for (auto& function : parse_listing(text))
    if (function.name == entry) return std::move(function);
  FAIL("the listing has no such kernel");
  return {};
}

}  // namespace

TEST_CASE(
    "kernels that measure a card compile for AMD and NVIDIA without spills, and their loops have what they measure") {
  for (const GpuTarget* known :
       compilable({"gfx906", "gfx90a", "gfx1030", "gfx942", "gfx1100", "gfx1201", "sm_75", "sm_90"})) {
    const GpuTarget& target = *known;
    INFO(target.name);
    KernelSet kernels;
    std::vector<std::string> entries;
    const auto add = [&](const RateKernel& kernel) {
      entries.push_back(kernel.source.entry);
      kernels.add(kernel.source);
    };
    add(read_rate_kernel(target));
    if (target.matrix != MatrixKind::kNone) add(matrix_rate_kernel(target));
    const auto made = compiled(target, kernels);
    for (const auto& kernel : made) {
      CHECK(kernel.facts.spill_bytes <= 0);
      CHECK(kernel.facts.wave == target.wave);
    }
    if (target.vendor != driver::Vendor::kAmd) continue;  // NVIDIA's listings are not parsed
    const auto read = listing(made[0].code, target);
    if (!read) continue;
    CHECK(loop_counts(function_of(*read, entries[0]), "global_load_").named == kReadLoads);
    if (made.size() == 1) continue;
    const auto multiplied = listing(made[1].code, target);
    REQUIRE(multiplied);
    const auto counts = loop_counts(function_of(*multiplied, entries[1]), is_wmma(target.matrix) ? "v_wmma" : "v_mfma");
    CHECK(counts.named == kMatrixTiles * kMatrixUnrolled);
    CHECK(counts.all - counts.named <= counts.named / 4);
  }
}

TEST_CASE("sums of the kernel of matrix instructions are exact in f32, and its factors differ") {
  for (const char* name : {"gfx1100", "gfx90a", "sm_90"}) {
    const auto& target = *find_target(name);
    std::vector<std::vector<float>> tiles;
    for (int wave = 0; wave < kMatrixTiles; ++wave) {
      tiles.push_back(matrix_rate_sums(target, wave, kMatrixRoundsMax));
      CHECK(std::ranges::all_of(tiles.back(), [](float sum) { return std::abs(sum) <= 0x1p24F; }));
      CHECK(matrix_rate_sums(target, wave + kMatrixTiles, kMatrixRoundsMax) == tiles.back());
    }
    std::ranges::sort(tiles);
    CHECK(std::ranges::adjacent_find(tiles) == tiles.end());
    // Two FLOPs for each product of all tiles.
    CHECK(matrix_rate_flops(target, 3) ==
          3.0 * kMatrixUnrolled * kMatrixTiles * 2 * 16 * 16 * matrix_rate_columns(target));
  }
}

}  // namespace forge::codegen::tests
