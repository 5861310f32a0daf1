// Which classes this binary has, which of them this CPU runs, and their names.

#include "kernels/cpu/kernels.h"

#if defined(__x86_64__)
#define FORGE_CPU_X86 1
#endif

namespace forge::cpu {

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
#endif

namespace {

struct ClassRow {
  CpuClass cpu_class;
  std::string_view name;
  const Kernels* table;
  bool (*runs)();
};

#if FORGE_CPU_X86
// Each covers what its flags in meson.build let the compiler use; the builtins also ask the operating system.
bool runs_avx2() {
  return __builtin_cpu_supports("x86-64-v3");
}
bool runs_avx512() {
  return __builtin_cpu_supports("x86-64-v4");
}
bool runs_avx512vnni() {
  return runs_avx512() && __builtin_cpu_supports("avx512vnni");
}
#endif

/// From the plainest to the best.
const ClassRow kClasses[] = {
    {CpuClass::kGeneric, "generic", &class_generic::kTable, [] { return true; }},
#if FORGE_CPU_X86
    {CpuClass::kAvx2, "x86-64-v3", &class_avx2::kTable, runs_avx2},
    {CpuClass::kAvx512, "x86-64-v4", &class_avx512::kTable, runs_avx512},
    {CpuClass::kAvx512Vnni, "x86-64-v4-vnni", &class_avx512vnni::kTable, runs_avx512vnni},
#else
    {CpuClass::kAvx2, "x86-64-v3", nullptr, [] { return false; }},
    {CpuClass::kAvx512, "x86-64-v4", nullptr, [] { return false; }},
    {CpuClass::kAvx512Vnni, "x86-64-v4-vnni", nullptr, [] { return false; }},
#endif
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

const Kernels& kernels(CpuClass cpu_class) {
  const ClassRow& row = row_of(cpu_class);
  return row.table ? *row.table : class_generic::kTable;
}

std::string features() {
  std::string list;
#if FORGE_CPU_X86
  const auto add = [&](std::string_view feature, bool has) {
    if (has) list += (list.empty() ? "" : " ") + std::string(feature);
  };
  add("sse4.2", __builtin_cpu_supports("sse4.2"));
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("f16c", __builtin_cpu_supports("f16c"));
  add("avx512f", __builtin_cpu_supports("avx512f"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512vl", __builtin_cpu_supports("avx512vl"));
  add("avx512vnni", __builtin_cpu_supports("avx512vnni"));
  add("avx512bf16", __builtin_cpu_supports("avx512bf16"));
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

}  // namespace forge::cpu
