#pragma once
// Types and macros that let one header serve the host, HIP (hipcc or hiprtc) and CUDA (NVRTC). Block formats are
// free-standing: they allocate nothing and use no library beyond fixed-width integers. Functions are forced inline,
// because translation units are compiled for different CPUs: an out-of-line copy from a unit built for AVX-512 could be
// the one that the linker keeps for all.

#if defined(__HIP__) || defined(__CUDACC_RTC__)  // run-time compilers have no standard headers
namespace forge::quant {
using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
}  // namespace forge::quant
#else
#include <cstdint>
namespace forge::quant {
using i8 = std::int8_t;
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
}  // namespace forge::quant
#endif

#if defined(__HIP__) || defined(__CUDACC__)
#define FORGE_QUANT_FN __attribute__((host)) __attribute__((device)) __attribute__((always_inline)) inline
#else
#define FORGE_QUANT_FN [[gnu::always_inline]] inline
#endif

/// A table that is indexed at run time. NVRTC has to be told that it lies in device memory; clang finds out.
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define FORGE_QUANT_TABLE __attribute__((device)) constexpr
#else
#define FORGE_QUANT_TABLE inline constexpr
#endif

namespace forge::quant {

/// memcpy of a constant number of bytes. Compilers turn it into one load and one store.
template <u64 kBytes>
FORGE_QUANT_FN void copy_bytes(void* to, const void* from) {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  memcpy(to, from, kBytes);
#else
  __builtin_memcpy(to, from, kBytes);
#endif
}

}  // namespace forge::quant
