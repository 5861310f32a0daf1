#pragma once
// The prelude for AMD: clang builtins that LLVM 15 (hipRTC 5.2.3) and newer have. Scopes and fences follow the memory
// model of LLVM's AMDGPUUsage.

#define FORGE_SITE
#define FORGE_AT
#define FORGE_DEVICE __attribute__((device)) __attribute__((always_inline)) inline
#define FORGE_UNROLL _Pragma("unroll")
#define FORGE_LOOP _Pragma("nounroll")
#define FORGE_PART(number) asm volatile("; part " #number)
#define FORGE_KERNEL(name, blocks, threads, Args)                                                              \
  extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads))) void name( \
      const Args args)
// min_blocks is ignored: the compiler's own register budget, which it derives from the block's size, is kept.
#define FORGE_KERNEL_BOUNDS(name, blocks, threads, min_blocks, Args) FORGE_KERNEL(name, blocks, threads, Args)
#define FORGE_LDS(Type, name) __attribute__((shared)) static Type name
#define FORGE_LDS_LAUNCHED FORGE_LDS

#include "kernels/gpu/prelude/prelude_types.h"
#include "kernels/quant/f16.h"

namespace forge::gpu {

#if defined(__AMDGCN_WAVEFRONT_SIZE__)
static_assert(__AMDGCN_WAVEFRONT_SIZE__ == FORGE_WAVE,
              "FORGE_WAVE must be the wave size that the compiler generates code for");
#endif

FORGE_DEVICE int thread_id() {
  return static_cast<int>(__builtin_amdgcn_workitem_id_x());
}
FORGE_DEVICE int block_id() {
  return static_cast<int>(__builtin_amdgcn_workgroup_id_x());
}
/// Tells the compiler that `value` is the same in all lanes of the wave.
FORGE_DEVICE int uniform(int value) {
  return __builtin_amdgcn_readfirstlane(value);
}

/// The instruction scheduler moves nothing across this, if the compiler has the builtin (LLVM 15 and newer).
FORGE_DEVICE void keep_schedule() {
#if defined(__has_builtin)
#if __has_builtin(__builtin_amdgcn_sched_barrier)
  __builtin_amdgcn_sched_barrier(0);
#endif
#endif
}
FORGE_DEVICE int opaque(int value) {
  asm volatile("" : "+v"(value));
  return value;
}
/// All lanes of the block wait here; their earlier writes to shared and global memory are then visible in the block.
FORGE_DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
/// The same for shared memory only: loads from device memory stay under way across it.
FORGE_DEVICE void barrier_shared() {
#if FORGE_MATRIX == FORGE_MATRIX_WMMA_GFX12  // whose barriers are in two parts
  asm volatile("s_wait_dscnt 0x0\n\ts_barrier_signal -1\n\ts_barrier_wait -1" ::: "memory");
#else
  asm volatile("s_waitcnt lgkmcnt(0)\n\ts_barrier" ::: "memory");
#endif
}
/// Orders this wave's memory accesses with respect to all blocks of the device.
FORGE_DEVICE void fence_device() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
}
/// A fence only orders the accesses of its own wave, so last_arrival needs one in every wave.
inline constexpr bool kFenceByAll = true;
/// Adds to *at, relaxed, for the whole device; returns the old value.
FORGE_DEVICE u32 atomic_add(u32* at, u32 value) {
  return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
FORGE_DEVICE void add_shared(i32* at, i32 value) {
  (void)__hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
FORGE_DEVICE void atomic_store(u32* at, u32 value) {
  __hip_atomic_store(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
/// Loads a float that another block wrote before last_arrival. Bypasses the caches of this compute unit, which may hold
/// an old value.
FORGE_DEVICE float load_fresh(const float* from) {
  return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
/// The same of four floats at an address that 16 divides.
FORGE_DEVICE F32x4 load_fresh4(const float* from) {
  const u64* pairs = reinterpret_cast<const u64*>(from);
  const u64 first = __hip_atomic_load(pairs, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  const u64 second = __hip_atomic_load(pairs + 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  const auto part = [](u64 bits) { return __builtin_bit_cast(float, static_cast<u32>(bits)); };
  return {{part(first), part(first >> 32), part(second), part(second >> 32)}};
}
/// Stores to pinned host memory. The host sees the value once the kernel has ended.
FORGE_DEVICE void store_host(int* at, int value) {
  __hip_atomic_store(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

// Cross-lane instructions and convergence. A shuffle reads garbage from a lane that the exec mask has switched off, so
// the compiler must not move a shuffle into a branch that only some lanes take. LLVM only respects this for
// instructions that are marked convergent:
//   - marked in LLVM 15 (hipRTC 5.2.3), 16 and 19: ds_bpermute, ds_swizzle, v_mov with DPP and the additions that
//     GCNDPPCombine makes of it, v_readlane, v_readfirstlane, MFMA;
//   - v_permlane16 and v_permlanex16: only since LLVM 21 (llvm-project pull request 142962);
//   - WMMA: only since LLVM 22 (pull request 165602).
// Code sinking did move v_permlanex16, together with the addition before it, into `if (lane_id() == 0)`, where lane 16
// is off; sums were wrong. Therefore shuffles by 16 use ds_swizzle, which needs as many instructions, and WMMA results
// are pinned (prelude_tiles.h). tests/exec_mask checks the machine code.

/// Returns the value of lane `source` of this wave. All lanes call it together.
template <class T>
FORGE_DEVICE T shuffle(T value, int source) {
  static_assert(sizeof(T) == 4, "shuffles move 4 bytes");
  return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(4 * source, __builtin_bit_cast(int, value)));
}
namespace detail {
/// Another lane's value by DPP (data-parallel primitives), which the hardware applies as it reads an operand, without
/// the latency of ds_swizzle. Control is dpp_ctrl of the ISA guides; the lane that it selects must exist.
template <int Control>
FORGE_DEVICE int other_lane(int value) {
  return __builtin_amdgcn_update_dpp(0, value, Control, 0xf, 0xf, true);
}
}  // namespace detail
/// Returns the value of lane `lane_id() ^ Mask`. All lanes call it together. Uses DPP where a mode exists for the mask,
/// else ds_swizzle (within 32 lanes), else ds_bpermute.
template <int Mask, class T>
FORGE_DEVICE T shuffle_xor(T value) {
  static_assert(sizeof(T) == 4 && Mask > 0 && Mask < kWave, "shuffles move 4 bytes within the wave");
  const int bits = __builtin_bit_cast(int, value);
  if constexpr (kWave == 32) {  // RDNA
    constexpr int kRowXmask = 0x160;
    if constexpr (Mask < 16) return __builtin_bit_cast(T, detail::other_lane < kRowXmask | Mask > (bits));
  } else {
    // Within a row of 16 lanes, a rotation by 8 is the same as xor 8.
    constexpr int kSwapOne = 0xb1, kSwapTwo = 0x4e, kRotateEight = 0x128;  // quad_perm 1,0,3,2 and 2,3,0,1; row_ror:8
    if constexpr (Mask == 1) return __builtin_bit_cast(T, detail::other_lane<kSwapOne>(bits));
    if constexpr (Mask == 2) return __builtin_bit_cast(T, detail::other_lane<kSwapTwo>(bits));
    if constexpr (Mask == 8) return __builtin_bit_cast(T, detail::other_lane<kRotateEight>(bits));
  }
  if constexpr (Mask < 32)  // ds_swizzle's bit-mask mode: source lane = ((lane & 31) | 0) ^ Mask
    return __builtin_bit_cast(T, __builtin_amdgcn_ds_swizzle(bits, 0x1f | Mask << 10));
  else
    return shuffle(value, static_cast<int>(__builtin_amdgcn_workitem_id_x() % FORGE_WAVE) ^ Mask);
}

/// The value of the lane with the same number within a half of the wave of 32: of the lower half, or the upper one.
template <int Half>
FORGE_DEVICE u32 from_half(u32 value) {
  static_assert(kWave == 32 && (Half == 0 || Half == 1));
  return static_cast<u32>(__builtin_amdgcn_ds_swizzle(static_cast<int>(value), 0xf | Half << 9));
}

/// Selects four of eight bytes. Byte i of the result is the one that byte i of `selector` names: 0..3 are the bytes of
/// `second`, 4..7 those of `first`, lowest first.
FORGE_DEVICE u32 permute(u32 first, u32 second, u32 selector) {
  return __builtin_amdgcn_perm(first, second, selector);
}

/// c plus the four products of signed bytes a.byte[i] * b.byte[i]; exact.
FORGE_DEVICE i32 dot4(u32 a, u32 b, i32 c) {
#if FORGE_DOT == FORGE_DOT_SUDOT4
  return __builtin_amdgcn_sudot4(true, static_cast<int>(a), true, static_cast<int>(b), c, false);
#elif FORGE_DOT == FORGE_DOT_SDOT4
  return __builtin_amdgcn_sdot4(static_cast<int>(a), static_cast<int>(b), c, false);
#else
  for (int i = 0; i < 4; ++i) c += static_cast<i8>(a >> 8 * i) * static_cast<i8>(b >> 8 * i);
  return c;
#endif
}

FORGE_DEVICE float f32_of_f16(u16 bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}
FORGE_DEVICE u16 f16_of_f32(float value) {
  return __builtin_bit_cast(u16, static_cast<_Float16>(value));
}
namespace detail {
using HalfPair = _Float16 __attribute__((ext_vector_type(2)));
}
/// Rounds two floats to f16 and packs them, `low` in the low half.
FORGE_DEVICE u32 f16_pair(float low, float high) {
  return __builtin_bit_cast(u32, detail::HalfPair{static_cast<_Float16>(low), static_cast<_Float16>(high)});
}
/// The same in one instruction, which rounds towards zero.
FORGE_DEVICE u32 f16_pair_quickly(float low, float high) {
  return __builtin_bit_cast(u32, __builtin_amdgcn_cvt_pkrtz(low, high));
}
#if FORGE_FP8 != FORGE_FP8_NONE
/// Rounds two floats to 8-bit floats in the target's encoding, and packs them in 16 bits, `low` in the low byte. They
/// saturate; NaN stays NaN.
FORGE_DEVICE u32 fp8_pair(float low, float high) {
  constexpr float kMost = FORGE_FP8 == FORGE_FP8_FNUZ ? 240.0f : 448.0f;  // the instruction may make NaN of more
  const auto within = [](float value) {
    return value != value ? value : __builtin_amdgcn_fmed3f(value, -kMost, kMost);
  };
  return static_cast<u32>(__builtin_amdgcn_cvt_pk_fp8_f32(within(low), within(high), 0, false)) & 0xffffu;
}
/// The four 8-bit floats of a word; exact.
FORGE_DEVICE F32x4 fp8_numbers(u32 word) {
  const auto low = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), false);
  const auto high = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), true);
  return {{low[0], low[1], high[0], high[1]}};
}
/// 8-bit floats 2 I and 2 I + 1 of a word as two f16; exact.
template <int I>
FORGE_DEVICE u32 fp8_halves(u32 word) {
  const auto two = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(word), I == 1);
  return f16_pair_quickly(two[0], two[1]);
}
#endif
/// The larger ones of two packed f16 that are not negative.
FORGE_DEVICE u32 larger_halves(u32 a, u32 b) {
  using Two = u16 __attribute__((ext_vector_type(2)));
  return __builtin_bit_cast(u32, __builtin_elementwise_max(__builtin_bit_cast(Two, a), __builtin_bit_cast(Two, b)));
}
/// sum + both of the packed f16.
FORGE_DEVICE float sum_of_halves(u32 pair, float sum) {
  constexpr u32 kOnes = 0x3c003c00;
  return __builtin_amdgcn_fdot2(__builtin_bit_cast(detail::HalfPair, pair), __builtin_bit_cast(detail::HalfPair, kOnes),
                                sum, false);
}
/// a + b of two packed f16.
FORGE_DEVICE u32 add_halves(u32 a, u32 b) {
  return __builtin_bit_cast(u32, __builtin_bit_cast(detail::HalfPair, a) + __builtin_bit_cast(detail::HalfPair, b));
}
/// a * b + c of two packed f16, each rounded once.
FORGE_DEVICE u32 fma_halves(u32 a, u32 b, u32 c) {
#pragma clang fp contract(fast)
  return __builtin_bit_cast(u32, __builtin_bit_cast(detail::HalfPair, a) * __builtin_bit_cast(detail::HalfPair, b) +
                                     __builtin_bit_cast(detail::HalfPair, c));
}
/// The larger of two numbers, which are not NaN, in one instruction.
FORGE_DEVICE float larger_of(float a, float b) {
  return __builtin_amdgcn_fmed3f(a, b, __builtin_inff());
}
/// True in all lanes if `condition` is in one of the wave's. All lanes call it together. hipRTC 5.2 knows no ballot of
/// a wave of 64.
FORGE_DEVICE bool any_lane(bool condition) {
  constexpr int kNotEqual = 33;
  return __builtin_amdgcn_uicmp(static_cast<u32>(condition), 0u, kNotEqual) != 0;
}
/// 2^value with the hardware's accuracy; 0 where the result is subnormal. Compilers without the builtin (hipRTC 5.2)
/// add instructions that keep subnormal results.
FORGE_DEVICE float exp2_of(float value) {
#if defined(__has_builtin)
#if __has_builtin(__builtin_amdgcn_exp2f)
#define FORGE_HAS_EXP2
#endif
#endif
#if defined(FORGE_HAS_EXP2)
  return __builtin_amdgcn_exp2f(value);
#else
  return __builtin_exp2f(value);
#endif
}
/// Base-2 logarithm with the hardware's accuracy, a few units in the last place.
FORGE_DEVICE float log2_of(float value) {
  return __builtin_log2f(value);
}
FORGE_DEVICE float sqrt_of(float value) {
  return __builtin_sqrtf(value);
}
/// 1 / sqrt(value) within two units in the last place; value is a normal number.
FORGE_DEVICE float inverse_sqrt_of(float value) {
  return __builtin_amdgcn_rsqf(value);
}
/// a / b within two units in the last place, in a few instructions; 0 where b is above 2^126.
FORGE_DEVICE float quotient_of(float a, float b) {
  return a * __builtin_amdgcn_rcpf(b);
}
FORGE_DEVICE float fma_of(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
/// Rounds to the nearest integer, ties to even.
FORGE_DEVICE float round_of(float value) {
  return __builtin_rintf(value);
}
FORGE_DEVICE float abs_of(float value) {
  return __builtin_fabsf(value);
}

namespace detail {
using Vector4 = u32 __attribute__((ext_vector_type(4)));
using Vector2 = u32 __attribute__((ext_vector_type(2)));
#define FORGE_GLOBAL __attribute__((address_space(1)))
}  // namespace detail

// Loads from device memory. The address space is given explicitly, so that the compiler emits global loads and not
// generic ("flat") ones.

/// Loads 16 bytes; the address is a multiple of 16.
FORGE_DEVICE U32x4 load16(const void* from) {
  return __builtin_bit_cast(U32x4, *(const FORGE_GLOBAL detail::Vector4*)from);
}
/// The same for data that a step reads once (weights): a hint not to keep it in the caches.
FORGE_DEVICE U32x4 load16_once(const void* from) {
  return __builtin_bit_cast(U32x4, __builtin_nontemporal_load((const FORGE_GLOBAL detail::Vector4*)from));
}
/// Loads 8 or 4 bytes; the address is a multiple of the size.
FORGE_DEVICE U32x2 load8(const void* from) {
  return __builtin_bit_cast(U32x2, *(const FORGE_GLOBAL detail::Vector2*)from);
}
FORGE_DEVICE u32 load4(const void* from) {
  return *(const FORGE_GLOBAL u32*)from;
}
/// Loads a scalar of any size.
template <class T>
FORGE_DEVICE T load(const T* from) {
  return *(const FORGE_GLOBAL T*)from;
}

/// Overlap of launches (see the NVIDIA prelude). AMD has none: a kernel starts when the one before it has ended.
FORGE_DEVICE void wait_for_producer() {}
FORGE_DEVICE void release_consumers() {}

/// Copies 16 bytes from device memory to shared memory, asynchronously if the target can (kAsyncCopies); sets them to
/// zero if not `real`, from a valid address nevertheless. wait_copies() waits for the lane's own copies. Copies since
/// the last commit_copies() are a group; wait_copies_but<N>() waits for all groups but the last N. AMD copies at once.
FORGE_DEVICE void copy16_async(void* lds, const void* from, bool real = true) {
  *static_cast<U32x4*>(lds) = real ? load16(from) : U32x4{};
}
FORGE_DEVICE void wait_copies() {}
FORGE_DEVICE void commit_copies() {}
template <int Groups>
FORGE_DEVICE void wait_copies_but() {}

}  // namespace forge::gpu
