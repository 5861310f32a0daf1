// The kernels of CpuClass::kGeneric. The class's compiler flags are in kernels/meson.build.
#define FORGE_CPU_NAMESPACE class_generic
#define FORGE_CPU_CLASS CpuClass::kGeneric
#define FORGE_CPU_GENERIC

#include "kernels/cpu/matmul/dot_generic-inl.h"
// must follow the dots
#include "kernels/cpu/table-inl.h"
