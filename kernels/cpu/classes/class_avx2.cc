// The kernels of CpuClass::kAvx2. The class's compiler flags are in kernels/meson.build.
#define FORGE_CPU_NAMESPACE class_avx2
#define FORGE_CPU_CLASS CpuClass::kAvx2

#include "kernels/cpu/matmul/dot_maddubs-inl.h"
// must follow the dots
#include "kernels/cpu/table-inl.h"
