// The matmul kernels by tiles with the vectors of the class that has AMX, on the model of the tile registers.
#define FORGE_CPU_NAMESPACE class_tiles_avx512
#define FORGE_CPU_PLAIN class_avx512vnni
#define FORGE_TEST_BLOCKS quant::AllBlocks

#include "tests/kernels/tiles_model-inl.h"
