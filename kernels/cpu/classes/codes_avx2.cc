// The part of class_avx2.cc that is instantiated per weight type: a unit of its own, so that both compile in parallel.
#define FORGE_CPU_NAMESPACE class_avx2

#include "kernels/cpu/matmul/codes_table-inl.h"
