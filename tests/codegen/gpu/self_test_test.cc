// The GPU self-test's kernels compile for every target without a GPU, do not spill, and cover each weight type.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/gpu/compile/compile_service.h"
#include "codegen/gpu/self_test/self_test.h"
#include "kernels/quant/planes.h"
#include "tests/codegen/gpu/kernels.h"
#include "tests/support/self_test_faults.h"
#include "tests/support/temp_dir.h"

namespace forge::codegen::tests {

TEST_CASE("the self-test's kernels compile for AMD and NVIDIA without spills") {
  const forge::tests::TempDir dir;
  CompileServiceOptions options;
  options.cache.directory = dir.file("cache");
  options.helper = FORGE_HELPER;
  options.note = [](const std::string& line) { UNSCOPED_INFO(line); };
  CompileService service(options);
  for (const GpuTarget* known : compilable({"gfx90a", "gfx1030", "gfx942", "gfx1100", "gfx1201", "sm_90"})) {
    const GpuTarget& target = *known;
    const std::string name(target.name);
    const auto kernels = self_test_kernels(target);
    std::vector<KernelSource> sources;
    for (const auto& kernel : kernels) sources.push_back(kernel.source);
    const auto compiled = service.compile(name, sources);
    REQUIRE(!compiled.empty());
    REQUIRE(compiled.size() == sources.size());
    for (std::size_t i = 0; i < compiled.size(); ++i) {
      INFO(name << ", " << kernels[i].name << ": " << compiled[i].facts.registers << " registers");
      // A lane of a repack kernel keeps the codes of a block in scratch memory, as in plans.
      if (!kernels[i].name.starts_with("repack")) CHECK(compiled[i].facts.spill_bytes <= 0);
      CHECK(compiled[i].facts.wave == target.wave);
    }
  }
}

TEST_CASE("injected GPU faults compile", "[.][nightly]") {
  const forge::tests::TempDir dir;
  CompileServiceOptions options;
  options.cache.directory = dir.file("cache");
  options.helper = FORGE_HELPER;
  CompileService service(options);
  for (const GpuTarget* known : compilable({"sm_90", "gfx1100"})) {
    const GpuTarget& target = *known;
    const std::string name(target.name);
    std::vector<KernelSource> sources;
    for (const auto& fault : forge::tests::kPlantedFaults)
      for (const auto& kernel : self_test_kernels(target)) {
        if (kernel.name != fault.kernel) continue;
        const auto is_found = [&](const SelfTestSection& section) { return section.name == fault.found; };
        INFO(fault.found);
        CHECK(std::ranges::count_if(kernel.sections, is_found) == 1);
        sources.push_back(forge::tests::planted(kernel.source, fault.text));
      }
    CHECK(sources.size() == std::size(forge::tests::kPlantedFaults));
    CHECK(service.compile(name, sources).size() == sources.size());
  }
}

TEST_CASE("the self-test repacks every weight type with GPU kernels, and covers matrix tiles where plans use them") {
  for (const auto& target : gpu_targets()) {
    std::vector<std::string> names;
    for (const auto& kernel : self_test_kernels(target))
      for (const auto& section : kernel.sections) {
        names.push_back(section.name);
        INFO(section.name);
        CHECK(!section.expected.empty());
        const auto words = section.in_host_memory ? kernel.host_words : kernel.out_words;
        CHECK(section.first + section.expected.size() <= words);
      }
    std::ranges::sort(names);
    CHECK(std::ranges::adjacent_find(names) == names.end());
    const auto has = [&](const std::string& name) { return std::ranges::binary_search(names, name); };
    for (const auto& row : kDTypes) {
      INFO(target.name << ", " << row.name);
      CHECK(has(fmt::format("repacking {}", row.name)) == quant::has_planes(row.type));
    }
    CHECK(has("matrix tile of BF16") == (target.matrix != MatrixKind::kNone));
    CHECK(has("shuffle_xor<32>") == (target.wave == 64));
  }
}

TEST_CASE("the self-test distinguishes wrong words from words that may differ") {
  SelfTestSection section{.name = "x", .expected = {0x3f800000, 0x7fc00000, 0x00000000}};
  const auto check = [&](SelfTestMatch match, std::vector<std::uint32_t> got) {
    section.match = match;
    return self_test_mismatch(section, got);
  };
  CHECK(check(SelfTestMatch::kWords, section.expected).empty());
  CHECK(check(SelfTestMatch::kWords, {0x3f800000, 0x7fffffff, 0}) ==
        "1 of 3 words are wrong; word 1 is 0x7fffffff, not 0x7fc00000");
  CHECK(check(SelfTestMatch::kFloats, {0x3f800000, 0x7fffffff, 0}).empty());
  CHECK(!check(SelfTestMatch::kFloats, {0x3f800001, 0x7fffffff, 0}).empty());
  CHECK(!check(SelfTestMatch::kFloats, {0x3f800000, 0x7fffffff, 0x80000000}).empty());
  section.relative = 1e-6F;
  CHECK(check(SelfTestMatch::kNear, {0x3f800001, 0x7fffffff, 0}).empty());
  CHECK(!check(SelfTestMatch::kNear, {0x3f800100, 0x7fffffff, 0}).empty());
  CHECK(!check(SelfTestMatch::kNear, {0x3f800000, 0x3f800000, 0}).empty());
  CHECK(!check(SelfTestMatch::kNear, {0x7fc00000, 0x7fc00000, 0}).empty());
  section.expected = {0x3c007e00};
  CHECK(check(SelfTestMatch::kHalfPairs, {0x3c007fff}).empty());
  CHECK(!check(SelfTestMatch::kHalfPairs, {0x3c017fff}).empty());
  section.expected = {0x3f807fc0};
  CHECK(check(SelfTestMatch::kBf16Pairs, {0x3f807fff}).empty());
  CHECK(!check(SelfTestMatch::kBf16Pairs, {0x3f803f80}).empty());
  section.expected = {0x00007e00};
  CHECK(check(SelfTestMatch::kHalves, {0x00007fff}).empty());
  CHECK(!check(SelfTestMatch::kHalves, {0x00017e00}).empty());
}

}  // namespace forge::codegen::tests
