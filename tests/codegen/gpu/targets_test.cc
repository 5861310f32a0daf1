// The table of GPU targets is complete, and occupancy agrees with the vendors' published figures.
#include <catch2/catch.hpp>
#include <set>

#include "codegen/gpu/gpu_target.h"
#include "codegen/gpu/matmul_config.h"
#include "codegen/gpu/source/sources.h"
#include "codegen/gpu/targets.h"

namespace forge::codegen::tests {

TEST_CASE("targets are found by the names that users and drivers use") {
  REQUIRE(find_target("gfx942:sramecc+:xnack-") == find_target("gfx942"));
  CHECK(find_target("gfx942")->wave == 64);
  CHECK(find_target("gfx1100")->wave == 32);
  CHECK(find_target("sm_90")->vendor == driver::Vendor::kNvidia);
  for (const char* unknown : {"", ":", "gfx", "gfx9", "gfx942x", "GFX942", "sm_9", "sm_90a", "cpu"})
    CHECK(find_target(unknown) == nullptr);
  CHECK(target_names().starts_with("gfx900, gfx906, "));
}

TEST_CASE("rows of few units have few lanes, rows that would need many rounds a whole wave") {
  const auto& target = *find_target("sm_90");
  const auto lanes = [&](DType type, std::int64_t k) {
    return choose_matmul(target, type, 2816, k, 1, {}, {}).lanes_per_row;
  };
  CHECK(lanes(DType::kQ4_0, 40 * 32) == 16);   // 3 rounds, not 2 of half the lanes
  CHECK(lanes(DType::kQ8_0, 132 * 16) == 32);  // 5 rounds; 4 lanes would divide it, in 33
  CHECK(lanes(DType::kQ5_0, 66 * 32) == 32);
}

TEST_CASE("a block that goes on with whole rows has 512 threads, others of quantised weights 256") {
  for (const char* name : {"sm_90", "gfx1100", "gfx942"}) {
    const auto& target = *find_target(name);
    CHECK(choose_matmul(target, DType::kQ4_K, 2816, 4096, 1, {}, {}, MatmulUse::kWholeRows).waves * target.wave == 512);
    CHECK(choose_matmul(target, DType::kQ4_K, 2816, 4096, 1, {}, {}).waves * target.wave == 256);
  }
}

TEST_CASE("every row is complete") {
  std::set<std::string_view> names;
  for (const GpuTarget& target : gpu_targets()) {
    INFO(target.name);
    CHECK(names.insert(target.name).second);
    CHECK((target.wave == 32 || target.wave == 64));
    CHECK(target.registers % 4 == 0);
    CHECK(target.lds_bytes_per_block <= target.lds_bytes_per_unit);
    CHECK(target.lds_bytes_per_unit % 1024 == 0);
    CHECK(target.rtc_since >= 500);
    CHECK((target.clang_since == 0) == (target.vendor == driver::Vendor::kNvidia));
    CHECK((target.dot == DotKind::kDp4a) == (target.vendor == driver::Vendor::kNvidia));
    // A small kernel reaches full occupancy.
    CHECK(occupancy(target, 256, 1, 1, 0) >= 32);
  }
  CHECK(names.size() == 32);
}

TEST_CASE("the generated prologue defines everything that kernels need of their target") {
  CHECK(target_macros(*find_target("gfx1152")) ==
        "#define FORGE_WAVE 32\n#define FORGE_DOT FORGE_DOT_SUDOT4\n#define FORGE_MATRIX FORGE_MATRIX_WMMA_GFX11\n"
        "#define FORGE_FP8 FORGE_FP8_NONE\n#define FORGE_COPIES 0\n#define FORGE_OVERLAPS 0\n");
  CHECK(target_macros(*find_target("gfx908")) ==
        "#define FORGE_WAVE 64\n#define FORGE_DOT FORGE_DOT_SDOT4\n#define FORGE_MATRIX FORGE_MATRIX_NONE\n"
        "#define FORGE_FP8 FORGE_FP8_NONE\n#define FORGE_COPIES 0\n#define FORGE_OVERLAPS 0\n");
  CHECK(target_macros(*find_target("sm_90")) ==
        "#define FORGE_WAVE 32\n#define FORGE_DOT FORGE_DOT_DP4A\n#define FORGE_MATRIX FORGE_MATRIX_MMA\n"
        "#define FORGE_FP8 FORGE_FP8_OCP\n#define FORGE_COPIES 1\n#define FORGE_OVERLAPS 1\n");
}

TEST_CASE("8-bit floats have the encoding of the target's instructions") {
  for (const char* name : {"gfx950", "gfx1200", "gfx1201", "sm_89", "sm_90", "sm_100", "sm_120"})
    CHECK(find_target(name)->fp8 == Fp8Kind::kOcp);
  CHECK(find_target("gfx942")->fp8 == Fp8Kind::kFnuz);
  for (const char* name : {"gfx900", "gfx908", "gfx90a", "gfx1030", "gfx1100", "gfx1151", "sm_75", "sm_80", "sm_86"})
    CHECK(find_target(name)->fp8 == Fp8Kind::kNone);
}

TEST_CASE("kernels query only their target's row") {
  // The prelude may ask the compiler only for the vendor and the wave size of the generated code.
  for (const auto& source : embedded_sources())
    for (const char* macro : {"__gfx", "__GFX", "__CUDA_ARCH__", "__HIP_DEVICE_COMPILE__"}) {
      INFO(source.path << ": " << macro);
      CHECK(source.text.find(macro) == std::string_view::npos);
    }
}

TEST_CASE("GPUs with many compute units prefill in long steps, where context and matrix instructions allow") {
  const auto longest = [](const char* target, std::int64_t context, Tuning tuning = {}) {
    const auto variants = GpuTargetModel(*find_target(target), std::move(tuning)).variants(context, 1);
    REQUIRE(variants.size() >= 2);
    for (std::size_t i = 1; i < variants.size(); ++i) CHECK(variants[i].bounds.tokens > variants[i - 1].bounds.tokens);
    CHECK(variants.back().name == "prefill" + std::to_string(variants.back().bounds.tokens));
    return variants.back().bounds.tokens;
  };
  CHECK(longest("sm_90", 4096) == 2048);
  CHECK(longest("gfx942", 131072) == 2048);
  CHECK(longest("sm_90", 1000) == 992);
  CHECK(longest("sm_90", 512) == 512);
  CHECK(longest("sm_90", 4096, {{"chunk", 512}}) == 512);
  CHECK(longest("sm_90", 4096, {{"matrix", 0}}) == 512);
  CHECK(longest("gfx1100", 4096) == 512);
  CHECK(longest("gfx1100", 4096, {{"chunk", 1024}}) == 1024);
  CHECK(longest("gfx1030", 4096) == 512);
}

TEST_CASE("occupancy by registers matches LLVM and NVIDIA's calculator") {
  struct Row {
    const char* target;
    int threads, registers, waves;
  };
  // Source: LLVM's GCNSubtarget. Waves per SIMD by registers, times four SIMDs (two per compute unit on RDNA).
  const Row rows[] = {
      {"gfx900", 64, 24, 40},  {"gfx900", 64, 25, 36},   {"gfx900", 64, 64, 16},  {"gfx900", 64, 129, 4},
      {"gfx90a", 64, 64, 32},  {"gfx90a", 64, 65, 28},   {"gfx90a", 64, 128, 16}, {"gfx90a", 64, 512, 4},
      {"gfx1010", 32, 48, 40}, {"gfx1010", 32, 64, 32},  {"gfx1030", 32, 64, 32}, {"gfx1030", 32, 65, 24},
      {"gfx1030", 32, 256, 8}, {"gfx1100", 32, 96, 32},  {"gfx1100", 32, 97, 24}, {"gfx1100", 32, 256, 10},
      {"gfx1102", 32, 96, 20}, {"gfx1201", 32, 256, 10}, {"sm_90", 256, 32, 64},  {"sm_90", 256, 33, 48},
      {"sm_90", 256, 64, 32},  {"sm_90", 1024, 64, 32},  {"sm_90", 1024, 65, 0},  {"sm_86", 128, 40, 48},
      {"sm_75", 64, 32, 32},   {"sm_90", 32, 32, 32},    {"sm_89", 32, 32, 24}};
  for (const Row& row : rows) {
    INFO(row.target << " " << row.threads << " " << row.registers);
    CHECK(occupancy(*find_target(row.target), row.threads, row.registers, -1, 0) == row.waves);
  }
  CHECK(occupancy(*find_target("gfx906"), 64, 24, 100, 0) == 28);  // 800 scalar registers, in steps of 16
  CHECK(occupancy(*find_target("gfx1030"), 64, 24, 100, 0) == 32);
}

TEST_CASE("occupancy by shared memory and by the number of blocks") {
  const auto& mi300 = *find_target("gfx942");
  CHECK(occupancy(mi300, 256, 32, 32, 16 * 1024) == 16);
  CHECK(occupancy(mi300, 256, 32, 32, 16 * 1024 + 1) == 12);
  CHECK(occupancy(mi300, 256, 32, 32, 64 * 1024) == 4);
  CHECK(occupancy(mi300, 256, 32, 32, 64 * 1024 + 1) == 0);
  CHECK(occupancy(mi300, 128, 32, 32, 0) == 32);  // 16 blocks that use barriers
  CHECK(occupancy(*find_target("gfx950"), 256, 32, 32, 80 * 1024) == 8);
  // Three blocks of 40 KiB on a work-group processor are one and a half per compute unit.
  CHECK(occupancy(*find_target("gfx1100"), 256, 32, -1, 40 * 1024) == 12);
  const auto& hopper = *find_target("sm_90");
  CHECK(occupancy(hopper, 256, 32, -1, 227 * 1024) == 8);
  CHECK(occupancy(hopper, 256, 32, -1, 227 * 1024 + 1) == 0);
  CHECK(occupancy(hopper, 256, 32, -1, 113 * 1024) == 16);  // with the reserved KiB exactly two blocks fit
  CHECK(occupancy(hopper, 256, 32, -1, 114 * 1024) == 8);
  CHECK(occupancy(hopper, 0, 32, -1, 0) == 0);
  CHECK(occupancy(hopper, 1025, 32, -1, 0) == 0);
  CHECK(occupancy(hopper, 64, -1, -1, -1) == 64);
}

}  // namespace forge::codegen::tests
