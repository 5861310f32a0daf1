// The code-object reader returns the right kernel facts (registers, LDS, occupancy, spills) for hand-made files and for
// files that this machine's compilers produce, compared with the vendors' own readers where these are installed.
// Damaged files are refused and never crash it.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <random>

#include "codegen/gpu/compile/code_object.h"
#include "codegen/gpu/compile/compile_service.h"
#include "codegen/gpu/compile/elf_image.h"
#include "support/error.h"
#include "tests/codegen/gpu/elf_builder.h"
#include "tests/codegen/gpu/kernels.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

namespace forge::codegen::tests {
namespace {

using forge::tests::is_installed;
using forge::tests::skip_part;
using forge::tests::TempDir;

constexpr std::uint16_t kAmd = 224, kCuda = 190;

/// Metadata of kernel `name`, surrounded by the other keys that compilers write.
std::string amd_metadata(const std::string& target, const std::string& name) {
  std::string kernel = map_head(10);
  kernel += text_item(".args") + array_head(1) + map_head(1) + text_item(".size") + number_item(24);
  kernel += text_item(".name") + text_item(name);
  kernel += text_item(".vgpr_count") + number_item(84) + text_item(".sgpr_count") + number_item(30);
  kernel += text_item(".private_segment_fixed_size") + number_item(16);
  kernel += text_item(".group_segment_fixed_size") + number_item(40000);
  kernel += text_item(".wavefront_size") + number_item(64) + text_item(".max_flat_workgroup_size") + number_item(512);
  kernel += text_item(".vgpr_spill_count") + number_item(3) + text_item(".uses_dynamic_stack") + "\xc2";
  return map_head(3) + text_item("amdhsa.kernels") + array_head(1) + kernel + text_item("amdhsa.target") +
         text_item(target) + text_item("amdhsa.version") + array_head(2) + number_item(1) + number_item(2);
}

std::string amd_object(const std::string& metadata) {
  return make_elf(kAmd, {{.name = ".note", .type = SHT_NOTE, .bytes = metadata_note(metadata)},
                         {.name = ".comment", .bytes = std::string("\0LLD 1\0Debian clang version 19.1.7 (3)\0", 38)}});
}

/// A record of .nv.info: a header of 4 bytes, then two 32-bit words.
std::string attribute(char number, std::uint32_t first, std::uint32_t second) {
  std::string out{'\x04', number, '\x08', '\0'};
  append(out, first);
  append(out, second);
  return out;
}

std::string cubin(std::uint32_t text_info, const std::string& info, bool reserved) {
  std::string of_kernel("\x02\x4c\x01\0", 4);  // an attribute whose value is in the header
  of_kernel += std::string("\x04\x05\x0c\0", 4);
  for (const std::uint32_t threads : {384, 1, 1}) append(of_kernel, threads);
  std::vector<SectionDraft> sections{{.name = ".text.k", .info = text_info, .bytes = "code"},
                                     {.name = ".nv.info", .bytes = info},
                                     {.name = ".nv.info.k", .bytes = of_kernel},
                                     {.name = ".nv.shared.k", .type = SHT_NOBITS, .size = reserved ? 3072U : 2048U}};
  if (reserved) sections.push_back({.name = ".nv.shared.reserved.0", .type = SHT_NOBITS});
  return make_elf(kCuda, sections);
}

std::string refusal(const std::string& object, const char* target, const char* entry = "k") {
  return forge::tests::error_of(
      [&] { static_cast<void>(read_code_object(bytes_of(object), *find_target(target), entry)); }, ErrorCode::kDevice);
}

/// Reads damaged copies of an object. Any result is accepted; the read must only return.
void check_damaged(const std::string& object, const GpuTarget& target, const std::string& entry) {
  const auto read = [&](const std::string& bytes) {
    try {
      return read_code_object(bytes_of(bytes), target, entry).kernel.registers >= -1;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kDevice;
    }
  };
  bool fine = true;
  for (std::size_t size = 0; size < object.size(); size += object.size() > 20'000 ? 37 : 1)
    fine = fine && read(object.substr(0, size));
  std::mt19937 random(7);
  for (int i = 0; i < 4000; ++i) {
    std::string damaged = object;
    const int hits = 1 + static_cast<int>(random() % 4);
    for (int hit = 0; hit < hits; ++hit)
      damaged[random() % damaged.size()] = random() % 3 == 0 ? '\xff' : static_cast<char>(random());
    fine = fine && read(damaged);
  }
  CHECK(fine);
}

/// Output of a shell command; empty if the command fails.
std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen((forge::tests::kWithCudaPath + command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[4096];
  for (std::size_t got = 0; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, got);
  return pclose(pipe) == 0 ? text : "";
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The number after `key` in `text`, or -1 if `key` is missing.
int number_after(const std::string& text, const std::string& key) {
  const auto at = text.find(key);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + key.size());
}

}  // namespace

TEST_CASE("kernel facts of an AMD code object") {
  const auto& target = *find_target("gfx90a");
  const auto facts =
      read_code_object(bytes_of(amd_object(amd_metadata("amdgcn-amd-amdhsa--gfx90a:xnack-", "k"))), target, "k");
  CHECK(facts.kernel.registers == 84);
  CHECK(facts.kernel.scalar_registers == 30);
  CHECK(facts.kernel.spill_bytes == 16);
  CHECK(facts.kernel.lds_bytes == 40000);
  CHECK(facts.kernel.wave == 64);
  CHECK(facts.threads == 512);
  CHECK(facts.register_spills == 3);
  CHECK(facts.scalar_spills == -1);
  CHECK(facts.compiler_text == "clang version 19.1.7");
  CHECK(facts.kernel.occupancy == 8);  // one such block fills 64 KiB of LDS
}

TEST_CASE("kernel facts of cubins, before and after registers moved into .nv.info") {
  const auto old =
      read_code_object(bytes_of(cubin(40U << 24 | 9, attribute(0x11, 9, 0), false)), *find_target("sm_80"), "k");
  CHECK(old.kernel.registers == 40);
  CHECK(old.kernel.lds_bytes == 2048);
  CHECK(old.kernel.spill_bytes == 0);
  CHECK(old.threads == 384);
  CHECK(old.kernel.occupancy == 48);
  const std::string info =
      attribute(0x2f, 8, 255) + attribute(0x2f, 9, 56) + attribute(0x11, 9, 16) + attribute(0x12, 9, 24);
  const auto now = read_code_object(bytes_of(cubin(9, info, true)), *find_target("sm_90"), "k");
  CHECK(now.kernel.registers == 56);
  CHECK(now.kernel.lds_bytes == 2048);
  CHECK(now.kernel.spill_bytes == 24);
  CHECK(now.kernel.occupancy == 36);
}

TEST_CASE("unusable code objects are refused with a one-line reason") {
  const std::string good = amd_object(amd_metadata("amdgcn-amd-amdhsa--gfx90a", "k"));
  CHECK(refusal(good, "gfx942").find("gfx90a, not for gfx942") != std::string::npos);
  CHECK(refusal(good, "gfx90a", "other").find("no such kernel") != std::string::npos);
  CHECK(refusal(good, "sm_90").find("ELF machine 224") != std::string::npos);
  CHECK(refusal("", "gfx90a").find("ELF") != std::string::npos);
  CHECK(refusal("//\n.version 8.0\n", "sm_90").find("ELF") != std::string::npos);
  CHECK(refusal(make_elf(kAmd, {}), "gfx90a").find("no metadata") != std::string::npos);
  CHECK(refusal(make_elf(kCuda, {}), "sm_90").find("no such kernel") != std::string::npos);
  // gfx90 must not match gfx9, and a target must match whole, not as a suffix of another name.
  CHECK(refusal(amd_object(amd_metadata("amdgcn-amd-amdhsa--xgfx90a", "k")), "gfx90a").find("not for") !=
        std::string::npos);
  for (const std::string& damaged :
       {map_head(3) + text_item("amdhsa.kernels") + "\xdd\xff\xff\xff\xff", map_head(65535), std::string("\xc1"),
        std::string("\xdb\xff\xff\xff\xff"), map_head(1) + text_item("amdhsa.target") + number_item(3), std::string()})
    CHECK(refusal(amd_object(damaged), "gfx90a").find("damaged") != std::string::npos);
}

TEST_CASE("damaged code objects cause neither a crash nor a hang") {
  check_damaged(amd_object(amd_metadata("amdgcn-amd-amdhsa--gfx90a", "k")), *find_target("gfx90a"), "k");
  check_damaged(cubin(9, attribute(0x2f, 9, 56), true), *find_target("sm_90"), "k");
}

TEST_CASE("metadata may contain all kinds of MessagePack items and integers of every width") {
  static constexpr char kItems[] =
      "\xdc\0\x0e"
      "\xe0"
      "\xda\0\x01z"
      "\xdb\0\0\0\x01z"
      "\xc4\x02xx"
      "\xc7\x01\x05x"
      "\xd8"
      "0123456789abcdefg"
      "\xca"
      "1234"
      "\xcb"
      "12345678"
      "\xdd\0\0\0\x01\xc0"
      "\x81\xa1x\xc3"
      "\xdf\0\0\0\x01\xa1x\xc2"
      "\xd2\xff\xff\xff\xfe"
      "\xcf\xff\xff\xff\xff\xff\xff\xff\xff"
      "\x05";
  const auto object = [](const std::string& count) {
    return amd_object(map_head(2) + text_item("other") + std::string(kItems, sizeof kItems - 1) +
                      text_item("amdhsa.kernels") + array_head(1) + map_head(2) + text_item(".vgpr_count") + count +
                      text_item(".name") + text_item("k"));
  };
  const auto registers = [&](const std::string& count) {
    return read_code_object(bytes_of(object(count)), *find_target("gfx90a"), "k").kernel.registers;
  };
  using namespace std::string_literals;
  CHECK(registers("\x7f") == 127);
  CHECK(registers("\xcc\xff"s) == 255);
  CHECK(registers("\xcd\x01\x02"s) == 258);
  CHECK(registers("\xce\0\0\x01\x02"s) == 258);
  CHECK(registers("\xcf\0\0\0\0\0\0\x01\x02"s) == 258);
  CHECK(registers("\xd0\x05"s) == 5);
  CHECK(registers("\xd3\0\0\0\0\0\0\x01\x02"s) == 258);
  CHECK(registers("\xcf\0\0\0\x01\0\0\0\0"s) == INT32_MAX);  // 2^32
  for (const auto& unknown : {"\xe0"s, "\xd1\xff\xfe"s, "\xd3\xff\xff\xff\xff\xff\xff\xff\xff"s})
    CHECK(registers(unknown) == -1);
  for (const auto& none : {"\xa0"s, "\xc0"s, "\x90"s, "\x80"s, "\xca\x7f\0\0\0"s, "\xc1"s, "\xcd\x01"s})
    CHECK(refusal(object(none), "gfx90a").find("damaged") != std::string::npos);
}

TEST_CASE("deeply nested or very large metadata is refused") {
  const auto nested = [](std::size_t depth) {
    return amd_object(map_head(2) + text_item("other") + std::string(depth, '\x91') + '\0' +
                      text_item("amdhsa.kernels") + array_head(0));
  };
  CHECK(refusal(nested(31), "gfx90a").find("no such kernel") != std::string::npos);
  CHECK(refusal(nested(32), "gfx90a").find("damaged") != std::string::npos);
  CHECK(refusal(nested(1'000'000), "gfx90a").find("damaged") != std::string::npos);  // far deeper than the stack allows
  std::string maps = map_head(1);
  for (int i = 0; i < 300'000; ++i) maps += "\xa1x\x81";
  CHECK(refusal(amd_object(maps), "gfx90a").find("damaged") != std::string::npos);
  std::string items = "\xdd";  // an array of one-byte items
  for (const unsigned shift : {24U, 16U, 8U, 0U}) items += static_cast<char>(2'000'000U >> shift);
  CHECK(refusal(amd_object(map_head(2) + text_item("other") + items + std::string(2'000'000, '\xc0') +
                           text_item("amdhsa.kernels") + array_head(0)),
                "gfx90a")
            .find("damaged") != std::string::npos);
}

TEST_CASE("facts of compiled kernels agree with the vendors' readers", "[vendor]") {
  const TempDir dir;
  CompileServiceOptions options;
  options.helper = FORGE_HELPER;
  CompileService service(options);
  for (const GpuTarget* known :
       compilable({"gfx90a", "gfx1030", "gfx942", "gfx1100", "gfx1201", "sm_80", "sm_90", "sm_100"})) {
    const GpuTarget& target = *known;
    const std::string name(target.name);
    const auto kernels = service.compile(name, std::vector{dot_kernel(target), scale_kernel(target)});
    REQUIRE(kernels.size() == 2);
    check_damaged(text_of(kernels[0].code), target, "dots");
    const bool amd = target.vendor == driver::Vendor::kAmd;
    const std::string reader = amd ? "llvm-readelf-19 --notes" : "cuobjdump --dump-resource-usage";
    if (!is_installed(reader.substr(0, reader.find(' ')))) {
      skip_part(fmt::format("{}: no {}", name, reader));
      continue;
    }
    const std::string entries[] = {"dots", "scale"};
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      INFO(name << " " << entries[i]);
      const auto path = dir.write(fmt::format("{}.{}", name, entries[i]), text_of(kernels[i].code));
      const KernelFacts& facts = kernels[i].facts;
      const std::string text = output_of(reader + " " + path.native());
      REQUIRE_FALSE(text.empty());
      if (amd) {
        CHECK(facts.registers == number_after(text, ".vgpr_count:"));
        CHECK(facts.scalar_registers == number_after(text, ".sgpr_count:"));
        CHECK(facts.spill_bytes == number_after(text, ".private_segment_fixed_size:"));
        CHECK(facts.lds_bytes == number_after(text, ".group_segment_fixed_size:"));
        CHECK(facts.wave == number_after(text, ".wavefront_size:"));
      } else {
        CHECK(facts.registers == number_after(text, "REG:"));
        // cuobjdump includes the memory that the system reserves; ptxas -v does not.
        const int shared = number_after(text, "SHARED:");
        const bool reserves = target.name != "sm_80" && shared > 0;
        CHECK(facts.lds_bytes == shared - (reserves ? 1024 : 0));
        CHECK(std::max(facts.spill_bytes, 0) == number_after(text, "STACK:"));
      }
    }
  }
}

}  // namespace forge::codegen::tests
