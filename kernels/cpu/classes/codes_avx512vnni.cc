// What depends on types of weights, for the class of class_avx512vnni.cc: apart from it to be compiled beside it.
#define FORGE_CPU_NAMESPACE class_avx512vnni

#include "kernels/cpu/matmul/codes_table-inl.h"
