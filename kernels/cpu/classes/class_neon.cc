// Kernels for the class CpuClass::kNeon; its flags are in meson.build.
#define FORGE_CPU_NAMESPACE class_neon
#define FORGE_CPU_CLASS CpuClass::kNeon

#include "kernels/cpu/matmul/dot_neon-inl.h"
// the table follows the dots
#include "kernels/cpu/table-inl.h"
