#pragma once
// AMD: clang's builtins, as LLVM 15 (hipRTC 5.2.3) and newer have them. Scopes and fences: LLVM's AMDGPU memory model.

#define FORGE_SITE
#define FORGE_AT
#define FORGE_DEVICE __attribute__((device)) __attribute__((always_inline)) inline
#define FORGE_UNROLL _Pragma("unroll")
#define FORGE_LOOP _Pragma("nounroll")
#define FORGE_KERNEL(name, blocks, threads, Args)                                                              \
  extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads))) void name( \
      const Args args)
// Registers for a number of blocks on a unit: the compiler's own choice is kept, which goes by the block's size.
#define FORGE_KERNEL_BOUNDS(name, blocks, threads, min_blocks, Args) FORGE_KERNEL(name, blocks, threads, Args)
#define FORGE_LDS(Type, name) __attribute__((shared)) static Type name

#include "kernels/gpu/prelude/prelude_types.h"
#include "kernels/quant/f16.h"

namespace forge::gpu {

#if defined(__AMDGCN_WAVEFRONT_SIZE__)
static_assert(__AMDGCN_WAVEFRONT_SIZE__ == FORGE_WAVE, "FORGE_WAVE must be what the compiler generates code for");
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

/// The scheduler moves nothing across, where the compiler has a word for it (LLVM 15 and newer).
FORGE_DEVICE void keep_schedule() {
#if defined(__has_builtin)
#if __has_builtin(__builtin_amdgcn_sched_barrier)
  __builtin_amdgcn_sched_barrier(0);
#endif
#endif
}
FORGE_DEVICE int anew(int value) {
  asm volatile("" : "+v"(value));
  return value;
}
FORGE_DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
/// Orders this lane's memory accesses for the whole device.
FORGE_DEVICE void fence_device() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
}
/// A fence orders what its own wave wrote: before blocks meet, every wave has one.
inline constexpr bool kFenceByAll = true;
FORGE_DEVICE u32 atomic_add(u32* at, u32 value) {
  return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
FORGE_DEVICE void add_shared(i32* at, i32 value) {
  (void)__hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}
FORGE_DEVICE void atomic_store(u32* at, u32 value) {
  __hip_atomic_store(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
/// A float that another block wrote, by its last_arrival: past this unit's own caches.
FORGE_DEVICE float load_fresh(const float* from) {
  return __hip_atomic_load(from, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
/// A store that the host sees once the kernel has ended; `at` is pinned host memory.
FORGE_DEVICE void store_host(int* at, int value) {
  __hip_atomic_store(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

// Lanes that exchange values must all be on, so no compiler may move an exchange behind a branch that switches lanes
// off. What keeps LLVM from it is that an instruction is marked convergent: in LLVM 15 (hipRTC 5.2.3), 16 and 19
// ds_bpermute, ds_swizzle, v_mov with DPP and the additions that GCNDPPCombine makes of it, v_readlane, v_readfirstlane
// and MFMA are. v_permlane16 and v_permlanex16 are only since LLVM 21 (llvm-project pull request 142962), WMMA since 22
// (165602): code sinking moved v_permlanex16, with the addition before it, behind `if (lane_id() == 0)`, where lane 16
// is off. So rows of 16 are exchanged by ds_swizzle, which costs as many instructions, and products of WMMA are pinned
// (prelude_tiles.h). tests/exec_mask looks at the machine code.

/// The value of lane `source` of this wave.
template <class T>
FORGE_DEVICE T shuffle(T value, int source) {
  static_assert(sizeof(T) == 4, "shuffles move 4 bytes");
  return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(4 * source, __builtin_bit_cast(int, value)));
}
namespace detail {
/// DPP: another lane's value as an operand, without the way through LDS. Control: the ISA guides' dpp_ctrl; the lane
/// that it names is always there.
template <int Control>
FORGE_DEVICE int other_lane(int value) {
  return __builtin_amdgcn_update_dpp(0, value, Control, 0xf, 0xf, true);
}
}  // namespace detail
/// The value of lane `lane_id() ^ Mask`.
template <int Mask, class T>
FORGE_DEVICE T shuffle_xor(T value) {
  static_assert(sizeof(T) == 4 && Mask > 0 && Mask < kWave, "shuffles move 4 bytes within the wave");
  const int bits = __builtin_bit_cast(int, value);
  if constexpr (kWave == 32) {  // RDNA
    constexpr int kRowXmask = 0x160;
    if constexpr (Mask < 16) return __builtin_bit_cast(T, detail::other_lane < kRowXmask | Mask > (bits));
  } else {
    constexpr int kSwapOne = 0xb1, kSwapTwo = 0x4e, kRotateEight = 0x128;  // quad_perm 1,0,3,2 and 2,3,0,1; row_ror:8
    if constexpr (Mask == 1) return __builtin_bit_cast(T, detail::other_lane<kSwapOne>(bits));
    if constexpr (Mask == 2) return __builtin_bit_cast(T, detail::other_lane<kSwapTwo>(bits));
    if constexpr (Mask == 8) return __builtin_bit_cast(T, detail::other_lane<kRotateEight>(bits));
  }
  if constexpr (Mask < 32)  // bit-mask mode: and 31, or 0, xor Mask
    return __builtin_bit_cast(T, __builtin_amdgcn_ds_swizzle(bits, 0x1f | Mask << 10));
  else
    return shuffle(value, static_cast<int>(__builtin_amdgcn_workitem_id_x() % FORGE_WAVE) ^ Mask);
}

/// Four bytes of eight, one for each byte of `selector`: 0..3 are bytes of `second`, 4..7 of `first`.
FORGE_DEVICE u32 permute(u32 first, u32 second, u32 selector) {
  return __builtin_amdgcn_perm(first, second, selector);
}

/// sum of the four products of signed bytes, plus c; exact.
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
FORGE_DEVICE float exp2_of(float value) {
  return __builtin_exp2f(value);
}
/// To the hardware's accuracy, a few units in the last place.
FORGE_DEVICE float log2_of(float value) {
  return __builtin_log2f(value);
}
FORGE_DEVICE float sqrt_of(float value) {
  return __builtin_sqrtf(value);
}
FORGE_DEVICE float fma_of(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
/// To the nearest integer, ties to even.
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

/// 16 bytes at an address that is a multiple of 16, of device memory.
FORGE_DEVICE U32x4 load16(const void* from) {
  return __builtin_bit_cast(U32x4, *(const FORGE_GLOBAL detail::Vector4*)from);
}
/// The same for what is read once in a step (weights): it need not stay in the caches.
FORGE_DEVICE U32x4 load16_once(const void* from) {
  return __builtin_bit_cast(U32x4, __builtin_nontemporal_load((const FORGE_GLOBAL detail::Vector4*)from));
}
/// 8 and 4 bytes at a multiple of their size.
FORGE_DEVICE U32x2 load8(const void* from) {
  return __builtin_bit_cast(U32x2, *(const FORGE_GLOBAL detail::Vector2*)from);
}
FORGE_DEVICE u32 load4(const void* from) {
  return *(const FORGE_GLOBAL u32*)from;
}
/// A scalar of any size.
template <class T>
FORGE_DEVICE T load(const T* from) {
  return *(const FORGE_GLOBAL T*)from;
}

/// Launch overlap, which AMD has not: a kernel starts when the one before has ended.
FORGE_DEVICE void wait_for_producer() {}
FORGE_DEVICE void release_consumers() {}

/// Copies 16 bytes of device memory to LDS behind the lane's back where the hardware can; wait_copies() waits.
FORGE_DEVICE void copy16_async(void* lds, const void* from) {
  *static_cast<U32x4*>(lds) = load16(from);
}
FORGE_DEVICE void wait_copies() {}

}  // namespace forge::gpu
