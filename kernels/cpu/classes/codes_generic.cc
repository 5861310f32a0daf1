// What depends on types of weights, for the class of class_generic.cc: apart from it to be compiled beside it.
#define FORGE_CPU_NAMESPACE class_generic
#define FORGE_CPU_GENERIC

#include "kernels/cpu/matmul/codes_table-inl.h"
