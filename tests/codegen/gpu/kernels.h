#pragma once
// Small device sources for the tests of the compile service, and helpers that skip targets without a compiler.

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/gpu/code/decode.h"
#include "codegen/gpu/code/loops.h"
#include "codegen/gpu/compile/code_object.h"
#include "codegen/gpu/compile/compile_service.h"
#include "codegen/gpu/compile/compilers.h"
#include "codegen/gpu/source/kernel_text.h"
#include "codegen/gpu/targets.h"
#include "codegen/kernel_compiler.h"
#include "support/error.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace forge::codegen::tests {

/// The reason why no compiler on this machine supports the target; empty if one does.
inline std::string not_compilable(const GpuTarget& target) {
  try {
    static_cast<void>(choose_compiler(find_compilers(target.vendor), target));
    return {};
  } catch (const Error& error) {
    return fmt::format("{}: {}", target.name, error.line());
  }
}

/// The targets of `names` that a compiler on this machine supports. The others are reported as skipped; if none is
/// left, the case is skipped.
inline std::vector<const GpuTarget*> compilable(const std::vector<std::string_view>& names) {
  std::vector<const GpuTarget*> known;
  std::vector<std::string> reasons;
  for (const std::string_view name : names) {
    const GpuTarget* target = find_target(name);
    REQUIRE(target != nullptr);
    auto reason = not_compilable(*target);
    if (reason.empty())
      known.push_back(target);
    else
      reasons.push_back(std::move(reason));
  }
  REQUIRE(known.size() + reasons.size() > 0);
  if (known.empty())
    forge::tests::skip_case(reasons.front());
  else
    for (const std::string& reason : reasons) forge::tests::skip_part(reason);
  return known;
}

/// Compiled directly, without the cache.
inline std::vector<CompiledKernel> compiled(const GpuTarget& target, const KernelSet& kernels) {
  const forge::tests::TempDir dir;
  CompileServiceOptions options;
  options.cache.directory = dir.file("cache");
  options.helper = FORGE_HELPER;
  CompileService service(options);
  auto made = service.compile(std::string(target.name), kernels.sources());
  REQUIRE(!made.empty());
  REQUIRE(made.size() == kernels.sources().size());
  return made;
}

/// The output of the vendor's disassembler. Where it is not installed the result is empty and part of the case is
/// skipped.
inline std::optional<std::string> listing(std::span<const std::byte> code, const GpuTarget& target) {
  auto text = disassemble(code, target);
  if (text) return text;
  const bool amd = target.vendor == driver::Vendor::kAmd;
  for (const char* tool : {amd ? "llvm-objdump-19" : "cuobjdump", amd ? "llvm-objdump" : "nvdisasm"}) {
    INFO(tool);
    REQUIRE_FALSE(forge::tests::is_installed(tool));
  }
  forge::tests::skip_part(fmt::format("no disassembler for {}", target.name));
  return text;
}

/// y[i] = dot product of four int8 pairs, plus a sum over the wave. 256 threads, 4 KiB of shared memory.
inline KernelSource dot_kernel(const GpuTarget& target, const std::string& entry = "dots") {
  return {entry, target_macros(target) + R"(
#include "kernels/gpu/prelude/prelude.h"
using namespace forge::gpu;
struct Args {
  const u32* a;
  const u32* b;
  float* y;
  long long count;
};
struct Lds {
  Shared<float, 1024> values;
};
FORGE_KERNEL()" + entry +
                     R"(, 1, 256, Args) {
  FORGE_LDS(Lds, lds);
  const int t = thread_id();
  lds.values.set(t, static_cast<float>(dot4(load(args.a + t), load(args.b + t), 3)));
  barrier();
  args.y[t] = sum_lanes<kWave>(lds.values.get(255 - t)) + static_cast<float>(args.count);
}
)"};
}

/// Products of a wave's BF16 and int8 tiles, where the target has such instructions; otherwise all zeros.
inline KernelSource tile_kernel(const GpuTarget& target) {
  const bool tiles = target.matrix != MatrixKind::kNone;
  const std::string product = R"(
  NativeBf16Tile::Fragments f{};
  NativeInt8Tile::Fragments bytes{};
  for (int i = 0; i < NativeBf16Tile::Fragments::kA / 2; ++i) f.a[i] = load(args.in + 8 * lane_id() + i);
  for (int i = 0; i < NativeBf16Tile::Fragments::kB / 2; ++i) f.b[i] = load(args.in + 9 * lane_id() + i);
  for (int i = 0; i < NativeInt8Tile::Fragments::kA; ++i) bytes.a[i] = static_cast<i8>(load(args.in + i));
  for (int i = 0; i < NativeInt8Tile::Fragments::kB; ++i) bytes.b[i] = static_cast<i8>(load(args.in + lane_id() + i));
  multiply_tile(NativeBf16Tile(), f);
  multiply_tile(NativeInt8Tile(), bytes);
  const float sum = f.c[0] + static_cast<float>(bytes.c[0]);)";
  return {"tiles", fmt::format(R"({}#include "kernels/gpu/matrix_tile.h"

namespace forge::gpu {{
static_assert((FORGE_MATRIX != FORGE_MATRIX_NONE) == {});
struct TileArgs {{
  const u32* in;
  float* out;
}};
FORGE_KERNEL(tiles, 1, FORGE_WAVE, TileArgs) {{{}
  args.out[lane_id()] = sum;
}}
}}  // namespace forge::gpu
)",
                               target_macros(target), tiles, tiles ? product : "\n  const float sum = 0;")};
}

/// y[i] = y[i] * x[i] + y[i + 1] with 64 threads. This must round twice, so it shows whether a compiler contracts it to
/// fma.
inline KernelSource scale_kernel(const GpuTarget& target, const std::string& entry = "scale") {
  return {entry, target_macros(target) + R"(
#include "kernels/gpu/prelude/prelude.h"
using namespace forge::gpu;
struct Args {
  float* y;
  const float* x;
};
FORGE_KERNEL()" + entry +
                     R"(, 1, 64, Args) {
  const int t = thread_id();
  args.y[t] = args.y[t] * args.x[t] + args.y[t + 1];
}
)"};
}

/// out[i] = sum of `in` over the lanes whose number differs in one bit, for masks 1 to 16 in turn.
inline KernelSource exchange_kernel(const GpuTarget& target, const std::string& entry = "exchange") {
  return {entry, fmt::format(R"({}#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {{
struct ExchangeArgs {{
  const float* in;
  float* out;
}};
FORGE_KERNEL({}, 1, FORGE_WAVE, ExchangeArgs) {{
  float value = load(args.in + lane_id());
  value += shuffle_xor<1>(value);
  value += shuffle_xor<2>(value);
  value += shuffle_xor<4>(value);
  value += shuffle_xor<8>(value);
  value += shuffle_xor<16>(value);
  args.out[lane_id()] = value;
}}
}}  // namespace forge::gpu
)",
                             target_macros(target), entry)};
}

/// Instructions beside each matrix instruction in the loop that has the most of them.
inline double others_in_loop(const CompiledKernel& kernel, const GpuTarget& target) {
  const auto function = parse_listing(disassemble(kernel.code, target).value()).at(0);
  const auto flow = control_flow(function);
  double most = 0, others = 0;
  for (const auto& loop : flow.loops) {
    double matrix = 0, all = 0;
    for (const auto block : loop.blocks)
      for (auto i = flow.blocks[block].first; i < flow.blocks[block].end; ++i, ++all)
        matrix += class_of(function.instructions[i].mnemonic) == InstructionClass::kMatrix ? 1 : 0;
    if (matrix > most) most = matrix, others = (all - matrix) / matrix;
  }
  CHECK(most > 0);
  return others;
}

}  // namespace forge::codegen::tests
