// The kernels of CpuClass::kAvx512. The class's compiler flags are in kernels/meson.build.
#define FORGE_CPU_NAMESPACE class_avx512
#define FORGE_CPU_CLASS CpuClass::kAvx512

#include "kernels/cpu/matmul/dot_maddubs-inl.h"
// must follow the dots
#include "kernels/cpu/table-inl.h"
