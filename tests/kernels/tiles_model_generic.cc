// The tile (AMX) matmul kernels compiled for any CPU, on the software model of the tile registers.
#define FORGE_CPU_NAMESPACE class_tiles_generic
#define FORGE_CPU_PLAIN class_generic
#define FORGE_CPU_GENERIC
#define FORGE_TEST_BLOCKS SomeBlocks

#include "tests/kernels/tiles_model-inl.h"
