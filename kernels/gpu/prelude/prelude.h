#pragma once
// The dialect of the device sources, and the only place that knows which compiler reads them: clang for AMD (hipRTC
// included), NVRTC, or the host compiler, which runs a kernel's lanes as fibres in tests. Sources are free-standing
// C++20: builtins, no headers of a runtime. A specialised source defines what its target is, includes this and the
// kernels, and states its configuration as constants. Of targets the prelude knows the vendor, by the compiler, and:
//
// FORGE_WAVE      lanes of a wave: 32 or 64
// FORGE_DOT       the instruction that adds four products of signed bytes: FORGE_DOT_NONE, _SDOT4, _SUDOT4 (AMD), _DP4A
// FORGE_MATRIX    the instructions for matrix tiles: FORGE_MATRIX_NONE, _MFMA_GFX90A, _MFMA_GFX942, _WMMA_GFX11,
//                 _WMMA_GFX12, _MMA
// FORGE_COPIES    1: memory is copied to LDS behind a lane's back
// FORGE_OVERLAPS  1: a kernel can begin before the one that it waits for has ended
//
// FORGE_KERNEL(name, blocks, threads, Args) { ... args.x ... }
//                                                        one kernel; its only parameter is the plain struct `Args`
// FORGE_KERNEL_BOUNDS(name, blocks, threads, min_blocks, Args)
//                                                        the same, with registers for min_blocks blocks on a unit at
//                                                        once; a wish that only some targets know
// FORGE_LDS(Type, name);                                 the block's shared memory, one object a kernel
// FORGE_DEVICE, FORGE_UNROLL, FORGE_LOOP                 a function of the device; unroll the next loop, or do not
// FORGE_SITE, FORGE_AT                                   last in a parameter list, and in a call, of a function that
//                                                        passes its caller's place on to a collective: on the host
//                                                        lanes that meet must be at the same place
//
// anew(value)                                            the same value, and the compiler does not know: what is made
// of
//                                                        it is made again, and does not wait in registers
//
// Blocks and threads have one dimension, and the number of blocks is a constant of the specialisation; 0 where the
// launch says it.
// Every lane of a wave must reach a shuffle, and every lane of a block a barrier: there are no masks, and lanes that
// have nothing to do go along with a neutral value. The executor in tests/gpu_host fails a kernel that does otherwise.
// Branches and loops round a shuffle must be scalar ones: where the compiler cannot know that a condition is the same
// in all lanes, uniform() says so. tests/exec_mask fails machine code that does otherwise.

#if !defined(FORGE_WAVE) || !defined(FORGE_DOT) || !defined(FORGE_MATRIX) || !defined(FORGE_COPIES) || \
    !defined(FORGE_OVERLAPS)
#error "a specialised source defines FORGE_WAVE, FORGE_DOT, FORGE_MATRIX, FORGE_COPIES and FORGE_OVERLAPS"
#endif
// From 1 on: to the preprocessor a name that is none of these is 0.
#define FORGE_DOT_NONE 1
#define FORGE_DOT_SDOT4 2
#define FORGE_DOT_SUDOT4 3
#define FORGE_DOT_DP4A 4
#define FORGE_MATRIX_NONE 1
#define FORGE_MATRIX_MFMA_GFX90A 2
#define FORGE_MATRIX_MFMA_GFX942 3
#define FORGE_MATRIX_WMMA_GFX11 4
#define FORGE_MATRIX_WMMA_GFX12 5
#define FORGE_MATRIX_MMA 6
#if FORGE_DOT < FORGE_DOT_NONE || FORGE_MATRIX < FORGE_MATRIX_NONE
#error "FORGE_DOT or FORGE_MATRIX is of no kind that the prelude knows"
#endif

#if defined(__HIP__)
#include "kernels/gpu/prelude/prelude_amd.h"
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#include "kernels/gpu/prelude/prelude_nvidia.h"
#else
#include "kernels/gpu/prelude/prelude_host.h"
#endif

namespace forge::gpu {

static_assert(kWave == 32 || kWave == 64, "waves have 32 or 64 lanes");

#if !defined(FORGE_HOST_LANES)
/// An array in shared memory. The host's own one looks on who reads and writes what.
template <class T, int Count>
class Shared {
 public:
  FORGE_DEVICE T get(int index) const { return data_[index]; }
  FORGE_DEVICE void set(int index, T value) { data_[index] = value; }
  FORGE_DEVICE const T* address(int index) const { return data_ + index; }
  /// Of integers: atomic among adds; anything else needs a barrier between.
  FORGE_DEVICE void add(int index, T value) { add_shared(data_ + index, value); }
  /// Of an array of U32x4: the index-th 16 bits.
  FORGE_DEVICE void set_half(int index, u16 value) { reinterpret_cast<u16*>(data_)[index] = value; }
  /// The index-th word.
  FORGE_DEVICE void set_word(int index, u32 value) { reinterpret_cast<u32*>(data_)[index] = value; }
  /// Of an array of F32x4: the index-th float.
  FORGE_DEVICE float scalar(int index) const { return reinterpret_cast<const float*>(data_)[index]; }

 private:
  T data_[Count];
};
#endif

#if !defined(__CUDACC_RTC__)
/// Byte I of a word as a number, plus kByteBias.
inline constexpr float kByteBias = 0.0f;
template <int I>
FORGE_DEVICE float byte_number(u32 word) {
  return static_cast<float>(word >> 8 * I & 255u);
}
/// Two numbers rounded to bf16, to even, the first in the low half. What is NaN here has a payload that ends in zeros.
FORGE_DEVICE u32 bf16_pair(float low, float high) {
  const u32 a = __builtin_bit_cast(u32, low), b = __builtin_bit_cast(u32, high);
  return permute(b + 0x7fffu + (b >> 16 & 1u), a + 0x7fffu + (a >> 16 & 1u), 0x07060302u);
}
/// Four bytes of a table of 16, one for each byte of codes below 16. NVIDIA's permutation goes by nibbles, and has its
/// own.
FORGE_DEVICE u32 lookup4(u32 codes, const U32x4& table) {
  const u32 within = codes & 0x07070707u;
  const u32 low = permute(table.at[1], table.at[0], within), high = permute(table.at[3], table.at[2], within);
  return permute(high, low, 0x03020100u | (codes & 0x08080808u) >> 1);
}
#endif

FORGE_DEVICE int lane_id() {
  return thread_id() % kWave;
}
/// The wave's number in its block, known to be the same in all lanes.
FORGE_DEVICE int wave_id() {
#if defined(FORGE_HOST_LANES)
  return thread_id() / kWave;  // no need to meet for it
#else
  return uniform(thread_id() / kWave);
#endif
}

/// The same for a condition.
FORGE_DEVICE bool uniform(bool condition FORGE_SITE) {
  return uniform(condition ? 1 : 0 FORGE_AT) != 0;
}

/// No access to memory is moved across this by the compiler.
FORGE_DEVICE void keep_order() {
  asm volatile("" ::: "memory");
  keep_schedule();
}

/// Two numbers rounded to f16, the first in the low half.
FORGE_DEVICE u32 f16_pair(float low, float high) {
  return f16_of_f32(low) | static_cast<u32>(f16_of_f32(high)) << 16;
}
FORGE_DEVICE float min_of(float a, float b) {
  return a < b ? a : b;
}
FORGE_DEVICE float max_of(float a, float b) {
  return a > b ? a : b;
}
FORGE_DEVICE constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}
FORGE_DEVICE constexpr bool is_power_of_two(int value) {
  return value > 0 && (value & (value - 1)) == 0;
}

template <class T>
struct Max {
  FORGE_DEVICE T operator()(T a, T b) const { return a > b ? a : b; }
};
template <class T>
struct Add {
  FORGE_DEVICE T operator()(T a, T b) const { return a + b; }
};

/// Combines over groups of `Lanes` neighbouring lanes (a power of two); all of a group's lanes get the result, which is
/// the same bits in each: a butterfly adds the same pairs whichever lane looks.
template <int Lanes, template <class> class Combine, class T>
FORGE_DEVICE T combine_lanes(T value FORGE_SITE) {
  static_assert(is_power_of_two(Lanes) && Lanes <= kWave, "a group of lanes is a power of two within a wave");
#if defined(FORGE_HOST_LANES)
  return butterfly<Lanes, Combine<T>>(value FORGE_AT);  // the same in one meeting of the wave
#else
  if constexpr (Lanes > 1) value = Combine<T>()(value, shuffle_xor<1>(value));
  if constexpr (Lanes > 2) value = Combine<T>()(value, shuffle_xor<2>(value));
  if constexpr (Lanes > 4) value = Combine<T>()(value, shuffle_xor<4>(value));
  if constexpr (Lanes > 8) value = Combine<T>()(value, shuffle_xor<8>(value));
  if constexpr (Lanes > 16) value = Combine<T>()(value, shuffle_xor<16>(value));
  if constexpr (Lanes > 32) value = Combine<T>()(value, shuffle_xor<32>(value));
  return value;
#endif
}
template <int Lanes, class T>
FORGE_DEVICE T sum_lanes(T value FORGE_SITE) {
  return combine_lanes<Lanes, Add>(value FORGE_AT);
}
template <int Lanes, class T>
FORGE_DEVICE T max_lanes(T value FORGE_SITE) {
  return combine_lanes<Lanes, Max>(value FORGE_AT);
}

/// Is this the last of `count` blocks to come here? True in all of its lanes, which then see what the others wrote
/// before they came (floats by load_fresh). The counter (0 before its first use) is 0 again afterwards. All lanes of
/// the block call this.
template <class Flag>
FORGE_DEVICE bool last_arrival(u32* counter, u32 count, Flag& flag) {
  if constexpr (kFenceByAll) fence_device();
  barrier();
  if (thread_id() == 0) {
    if constexpr (!kFenceByAll) fence_device();
    const bool last = atomic_add(counter, 1u) == count - 1;
    if (last) {
      if constexpr (!kFenceByAll) fence_device();
      atomic_store(counter, 0u);
    }
    flag.set(0, last ? 1u : 0u);
  }
  barrier();
  const bool last = flag.get(0) != 0;
  if constexpr (kFenceByAll) fence_device();
  return last;
}

}  // namespace forge::gpu
