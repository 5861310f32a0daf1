#pragma once
// What lets one header serve the host and every device compiler. Block formats are free-standing: no allocation, no
// library beyond fixed-width integers. Functions are forced inline, so that a translation unit built for a newer CPU
// never leaves a copy behind that another one may be linked to.

#if defined(__HIP__) || defined(__CUDACC_RTC__)  // free-standing: no header of anyone's
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

namespace forge::quant {

/// memcpy of a constant number of bytes.
template <u64 kBytes>
FORGE_QUANT_FN void copy_bytes(void* to, const void* from) {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
  memcpy(to, from, kBytes);
#else
  __builtin_memcpy(to, from, kBytes);
#endif
}

}  // namespace forge::quant
