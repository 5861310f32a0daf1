// The load-time repack kernels turn rows as stored in the file into the planes layout, in slices, and interleave
// several sources that share one weight.

#include "tests/gpu_host/kernel_bench.h"

using namespace forge;
using namespace forge::gpu_host;

namespace {

struct RepackCase {
  DType type;
  int k, blocks_per_row, wave;
};
constexpr int kDepths[] = {32, 96, 1056, 2304};

// Two sources that alternate every kUnit rows in a weight of kRows rows.
constexpr int kRows = 16, kUnit = 2, kSources = 2;

WaveText text_of(const RepackCase& c) {
  const bool codes = quant::is_plane_codes(c.type);
  codegen::KernelText text{
      .header = "kernels/gpu/repack.h", .kernel = codes ? "RepackCodes" : "RepackPlanes", .defaults = {}, .before = {}};
  text.has_lds = text.has_blocks = false;
  text.threads = codes ? c.wave : 64;
  text.config.number("kRows", kRows)
      .number("kK", c.k)
      .number("kThreads", text.threads)
      .number("kBlocksPerRow", c.blocks_per_row);
  if (codes) {
    text.config.use("Block", codegen::block_type(c.type));
    return {c.wave, std::move(text)};
  }
  const auto native = static_cast<std::int64_t>(row_bytes(c.type, c.k));
  const auto scales = static_cast<std::int64_t>(quant::planes_scale_bytes(c.type));
  text.config.number("kRowWords", native / 2)
      .number("kBlockWords", (scales == 0 ? native : static_cast<std::int64_t>(dtype_info(c.type).block_bytes)) / 2)
      .number("kScaleWords", scales / 2);
  return {c.wave, std::move(text)};
}

void check_repack(const RepackCase& c, const Kernel& kernel) {
  INFO("type " << dtype_name(c.type) << ", k " << c.k << ", blocks a row " << c.blocks_per_row << ", wave " << c.wave);
  const PlanesWeight weight(c.type, kRows, c.k);
  const std::size_t native = row_bytes(c.type, c.k);
  Buffer<std::byte> planes(weight.planes.size());
  constexpr int kSlice = 3;
  for (int source = 0; source < kSources; ++source)
    for (int first = 0; first < kRows / kSources; first += kSlice) {
      const int count = std::min(kSlice, kRows / kSources - first);
      Buffer<std::byte> staged(count * native);
      for (int i = 0; i < count; ++i) {
        const int row = source * kUnit + (first + i) / kUnit * kSources * kUnit + (first + i) % kUnit;
        std::memcpy(staged.data() + i * native, weight.native.data() + row * native, native);
      }
      const KernelArgs args({planes.data(), staged.data()}, {first, count, source * kUnit, kUnit, kSources * kUnit});
      run_kernel(kernel, {.blocks = count * c.blocks_per_row, .order = Order::kShuffled}, args.data(), args.bytes());
      staged.check();
    }
  planes.check();
  REQUIRE(planes.values() == weight.planes.values());
}

}  // namespace

TEST_CASE("rows of every type are repacked, in slices and interleaved") {
  const Choice<4> sizes{std::size(kWeightTypes), std::size(kDepths), 2, std::size(kWaves)};
  std::vector<RepackCase> cases;
  for (const auto& at :
       cases_of(sizes, [](const Choice<4>& at) { return has_rows_of(kWeightTypes[at[0]], kDepths[at[1]]); }))
    cases.push_back({kWeightTypes[at[0]], kDepths[at[1]], 2 * at[2] + 1, kWaves[at[3]]});
  check_cases(cases, text_of, check_repack);
}
