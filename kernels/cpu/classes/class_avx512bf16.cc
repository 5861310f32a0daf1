// The addition of CpuClass::kAvx512VnniBf16 to CpuClass::kAvx512Vnni: the matmul with BF16 dots. Its compiler flags are
// in kernels/meson.build.
#define FORGE_CPU_NAMESPACE class_avx512bf16

#include "kernels/cpu/matmul/matmul_bf16-inl.h"

namespace forge::cpu::FORGE_CPU_NAMESPACE {

extern const MatmulFn kMatmulBf16;
const MatmulFn kMatmulBf16 = matmul_float<DotBf16>;

}  // namespace forge::cpu::FORGE_CPU_NAMESPACE
