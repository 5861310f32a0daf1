// The part of class_generic.cc that is instantiated per weight type: a unit of its own, so that both compile in
// parallel.
#define FORGE_CPU_NAMESPACE class_generic
#define FORGE_CPU_GENERIC

#include "kernels/cpu/matmul/codes_table-inl.h"
