// Kernels for the class CpuClass::kNeonDot; its flags are in meson.build.
#define FORGE_CPU_NAMESPACE class_neondot
#define FORGE_CPU_CLASS CpuClass::kNeonDot

#include "kernels/cpu/matmul/dot_neon-inl.h"
// the table follows the dots
#include "kernels/cpu/table-inl.h"
