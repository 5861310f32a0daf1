// Sources compile to code objects with this machine's compilers for every target, with the expected instructions and
// kernel facts.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <optional>

#include "codegen/gpu/compile/code_object.h"
#include "codegen/gpu/compile/compile_service.h"
#include "support/error.h"
#include "tests/codegen/gpu/kernels.h"
#include "tests/support/temp_dir.h"

namespace forge::codegen::tests {
namespace {

using forge::tests::TempDir;

CompileServiceOptions options_for(const TempDir& dir) {
  CompileServiceOptions options;
  options.cache.directory = dir.file("cache");
  options.helper = FORGE_HELPER;
  options.note = [](const std::string& line) { UNSCOPED_INFO(line); };
  return options;
}

const char* dot_instruction(const GpuTarget& target) {
  switch (target.dot) {
    case DotKind::kSdot4:
      return "v_dot4";
    case DotKind::kSudot4:
      return "v_dot4_i32_iu8";
    case DotKind::kDp4a:
      return "IDP.4A";
    case DotKind::kNone:
      break;
  }
  return nullptr;
}

/// Mnemonics of the matrix instructions for BF16 and int8 tiles; empty for a target without them.
std::vector<const char*> matrix_instructions(const GpuTarget& target) {
  switch (target.matrix) {
    case MatrixKind::kMfmaGfx90a:
      return {"v_mfma_f32_16x16x16bf16_1k", "v_mfma_i32_16x16x16i8"};
    case MatrixKind::kMfmaGfx942:
      return {"v_mfma_f32_16x16x16_bf16", "v_mfma_i32_16x16x32_i8"};
    case MatrixKind::kWmmaGfx11:
    case MatrixKind::kWmmaGfx12:
      return {"v_wmma_f32_16x16x16_bf16", "v_wmma_i32_16x16x16_iu8"};
    case MatrixKind::kMma:
      return {"HMMA.16816.F32.BF16", "IMMA.16832.S8.S8"};
    case MatrixKind::kNone:
      break;
  }
  return {};
}

/// The target's row and the machine code agree: the code uses the instructions of the row and no others of their kind.
void check_instructions(const GpuTarget& target, const std::string& dots, const std::string& tiles) {
  const auto* dot = dot_instruction(target);
  for (const char* one : {"v_dot4", "IDP.4A"}) {
    INFO(one);
    CHECK((dots.find(one) != std::string::npos) == (dot != nullptr && std::string_view(dot).starts_with(one)));
  }
  if (dot != nullptr) CHECK(dots.find(dot) != std::string::npos);
  const auto wanted = matrix_instructions(target);
  for (const char* one : wanted) {
    INFO(one);
    CHECK(tiles.find(one) != std::string::npos);
  }
  for (const char* one : {"v_mfma", "v_wmma", "HMMA", "IMMA"})
    if (wanted.empty()) CHECK(tiles.find(one) == std::string::npos);
}

void check_target(const GpuTarget& target, CompileService& service) {
  INFO(target.name);
  const std::vector<KernelSource> sources{dot_kernel(target), scale_kernel(target), tile_kernel(target)};
  const auto kernels = service.compile(std::string(target.name), sources);
  REQUIRE(kernels.size() == 3);
  for (const CompiledKernel& kernel : kernels) {
    INFO(kernel.compiler);
    CHECK(kernel.facts.registers > 0);
    CHECK(kernel.facts.registers <= 64);
    CHECK(kernel.facts.spill_bytes <= 0);
    CHECK(kernel.facts.wave == target.wave);
    CHECK(kernel.facts.occupancy > 0);
    CHECK(kernel.compiler.find_first_of("0123456789") != std::string::npos);
  }
  CHECK(kernels[0].facts.lds_bytes == 4096);
  CHECK(kernels[1].facts.lds_bytes == 0);
  const auto text = listing(kernels[0].code, target);
  if (!text) return;
  const auto scale = disassemble(kernels[1].code, target);
  const auto tiles = disassemble(kernels[2].code, target);
  REQUIRE(scale);
  REQUIRE(tiles);
  check_instructions(target, *text, *tiles);
  // Contraction is off: a separate multiply and add, never an fma.
  for (const char* fused : {"v_fma_f32", "v_fmac_f32", "v_mac_f32", "v_mad_f32", "FFMA"})
    CHECK(scale->find(fused) == std::string::npos);
}

}  // namespace

TEST_CASE("each target of the daily check compiles to its dot instruction, with the expected facts", "[vendor]") {
  const TempDir dir;
  CompileService service(options_for(dir));
  for (const GpuTarget* target : compilable(
           {"gfx900", "gfx908", "gfx90a", "gfx1030", "gfx942", "gfx1100", "gfx1152", "gfx1201", "sm_75", "sm_90"}))
    check_target(*target, service);
}

TEST_CASE("AMD lanes exchange data by DPP where the ISA supports it") {
  const TempDir dir;
  CompileService service(options_for(dir));
  using Texts = std::vector<const char*>;
  const Texts rdna{"row_xmask:1", "row_xmask:2", "row_xmask:4", "row_xmask:8", "swizzle(SWAP,16)"};
  const Texts gcn{"quad_perm:[1,0,3,2]", "quad_perm:[2,3,0,1]", "swizzle(SWAP,4)", "row_ror:8", "swizzle(SWAP,16)"};
  for (const GpuTarget* target : compilable({"gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"})) {
    INFO(target->name);
    const auto kernels = service.compile(std::string(target->name), std::vector{exchange_kernel(*target)});
    const auto text = listing(kernels.at(0).code, *target);
    if (!text) continue;
    for (const char* instruction : target->name.starts_with("gfx9") ? gcn : rdna) {
      INFO(instruction);
      CHECK(text->find(instruction) != std::string::npos);
    }
    // v_permlane is avoided because code sinking moves it (kernels/gpu/prelude/prelude_amd.h).
    CHECK(text->find("v_permlane") == std::string::npos);
  }
}

TEST_CASE("every target that a compiler of this machine supports compiles", "[.][nightly]") {
  const TempDir dir;
  CompileService service(options_for(dir));
  std::vector<std::string_view> names;
  for (const GpuTarget& row : gpu_targets()) names.push_back(row.name);
  for (const GpuTarget* target : compilable(names)) check_target(*target, service);
}

TEST_CASE("clang and hipRTC agree on targets that both support") {
  const TempDir dir;
  CompileServiceOptions options = options_for(dir);
  options.prefer_clang = true;
  CompileService service(options);
  for (const GpuTarget* target : compilable({"gfx90a", "gfx1030"})) check_target(*target, service);
}

}  // namespace forge::codegen::tests
