#pragma once
// The language of the kernel sources: macros, thread ids, shuffles, loads, fences and dots with the same meaning on all
// targets. Only the prelude depends on the compiler: clang for AMD (hipRTC included), NVRTC, or the host's C++
// compiler, which runs a kernel's lanes as fibres in tests (tests/gpu_host). Kernel sources are free-standing C++20:
// they use compiler builtins and include no runtime header.
//
// A specialised source (codegen/gpu/source/kernel_text.h writes it) defines the macros below, includes the kernel's
// header and gives the configuration as constants. The compiler tells the vendor; these macros tell all the rest that a
// kernel may depend on:
//
// FORGE_WAVE      lanes of a wave (a warp on NVIDIA): 32 or 64
// FORGE_DOT       instruction that sums four int8 products: FORGE_DOT_NONE, _SDOT4, _SUDOT4 (AMD), _DP4A (NVIDIA)
// FORGE_MATRIX    matrix instructions: FORGE_MATRIX_NONE, _MFMA_GFX90A, _MFMA_GFX942, _WMMA_GFX11, _WMMA_GFX12, _MMA
// FORGE_FP8       8-bit floats that it converts: FORGE_FP8_NONE, _OCP, _FNUZ (kernels/quant/fp8.h). With none the
//                 fp8_* functions do not exist
// FORGE_COPIES    1: the target has asynchronous copies from global to shared memory (cp.async)
// FORGE_OVERLAPS  1: a kernel can start before the kernel that it depends on has ended (griddepcontrol)
//
// The vendor's header then defines:
//
// FORGE_KERNEL(name, blocks, threads, Args) { ... args.x ... }
//                 a kernel; its only parameter is `args`, a plain struct of type Args
// FORGE_KERNEL_BOUNDS(name, blocks, threads, min_blocks, Args)
//                 the same, with a register budget that lets one compute unit hold min_blocks blocks. AMD ignores it.
// FORGE_LDS(Type, name);
//                 the block's shared memory: one object per kernel
// FORGE_DEVICE    marks a device function, always inlined
// FORGE_UNROLL, FORGE_LOOP
//                 before a loop: unroll it fully; do not unroll it
// FORGE_SITE, FORGE_AT
//                 the last parameter, and the last argument, of a function that calls a collective. On the host they
//                 pass the caller's source line on, because all lanes that meet must be at the same line. Elsewhere
//                 they are empty.
// FORGE_PART(number);
//                 the end of one of several alternative parts of a function, each with another number. Without it, LLVM
//                 15 moves equal ends of parts behind the branch and selects the address of the argument that they
//                 read, so that a kernel's arguments are in private memory. AMD only.
// opaque(value)   returns `value`, but hides from the compiler that it is the same. Expressions that use it are
//                 computed again instead of being kept in registers across a long loop.
//
// Grids and blocks have one dimension. The number of blocks is a constant of the specialisation, or 0 if the launch
// gives it.
//
// Divergence. Every lane of a wave must reach each shuffle, and every lane of a block each barrier: there are no masks.
// Lanes without work take part with a neutral value. The host executor (tests/gpu_host) fails a kernel that breaks
// this. A branch or loop around a shuffle must be scalar. Where the compiler cannot prove that a condition is the same
// in all lanes, pass it through uniform(); tests/exec_mask checks the machine code.

#if !defined(FORGE_WAVE) || !defined(FORGE_DOT) || !defined(FORGE_MATRIX) || !defined(FORGE_FP8) || \
    !defined(FORGE_COPIES) || !defined(FORGE_OVERLAPS)
#error "a specialised source defines FORGE_WAVE, FORGE_DOT, FORGE_MATRIX, FORGE_FP8, FORGE_COPIES and FORGE_OVERLAPS"
#endif
// Numbered from 1, because the preprocessor takes an unknown name for 0, which the check below then refuses.
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
#define FORGE_FP8_NONE 1
#define FORGE_FP8_OCP 2
#define FORGE_FP8_FNUZ 3
#if FORGE_DOT < FORGE_DOT_NONE || FORGE_MATRIX < FORGE_MATRIX_NONE || FORGE_FP8 < FORGE_FP8_NONE
#error "FORGE_DOT, FORGE_MATRIX or FORGE_FP8 has an unknown value"
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
inline constexpr bool kAsyncCopies = FORGE_COPIES != 0;

#if !defined(FORGE_HOST_LANES)
/// An array in shared memory. The host has its own version, which checks bounds, races and uninitialised reads.
template <class T, int Count>
class Shared {
 public:
  FORGE_DEVICE T get(int index) const { return data_[index]; }
  FORGE_DEVICE void set(int index, T value) { data_[index] = value; }
  FORGE_DEVICE const T* address(int index) const { return data_ + index; }
  /// For arrays of 16-byte elements: copy16_async to element `index`.
  FORGE_DEVICE void copy16(int index, const void* from, bool real) { copy16_async(data_ + index, from, real); }
  /// For integers. Atomic with respect to other add() calls; every other access needs a barrier in between.
  FORGE_DEVICE void add(int index, T value) { add_shared(data_ + index, value); }
  /// For arrays of U32x4: sets 16-bit element `index`, counted over the whole array.
  FORGE_DEVICE void set_half(int index, u16 value) { reinterpret_cast<u16*>(data_)[index] = value; }
  /// For arrays of U32x4: sets 32-bit element `index`, counted over the whole array.
  FORGE_DEVICE void set_word(int index, u32 value) { reinterpret_cast<u32*>(data_)[index] = value; }
  /// For arrays of U32x4: the first (0) or second (1) eight bytes of element `index`.
  FORGE_DEVICE U32x2 half_of(int index, int half) const {
    return reinterpret_cast<const U32x2*>(data_)[2 * index + half];
  }
  /// For arrays of F32x4: float `index`, counted over the whole array.
  FORGE_DEVICE float scalar(int index) const { return reinterpret_cast<const float*>(data_)[index]; }
  FORGE_DEVICE void set_scalar(int index, float value) { reinterpret_cast<float*>(data_)[index] = value; }

 private:
  T data_[Count];
};
#endif

inline constexpr float kHalfBias = 1024.0f;  ///< of byte_halves
#if !defined(__CUDACC_RTC__)
/// byte_number<I>(word) is the unsigned byte I of `word` (0 is the lowest) as a float, plus kByteBias. NVIDIA's version
/// has another bias, so callers subtract kByteBias.
inline constexpr float kByteBias = 0.0f;
template <int I>
FORGE_DEVICE float byte_number(u32 word) {
  return static_cast<float>(word >> 8 * I & 255u);
}
/// Rounds two floats to bf16 (nearest, ties to even) and packs them, `low` in the low half. The rounding adds 0x7fff or
/// 0x8000 to the bits; a NaN must have a payload that ends in zeros, or the addition could carry into the sign.
FORGE_DEVICE u32 bf16_pair(float low, float high) {
  const u32 a = __builtin_bit_cast(u32, low), b = __builtin_bit_cast(u32, high);
  return permute(b + 0x7fffu + (b >> 16 & 1u), a + 0x7fffu + (a >> 16 & 1u), 0x07060302u);
}
/// Bytes 2 I and 2 I + 1 of a word as two f16, plus kHalfBias: a byte becomes the low mantissa bits of 1024.
template <int I>
FORGE_DEVICE u32 byte_halves(u32 word) {
  return permute(0x64646464u, word, I == 0 ? 0x04010400u : 0x04030402u);
}
/// The low 16 bits of two words, or the high ones; those of `first` are low in the result.
FORGE_DEVICE u32 low_halves(u32 first, u32 second) {
  return permute(second, first, 0x05040100u);
}
FORGE_DEVICE u32 high_halves(u32 first, u32 second) {
  return permute(second, first, 0x07060302u);
}
/// Looks up four codes at once: byte i of the result is table byte codes.byte[i], for codes below 16. Each half of the
/// table is looked up by the low three bits of the codes, then bit 3 selects between the two results. NVIDIA has its
/// own version, because its byte permutation takes one nibble per selected byte instead of one byte.
FORGE_DEVICE u32 lookup4(u32 codes, const U32x4& table) {
  const u32 within = codes & 0x07070707u;
  const u32 low = permute(table.at[1], table.at[0], within), high = permute(table.at[3], table.at[2], within);
  return permute(high, low, 0x03020100u | (codes & 0x08080808u) >> 1);
}
#endif

/// The lane's number in its wave.
FORGE_DEVICE int lane_id() {
  return thread_id() % kWave;
}
/// The wave's number in its block. The compiler sees it as a scalar (the same in all lanes).
FORGE_DEVICE int wave_id() {
#if defined(FORGE_HOST_LANES)
  return thread_id() / kWave;  // uniform() would be a collective; this is the same in all lanes anyway
#else
  return uniform(thread_id() / kWave);
#endif
}

/// Tells the compiler that `condition` is the same in all lanes of the wave, so that a branch on it is scalar.
FORGE_DEVICE bool uniform(bool condition FORGE_SITE) {
  return uniform(condition ? 1 : 0 FORGE_AT) != 0;
}

/// The compiler moves no memory access across this. It is not a fence: the hardware may still reorder.
FORGE_DEVICE void keep_order() {
  asm volatile("" ::: "memory");
  keep_schedule();
}

FORGE_DEVICE float min_of(float a, float b) {
  return a < b ? a : b;
}
FORGE_DEVICE float max_of(float a, float b) {
  return a > b ? a : b;
}
/// The address of element `index` of an array that is smaller than 4 GiB: such addresses take fewer registers and
/// instructions on AMD than those of 64-bit indices.
template <class T>
FORGE_DEVICE const T* element(const T* first, u32 index) {
  return reinterpret_cast<const T*>(reinterpret_cast<const u8*>(first) + index * static_cast<u32>(sizeof(T)));
}
template <class T>
FORGE_DEVICE T* element(T* first, u32 index) {
  return reinterpret_cast<T*>(reinterpret_cast<u8*>(first) + index * static_cast<u32>(sizeof(T)));
}
FORGE_DEVICE constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}
/// The smallest power of two that is at least `value`, which is positive.
FORGE_DEVICE constexpr int power_of_two_from(int value) {
  return value <= 1 ? 1 : 2 * power_of_two_from((value + 1) / 2);
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

/// Reduces over groups of `Lanes` neighbouring lanes (a power of two). All lanes of a group get the result, with the
/// same bits in each lane, because every step of this butterfly combines the same pairs in every lane:
///
///   lane           0            1            2            3          (Lanes = 4)
///   start          a            b            c            d
///   after xor 1    a+b          b+a          c+d          d+c
///   after xor 2    (a+b)+(c+d)  (b+a)+(d+c)  (c+d)+(a+b)  (d+c)+(b+a)
///
/// All lanes of the wave call this together.
template <int Lanes, template <class> class Combine, class T>
FORGE_DEVICE T combine_lanes(T value FORGE_SITE) {
  static_assert(is_power_of_two(Lanes) && Lanes <= kWave, "the number of lanes must be a power of two within a wave");
#if defined(FORGE_HOST_LANES)
  return butterfly<Lanes, Combine<T>>(value FORGE_AT);  // the same result with one collective instead of log2(Lanes)
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

/// For reductions over blocks without a second kernel: the last block to arrive combines what all have written.
/// Returns true in all lanes of the last of `count` blocks to call this, false in all other blocks.
///
///   block 0   write partials   fence   atomic_add -> 0           false: ends
///   block 2   write partials   fence   atomic_add -> 1           false: ends
///   block 1   write partials   fence   atomic_add -> count - 1   true: fence, reads all partials, combines
///
/// Ordering: the fence before the atomic publishes the block's writes, the fence after it makes the other blocks'
/// writes visible to the last block. The reads must use load_fresh, which bypasses caches that are not coherent between
/// blocks. kFenceByAll says whether every wave needs its own fence (AMD) or one thread's fence, after a barrier,
/// covers the block (NVIDIA). Which block is last varies from run to run, so callers combine in a fixed order to keep
/// results deterministic.
///
/// counter: 0 before the first use; this sets it back to 0. flag: one u32 in shared memory. All lanes of the block call
/// this.
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

/// The block's number among those of the kernel with configuration C. Where another kernel's blocks come first in the
/// launch, C has their number, kFirstBlock.
template <class C>
FORGE_DEVICE int block_of() {
  if constexpr (requires { C::kFirstBlock; })
    return block_id() - C::kFirstBlock;
  else
    return block_id();
}

}  // namespace forge::gpu
