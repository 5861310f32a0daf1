// The model's tiles, for amx_check.
#define FORGE_CPU_NAMESPACE amx_check_model
#define FORGE_CPU_GENERIC

#include "tests/kernels/tile_registers_model-inl.h"
// what uses them follows
#include "tests/device/amx_tiles-inl.h"
