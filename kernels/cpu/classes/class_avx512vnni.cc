// The kernels of CpuClass::kAvx512Vnni. The class's compiler flags are in kernels/meson.build.
#define FORGE_CPU_NAMESPACE class_avx512vnni
#define FORGE_CPU_CLASS CpuClass::kAvx512Vnni

#include "kernels/cpu/matmul/dot_vnni-inl.h"
// must follow the dots
#include "kernels/cpu/table-inl.h"
