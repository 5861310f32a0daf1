// What CpuClass::kAvx512VnniBf16 has beyond CpuClass::kAvx512Vnni: dots of BF16. Flags are in meson.build.
#define FORGE_CPU_NAMESPACE class_avx512bf16

#include "kernels/cpu/matmul/matmul_bf16-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

extern const MatmulFn kMatmulBf16;
const MatmulFn kMatmulBf16 = matmul_float<DotBf16>;

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
