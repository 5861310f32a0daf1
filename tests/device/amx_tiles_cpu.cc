// Tile products on the CPU's AMX registers, for amx_check.
#define FORGE_CPU_NAMESPACE amx_check_cpu
#define FORGE_CPU_GENERIC

#include "kernels/cpu/matmul/tiles_amx-inl.h"
// Uses the tile registers included above.
#include "tests/device/amx_tiles-inl.h"
