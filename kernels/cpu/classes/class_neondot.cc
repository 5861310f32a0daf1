// The kernels of CpuClass::kNeonDot. The class's compiler flags are in kernels/meson.build.
#define FORGE_CPU_NAMESPACE class_neondot
#define FORGE_CPU_CLASS CpuClass::kNeonDot

#include "kernels/cpu/matmul/dot_neon-inl.h"
// must follow the dots
#include "kernels/cpu/table-inl.h"
