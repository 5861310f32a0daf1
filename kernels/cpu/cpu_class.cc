// The CPU classes of this binary: their tables, the detection of what this CPU can run, and their names.

#include "kernels/cpu/kernels.h"

#include <array>
#include <iterator>

#if defined(__x86_64__)
#define FORGE_CPU_X86 1
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__)
#define FORGE_CPU_ARM 1
#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#endif

namespace forge::cpu {

// The tables are defined in the classes' own translation units (classes/), which are compiled with other flags.
namespace class_generic {
extern const Kernels kTable;
}
#if FORGE_CPU_X86
namespace class_avx2 {
extern const Kernels kTable;
}
namespace class_avx512 {
extern const Kernels kTable;
}
namespace class_avx512vnni {
extern const Kernels kTable;
}
namespace class_avx512bf16 {
extern const MatmulFn kMatmulBf16;
}
namespace class_amx {
MatmulFn matmul_of_blocks(DType type);
MatmulFn prompt_matmul_of_blocks(DType type);
}  // namespace class_amx
#elif FORGE_CPU_ARM
namespace class_neon {
extern const Kernels kTable;
}
namespace class_neondot {
extern const Kernels kTable;
}
#endif

namespace {

/// One class: its name, its table (nullptr if not built for this architecture) and the run-time check.
struct ClassRow {
  CpuClass cpu_class;
  std::string_view name;
  const Kernels* (*table)();
  bool (*runs)();
};

/// Returns the table of a class as a function, because tables with additions (below) are made on first use.
template <const Kernels& kTable>
const Kernels* table_of() {
  return &kTable;
}
[[maybe_unused]] const Kernels* no_table() {
  return nullptr;
}

#if FORGE_CPU_X86
// Each check covers all instructions that the class's flags in meson.build allow the compiler to use. The builtins also
// check that the operating system saves the registers.
bool runs_avx2() {
  return __builtin_cpu_supports("x86-64-v3");
}
bool runs_avx512() {
  return __builtin_cpu_supports("x86-64-v4");
}
bool runs_avx512vnni() {
  return runs_avx512() && __builtin_cpu_supports("avx512vnni");
}

bool runs_avx512bf16() {
  return runs_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}

struct AmxFeatures {
  bool tile, int8, bf16;
};
/// AMX features as CPUID reports them, whatever the system permits. Source: Intel SDM, volume 2, CPUID, leaf 7.
AmxFeatures amx_features() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return {};
  return {(d >> 24 & 1) != 0, (d >> 25 & 1) != 0, (d >> 22 & 1) != 0};
}
/// True if the operating system saves tile registers (XCR0, bits 17 and 18) and lets this process use them. Linux
/// requires a request per process, because 8 KiB of tile data make every signal frame larger. Source: Linux,
/// Documentation/arch/x86/xstate.rst.
bool may_use_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTiles = 3U << 17;
  if ((low & kTiles) != kTiles) return false;
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return true;
#endif
}
/// Evaluated once: the permission request is a system call.
bool runs_amx() {
  static const bool runs = [] {
    const AmxFeatures has = amx_features();
    return runs_avx512bf16() && has.tile && has.int8 && has.bf16 && may_use_tiles();
  }();
  return runs;
}

/// The AVX-512 VNNI table with its BF16 matmul replaced.
const Kernels* bf16_table() {
  static const Kernels table = [] {
    Kernels made = class_avx512vnni::kTable;
    made.cpu_class = CpuClass::kAvx512VnniBf16;
    made.matmul_bf16 = class_avx512bf16::kMatmulBf16;
    return made;
  }();
  return &table;
}
/// The BF16 table with the matmuls of block types replaced: many rows use AMX tiles.
const Kernels* amx_table() {
  static const Kernels table = [] {
    Kernels made = *bf16_table();
    made.cpu_class = CpuClass::kAvx512VnniAmx;
    made.matmul_q8_0 = class_amx::matmul_of_blocks(DType::kQ8_0);
    made.matmul_q4_0 = class_amx::matmul_of_blocks(DType::kQ4_0);
    made.matmul_q4_1 = class_amx::matmul_of_blocks(DType::kQ4_1);
    made.matmul_of_codes = class_amx::matmul_of_blocks;
    made.prompt_matmul_of = class_amx::prompt_matmul_of_blocks;
    return made;
  }();
  return &table;
}
#elif FORGE_CPU_ARM
/// True if the CPU has SDOT. Only Linux is asked. Source: Linux, Documentation/arm64/elf_hwcaps.rst.
bool runs_neondot() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}
#endif

[[maybe_unused]] bool never() {
  return false;
}
#if FORGE_CPU_X86
#define FORGE_ON_X86(table, runs) table, runs
#else
#define FORGE_ON_X86(table, runs) no_table, never
#endif
#if FORGE_CPU_ARM
#define FORGE_ON_ARM(table, runs) table, runs
#else
#define FORGE_ON_ARM(table, runs) no_table, never
#endif
constexpr auto kAlways = [] { return true; };

constexpr std::string_view kTargetPrefix = "cpu-";

/// All classes, from the plainest to the best; detect() takes the last one that runs.
constexpr ClassRow kClasses[] = {
    {CpuClass::kGeneric, "generic", table_of<class_generic::kTable>, kAlways},
    {CpuClass::kNeon, "armv8-neon", FORGE_ON_ARM(table_of<class_neon::kTable>, kAlways)},
    {CpuClass::kNeonDot, "armv8-neon-dotprod", FORGE_ON_ARM(table_of<class_neondot::kTable>, runs_neondot)},
    {CpuClass::kAvx2, "x86-64-v3", FORGE_ON_X86(table_of<class_avx2::kTable>, runs_avx2)},
    {CpuClass::kAvx512, "x86-64-v4", FORGE_ON_X86(table_of<class_avx512::kTable>, runs_avx512)},
    {CpuClass::kAvx512Vnni, "x86-64-v4-vnni", FORGE_ON_X86(table_of<class_avx512vnni::kTable>, runs_avx512vnni)},
    {CpuClass::kAvx512VnniBf16, "x86-64-v4-vnni-bf16", FORGE_ON_X86(bf16_table, runs_avx512bf16)},
    {CpuClass::kAvx512VnniAmx, "x86-64-v4-vnni-amx", FORGE_ON_X86(amx_table, runs_amx)},
};

const ClassRow& row_of(CpuClass cpu_class) {
  for (const auto& row : kClasses)
    if (row.cpu_class == cpu_class) return row;
  return kClasses[0];
}

}  // namespace

CpuClass detect() {
  CpuClass best = CpuClass::kGeneric;
  for (const auto& row : kClasses)
    if (row.runs()) best = row.cpu_class;
  return best;
}

std::span<const CpuClass> all_classes() {
  static constexpr auto kAll = [] {
    std::array<CpuClass, std::size(kClasses)> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = kClasses[i].cpu_class;
    return all;
  }();
  return kAll;
}

bool runs_here(CpuClass cpu_class) {
  return row_of(cpu_class).runs();
}

std::string_view name(CpuClass cpu_class) {
  return row_of(cpu_class).name;
}

std::optional<CpuClass> parse(std::string_view name) {
  for (const auto& row : kClasses)
    if (row.name == name) return row.cpu_class;
  return std::nullopt;
}

std::string target_name(CpuClass cpu_class) {
  return std::string(kTargetPrefix).append(name(cpu_class));
}

std::optional<CpuClass> class_of_target(std::string_view target) {
  if (!target.starts_with(kTargetPrefix)) return std::nullopt;
  return parse(target.substr(kTargetPrefix.size()));
}

const Kernels& kernels(CpuClass cpu_class) {
  const Kernels* table = row_of(cpu_class).table();
  return table != nullptr ? *table : class_generic::kTable;
}

std::string features() {
  std::string list;
  [[maybe_unused]] const auto add = [&](std::string_view feature, bool has) {
    if (has) list += (list.empty() ? "" : " ") + std::string(feature);
  };
#if FORGE_CPU_X86
  add("sse4.2", __builtin_cpu_supports("sse4.2"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("f16c", __builtin_cpu_supports("f16c"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512vl", __builtin_cpu_supports("avx512vl"));
  add("avx512vnni", __builtin_cpu_supports("avx512vnni"));
  add("avx512bf16", __builtin_cpu_supports("avx512bf16"));
  const AmxFeatures amx = amx_features();
  add("amx-tile", amx.tile);
  add("amx-int8", amx.int8);
  add("amx-bf16", amx.bf16);
  if (amx.tile) add("(amx not permitted by the system)", !may_use_tiles());
#elif FORGE_CPU_ARM
  add("neon", true);
  add("dotprod", runs_neondot());
#endif
  return list.empty() ? "baseline" : list;
}

MatmulFn Kernels::matmul(DType type) const {
  switch (type) {
    case DType::kF32:
      return matmul_f32;
    case DType::kF16:
      return matmul_f16;
    case DType::kBF16:
      return matmul_bf16;
    case DType::kQ8_0:
      return matmul_q8_0;
    case DType::kQ4_0:
      return matmul_q4_0;
    case DType::kQ4_1:
      return matmul_q4_1;
    default:
      return matmul_of_codes(type);
  }
}

MatmulFn Kernels::prompt_matmul(DType type) const {
  const MatmulFn found = prompt_matmul_of == nullptr ? nullptr : prompt_matmul_of(type);
  return found != nullptr ? found : matmul(type);
}

}  // namespace forge::cpu
