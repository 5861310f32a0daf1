// The kernels of CpuClass::kNeon. The class's compiler flags are in kernels/meson.build.
#define FORGE_CPU_NAMESPACE class_neon
#define FORGE_CPU_CLASS CpuClass::kNeon

#include "kernels/cpu/matmul/dot_neon-inl.h"
// must follow the dots
#include "kernels/cpu/table-inl.h"
