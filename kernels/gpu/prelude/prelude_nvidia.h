#pragma once
// The prelude for NVIDIA: NVRTC builtins, and inline PTX (PTX ISA 8.x) where there is no builtin. Functions without a
// comment do what those of the same name in prelude_amd.h do.

#define FORGE_SITE
#define FORGE_AT
#define FORGE_DEVICE __device__ __forceinline__
#define FORGE_UNROLL _Pragma("unroll")
#define FORGE_LOOP _Pragma("unroll 1")
#define FORGE_PART(number)
#define FORGE_KERNEL(name, blocks, threads, Args) \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args args)
#define FORGE_KERNEL_BOUNDS(name, blocks, threads, min_blocks, Args) \
  extern "C" __global__ void __launch_bounds__(threads, min_blocks) name(const __grid_constant__ Args args)
#define FORGE_LDS(Type, name) __shared__ Type name
// More than the 48 KiB that a kernel can declare: the launch gives them.
#define FORGE_LDS_LAUNCHED(Type, name)                                 \
  extern __shared__ __align__(128) unsigned char forge_launched_lds[]; \
  Type& name = *reinterpret_cast<Type*>(forge_launched_lds)

#include "kernels/gpu/prelude/prelude_types.h"
#include "kernels/quant/f16.h"

namespace forge::gpu {

static_assert(FORGE_WAVE == 32, "NVIDIA's warps have 32 lanes");

FORGE_DEVICE int thread_id() {
  return static_cast<int>(threadIdx.x);
}
FORGE_DEVICE int block_id() {
  return static_cast<int>(blockIdx.x);
}
/// Not a shuffle: it is also called where lanes have diverged, and a shuffle with a full mask would hang there.
FORGE_DEVICE int uniform(int value) {
  return value;
}
FORGE_DEVICE void keep_schedule() {}
FORGE_DEVICE int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
FORGE_DEVICE void barrier() {
  __syncthreads();
}
FORGE_DEVICE void barrier_shared() {
  __syncthreads();
}
FORGE_DEVICE void fence_device() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
/// Fences are cumulative (PTX ISA, causality order): one also covers the writes of other threads of the block that a
/// barrier has made visible to its thread. So one thread's fence is enough for the block, and it disturbs the other
/// blocks of the SM less than a fence by every thread.
inline constexpr bool kFenceByAll = false;
FORGE_DEVICE u32 atomic_add(u32* at, u32 value) {
  u32 old;
  asm volatile("atom.add.relaxed.gpu.u32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(value) : "memory");
  return old;
}
FORGE_DEVICE void add_shared(i32* at, i32 value) {
  atomicAdd(at, value);
}
FORGE_DEVICE void atomic_store(u32* at, u32 value) {
  asm volatile("st.relaxed.gpu.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
FORGE_DEVICE float load_fresh(const float* from) {
  return __ldcg(from);
}
FORGE_DEVICE F32x4 load_fresh4(const float* from) {
  return __builtin_bit_cast(F32x4, __ldcg(reinterpret_cast<const uint4*>(from)));
}
FORGE_DEVICE void store_host(int* at, int value) {
  asm volatile("st.relaxed.sys.s32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
template <class T>
FORGE_DEVICE T shuffle(T value, int source) {
  static_assert(sizeof(T) == 4, "shuffles move 4 bytes");
  return __builtin_bit_cast(T, __shfl_sync(0xffffffffu, __builtin_bit_cast(int, value), source));
}
template <int Mask, class T>
FORGE_DEVICE T shuffle_xor(T value) {
  static_assert(sizeof(T) == 4 && Mask > 0 && Mask < kWave, "shuffles move 4 bytes within the wave");
  return __builtin_bit_cast(T, __shfl_xor_sync(0xffffffffu, __builtin_bit_cast(int, value), Mask));
}
FORGE_DEVICE i32 dot4(u32 a, u32 b, i32 c) {
  i32 sum;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
FORGE_DEVICE u32 low_halves(u32 first, u32 second) {
  return __byte_perm(first, second, 0x5410u);
}
FORGE_DEVICE u32 high_halves(u32 first, u32 second) {
  return __byte_perm(first, second, 0x7632u);
}
/// Byte i of the result is table byte codes.byte[i], for codes below 16. __byte_perm takes its four selectors from
/// nibbles, so the codes are first moved together: bytes 0d 0c 0b 0a become the nibbles dcba.
FORGE_DEVICE u32 lookup4(u32 codes, const U32x4& table) {
  const u32 pairs = (codes | codes >> 4) & 0x00ff00ffu, four = pairs | pairs >> 8;
  const u32 low = __byte_perm(table.at[0], table.at[1], four & 0x7777u);
  const u32 high = __byte_perm(table.at[2], table.at[3], four & 0x7777u);
  return __byte_perm(low, high, 0x3210u | (four & 0x8888u) >> 1);
}
/// Byte I of a word as a float, plus kByteBias, in one instruction: byte b is placed into the mantissa of 2^15. The
/// bits 0x4700bb00 are the float 32768 + b, because a unit in mantissa bit 8 of that exponent is worth 1.
inline constexpr float kByteBias = 32768.0f;
template <int I>
FORGE_DEVICE float byte_number(u32 word) {
  return __builtin_bit_cast(float, __byte_perm(word, 0x47000000u, 0x7404u | I << 4));
}
template <int I>
FORGE_DEVICE u32 byte_halves(u32 word) {
  return __byte_perm(word, 0x64646464u, I == 0 ? 0x4140u : 0x4342u);
}
FORGE_DEVICE u32 add_halves(u32 a, u32 b) {
  u32 sums;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
  return sums;
}
FORGE_DEVICE u32 fma_halves(u32 a, u32 b, u32 c) {
  u32 sums;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(b), "r"(c));
  return sums;
}
/// Rounds two floats to bf16 and packs them, `low` in the low half; sm_80 and newer.
FORGE_DEVICE u32 bf16_pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
/// The same to f16.
FORGE_DEVICE u32 f16_pair(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
/// In one instruction; rounds to nearest.
FORGE_DEVICE u32 f16_pair_quickly(float low, float high) {
  return f16_pair(low, high);
}
/// The larger ones of two packed f16 that are not negative; sm_80 and newer.
FORGE_DEVICE u32 larger_halves(u32 a, u32 b) {
  u32 larger;
  asm("max.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}
FORGE_DEVICE float f32_of_f16(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
FORGE_DEVICE u16 f16_of_f32(float value) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#if FORGE_FP8 != FORGE_FP8_NONE
FORGE_DEVICE u32 fp8_pair(float low, float high) {
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
template <int I>
FORGE_DEVICE u32 fp8_halves(u32 word) {
  u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<u16>(I == 0 ? word : word >> 16)));
  return halves;
}
FORGE_DEVICE F32x4 fp8_numbers(u32 word) {
  const u32 low = fp8_halves<0>(word), high = fp8_halves<1>(word);
  return {{f32_of_f16(static_cast<u16>(low)), f32_of_f16(static_cast<u16>(low >> 16)),
           f32_of_f16(static_cast<u16>(high)), f32_of_f16(static_cast<u16>(high >> 16))}};
}
#endif
FORGE_DEVICE float exp2_of(float value) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
  return power;
}
FORGE_DEVICE float log2_of(float value) {
  float logarithm;
  asm("lg2.approx.f32 %0, %1;" : "=f"(logarithm) : "f"(value));
  return logarithm;
}
FORGE_DEVICE float sqrt_of(float value) {
  return __fsqrt_rn(value);
}
FORGE_DEVICE float inverse_sqrt_of(float value) {
  float inverse;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(inverse) : "f"(value));
  return inverse;
}
FORGE_DEVICE float quotient_of(float a, float b) {
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
}
FORGE_DEVICE float larger_of(float a, float b) {
  return fmaxf(a, b);
}
FORGE_DEVICE bool any_lane(bool condition) {
  return __any_sync(0xffffffffu, condition) != 0;
}
FORGE_DEVICE float fma_of(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
FORGE_DEVICE float round_of(float value) {
  float rounded;
  asm("cvt.rni.f32.f32 %0, %1;" : "=f"(rounded) : "f"(value));
  return rounded;
}
FORGE_DEVICE float abs_of(float value) {
  return __builtin_bit_cast(float, __builtin_bit_cast(u32, value) & 0x7fffffffu);
}
FORGE_DEVICE U32x4 load16(const void* from) {
  return *static_cast<const U32x4*>(from);
}
/// Volatile, or the compiler moves loads of weights behind the wait for the kernel before (see wait_for_producer).
FORGE_DEVICE U32x4 load16_once(const void* from) {
  U32x4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.at[0]), "=r"(value.at[1]), "=r"(value.at[2]), "=r"(value.at[3])
               : "l"(__cvta_generic_to_global(from)));
  return value;
}
FORGE_DEVICE U32x2 load8(const void* from) {
  return *static_cast<const U32x2*>(from);
}
FORGE_DEVICE u32 load4(const void* from) {
  return *static_cast<const u32*>(from);
}
template <class T>
FORGE_DEVICE T load(const T* from) {
  return *from;
}

// Programmatic dependent launch. A kernel calls release_consumers() as early as it can: the next kernel's blocks may
// then start on free SMs. wait_for_producer() blocks until the kernel before has ended and its writes are visible, so
// everything read before it must be older than that kernel (weights, the step's inputs). Without the launch attribute
// both do nothing.
FORGE_DEVICE void wait_for_producer() {
#if FORGE_OVERLAPS
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
FORGE_DEVICE void release_consumers() {
#if FORGE_OVERLAPS
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

FORGE_DEVICE void copy16_async(void* lds, const void* from, bool real = true) {
#if FORGE_COPIES
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(lds))),
               "l"(__cvta_generic_to_global(from)), "r"(real ? 16 : 0)
               : "memory");
#else
  *static_cast<U32x4*>(lds) = real ? load16(from) : U32x4{};
#endif
}
FORGE_DEVICE void wait_copies() {
#if FORGE_COPIES
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
FORGE_DEVICE void commit_copies() {
#if FORGE_COPIES
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int Groups>
FORGE_DEVICE void wait_copies_but() {
#if FORGE_COPIES
  asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
#endif
}

}  // namespace forge::gpu
