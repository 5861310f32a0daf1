// Kernels for the class CpuClass::kAvx512; its flags are in meson.build.
#define FORGE_CPU_NAMESPACE class_avx512
#define FORGE_CPU_CLASS CpuClass::kAvx512

#include "kernels/cpu/matmul/dot_maddubs-inl.h"
// the table follows the dots
#include "kernels/cpu/table-inl.h"
