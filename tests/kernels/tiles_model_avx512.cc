// The tile (AMX) matmul kernels with the vectors of the AMX class, on the software model of the tile registers.
#define FORGE_CPU_NAMESPACE class_tiles_avx512
#define FORGE_CPU_PLAIN class_avx512vnni
#define FORGE_TEST_BLOCKS quant::AllBlocks

#include "tests/kernels/tiles_model-inl.h"
