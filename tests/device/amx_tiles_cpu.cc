// The CPU's tiles, for amx_check.
#define FORGE_CPU_NAMESPACE amx_check_cpu
#define FORGE_CPU_GENERIC

#include "kernels/cpu/matmul/tiles_amx-inl.h"
// what uses them follows
#include "tests/device/amx_tiles-inl.h"
