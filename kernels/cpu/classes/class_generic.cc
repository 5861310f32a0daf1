// Kernels for the class CpuClass::kGeneric; its flags are in meson.build.
#define FORGE_CPU_NAMESPACE class_generic
#define FORGE_CPU_CLASS CpuClass::kGeneric
#define FORGE_CPU_GENERIC

#include "kernels/cpu/matmul/dot_generic-inl.h"
// the table follows the dots
#include "kernels/cpu/table-inl.h"
