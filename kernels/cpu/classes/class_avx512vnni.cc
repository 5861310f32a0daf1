// Kernels for the class CpuClass::kAvx512Vnni; its flags are in meson.build.
#define FORGE_CPU_NAMESPACE class_avx512vnni
#define FORGE_CPU_CLASS CpuClass::kAvx512Vnni

#include "kernels/cpu/matmul/dot_vnni-inl.h"
// the table follows the dots
#include "kernels/cpu/table-inl.h"
