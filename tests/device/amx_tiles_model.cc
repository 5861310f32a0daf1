// Tile products on the software model of the registers, for amx_check.
#define FORGE_CPU_NAMESPACE amx_check_model
#define FORGE_CPU_GENERIC

#include "tests/kernels/tile_registers_model-inl.h"
// Uses the tile registers included above.
#include "tests/device/amx_tiles-inl.h"
