#pragma once
// The prelude for the host's compiler, used by tests only. Lanes are fibres of the executor in tests/gpu_host, which
// this header reaches through the table HostLanes (host_lanes.h). It is slow and strict: it reports reads of shared
// memory that was never written, races between barriers, out-of-range indices, and collectives that lanes reach at
// different source lines. Functions without a comment do what those of the same name in prelude_amd.h do.

#define FORGE_HOST_LANES
#define FORGE_SITE , ::forge::gpu::Site site = ::forge::gpu::Site::here()
#define FORGE_AT , site
#define FORGE_DEVICE inline
#define FORGE_UNROLL
#define FORGE_LOOP
#define FORGE_PART(number)
#define FORGE_KERNEL(name, grid_blocks, block_threads, Args)                                                           \
  static void name##_lane(const Args& args);                                                                           \
  extern "C" __attribute__((visibility("default"))) const ::forge::gpu::HostKernel name##_kernel;                      \
  const ::forge::gpu::HostKernel name##_kernel{[](const void* args) { name##_lane(*static_cast<const Args*>(args)); }, \
                                               sizeof(Args), grid_blocks, block_threads, FORGE_WAVE};                  \
  static void name##_lane([[maybe_unused]] const Args& args)
#define FORGE_KERNEL_BOUNDS(name, blocks, threads, min_blocks, Args) FORGE_KERNEL(name, blocks, threads, Args)
#define FORGE_LDS(Type, name) \
  Type& name = *static_cast<Type*>(::forge::gpu::host_lanes->lds(sizeof(Type), alignof(Type), false))
#define FORGE_LDS_LAUNCHED(Type, name) \
  Type& name = *static_cast<Type*>(::forge::gpu::host_lanes->lds(sizeof(Type), alignof(Type), true))

#include <vector>

#include "kernels/gpu/host_lanes.h"
#include "kernels/gpu/prelude/prelude_types.h"
#include "kernels/quant/fp8.h"

namespace forge::gpu {

inline HostLanes* host_lanes = nullptr;
/// The executor calls this after it has loaded the shared object.
extern "C" __attribute__((visibility("default"))) inline void forge_bind_lanes(HostLanes* lanes) {
  host_lanes = lanes;
}
/// Forces the compiler to emit forge_bind_lanes: an inline function that is never used is not emitted.
[[gnu::used]] inline void (*const kKeepBind)(HostLanes*) = forge_bind_lanes;

inline int thread_id() {
  return host_lanes->thread;
}
inline int block_id() {
  return host_lanes->block;
}
inline void keep_schedule() {}
inline int opaque(int value) {
  return value;
}
inline void barrier(Site site = Site::here()) {
  host_lanes->barrier(site);
}
inline void barrier_shared(Site site = Site::here()) {
  host_lanes->barrier(site);
}
inline void fence_device() {}
inline constexpr bool kFenceByAll = true;
inline u32 atomic_add(u32* at, u32 value) {
  const u32 old = *at;
  *at = old + value;
  return old;
}
inline void atomic_store(u32* at, u32 value) {
  *at = value;
}
inline float load_fresh(const float* from) {
  return *from;
}
inline F32x4 load_fresh4(const float* from) {
  return *reinterpret_cast<const F32x4*>(from);
}
inline void store_host(int* at, int value) {
  *at = value;
}

template <class T>
T shuffle(T value, int source, Site site = Site::here()) {
  static_assert(sizeof(T) == 4, "shuffles move 4 bytes");
  const auto all = static_cast<const T*>(host_lanes->meet(&value, sizeof value, site));
  if (source < 0 || source >= kWave) host_lanes->fail("a shuffle reads a lane outside the wave", site);
  return all[source];
}
template <int Mask, class T>
T shuffle_xor(T value, Site site = Site::here()) {
  static_assert(sizeof(T) == 4 && Mask > 0 && Mask < kWave, "shuffles move 4 bytes within the wave");
  return shuffle(value, host_lanes->thread % kWave ^ Mask, site);
}
template <int Half>
u32 from_half(u32 value, Site site = Site::here()) {
  return shuffle(value, Half * 16 + host_lanes->thread % 16, site);
}
/// combine_lanes in one collective instead of one per step. Combines the same pairs in the same order as the butterfly
/// of shuffle_xor<1>, <2>, <4>, ..., so the bits are the same.
template <int Lanes, class Combine, class T>
T butterfly(T value, Site site = Site::here()) {
  static_assert(sizeof(T) == 4, "shuffles move 4 bytes");
  const auto all = static_cast<const T*>(host_lanes->meet(&value, sizeof value, site));
  const int me = host_lanes->thread % kWave;
  T terms[Lanes];
  for (int i = 0; i < Lanes; ++i) terms[i] = all[me ^ i];
  for (int step = 1; step < Lanes; step *= 2)
    for (int i = 0; i < Lanes; i += 2 * step) terms[i] = Combine()(terms[i], terms[i + step]);
  return terms[0];
}
/// Unlike on a GPU, this is checked: a value that differs between lanes fails the test.
inline int uniform(int value, Site site = Site::here()) {
  const int first = *static_cast<const int*>(host_lanes->meet(&value, sizeof value, site));
  if (first != value) host_lanes->fail("uniform() of a value that differs between lanes", site);
  return first;
}

inline bool any_lane(bool condition, Site site = Site::here()) {
  const int own = condition ? 1 : 0;
  const auto all = static_cast<const int*>(host_lanes->meet(&own, sizeof own, site));
  bool any = false;
  for (int i = 0; i < kWave; ++i) any = any || all[i] != 0;
  return any;
}

inline i32 dot4(u32 a, u32 b, i32 c) {
  for (int i = 0; i < 4; ++i) c += static_cast<i8>(a >> 8 * i) * static_cast<i8>(b >> 8 * i);
  return c;
}
inline u32 permute(u32 first, u32 second, u32 selector) {
  u32 out = 0;
  for (int shift = 0; shift < 32; shift += 8) {
    const u32 from = selector >> shift & 255U;
    out |= ((from < 4 ? second : first) >> from % 4 * 8 & 255U) << shift;
  }
  return out;
}
inline float f32_of_f16(u16 bits) {
  return quant::f32_of_f16(bits);
}
inline u16 f16_of_f32(float value) {
  return quant::f16_of_f32(value);
}
inline u32 f16_pair(float low, float high) {
  return f16_of_f32(low) | static_cast<u32>(f16_of_f32(high)) << 16;
}
/// As an AMD GPU, rounds towards zero.
inline u32 f16_pair_quickly(float low, float high) {
  const auto half = [](float value) -> u32 {
    const u16 nearest = f16_of_f32(value);
    return __builtin_fabsf(f32_of_f16(nearest)) > __builtin_fabsf(value) ? nearest - 1u : nearest;
  };
  return half(low) | half(high) << 16;
}
#if FORGE_FP8 != FORGE_FP8_NONE
using Fp8 = quant::E4M3<FORGE_FP8 == FORGE_FP8_FNUZ>;
inline u32 fp8_pair(float low, float high) {
  return Fp8::of_f32(low) | static_cast<u32>(Fp8::of_f32(high)) << 8;
}
inline F32x4 fp8_numbers(u32 word) {
  const auto number = [&](int i) { return Fp8::to_f32(static_cast<u8>(word >> 8 * i)); };
  return {{number(0), number(1), number(2), number(3)}};
}
template <int I>
u32 fp8_halves(u32 word) {
  const F32x4 numbers = fp8_numbers(word);
  return f16_pair(numbers.at[2 * I], numbers.at[2 * I + 1]);
}
#endif
inline u32 larger_halves(u32 a, u32 b) {
  const u32 low = (a & 0xffff) > (b & 0xffff) ? a & 0xffff : b & 0xffff;
  return low | (a >> 16 > b >> 16 ? a & 0xffff0000 : b & 0xffff0000);
}
inline float sum_of_halves(u32 pair, float sum) {
  return sum + f32_of_f16(static_cast<u16>(pair)) + f32_of_f16(static_cast<u16>(pair >> 16));
}
/// Calls of(a, b, ...) for the low and the high f16 of each word, and packs the results.
template <class Of, class... Words>
u32 each_half(Of of, Words... words) {
  const auto half = [](u32 bits) { return f32_of_f16(static_cast<u16>(bits)); };
  return f16_of_f32(of(half(words)...)) | static_cast<u32>(f16_of_f32(of(half(words >> 16)...))) << 16;
}
inline u32 add_halves(u32 a, u32 b) {
  return each_half([](float x, float y) { return x + y; }, a, b);
}
inline u32 fma_halves(u32 a, u32 b, u32 c) {
  return each_half([](float x, float y, float z) { return __builtin_fmaf(x, y, z); }, a, b, c);
}
inline float exp2_of(float value) {
  return __builtin_exp2f(value);
}
inline float log2_of(float value) {
  return __builtin_log2f(value);
}
inline float sqrt_of(float value) {
  return __builtin_sqrtf(value);
}
inline float inverse_sqrt_of(float value) {
  return 1.0f / __builtin_sqrtf(value);
}
inline float quotient_of(float a, float b) {
  return a / b;
}
inline float larger_of(float a, float b) {
  return a > b ? a : b;
}
inline float fma_of(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline float round_of(float value) {
  return __builtin_rintf(value);
}
inline float abs_of(float value) {
  return __builtin_fabsf(value);
}

template <class T>
T load(const T* from, Site site = Site::here()) {
  if (reinterpret_cast<std::uintptr_t>(from) % alignof(T) != 0)
    host_lanes->fail("a load from an address that is not a multiple of its size", site);
  return *from;
}
inline U32x4 load16(const void* from, Site site = Site::here()) {
  return load(static_cast<const U32x4*>(from), site);
}
inline U32x2 load8(const void* from, Site site = Site::here()) {
  return load(static_cast<const U32x2*>(from), site);
}
inline u32 load4(const void* from, Site site = Site::here()) {
  return load(static_cast<const u32*>(from), site);
}
inline U32x4 load16_once(const void* from, Site site = Site::here()) {
  return load16(from, site);
}
inline void wait_for_producer() {}
inline void release_consumers() {}

/// A lane's copies that it has not waited for: what they will write, and how many groups have been committed since.
struct HostCopy {
  U32x4 value;
  void* to;
  int groups_since;
};
inline std::vector<HostCopy> host_copies[1024];

/// As late as the kernel allows: the copy is made when the lane waits for it. It may come as soon as it is issued.
inline void copy16_async(void* lds, const void* from, bool real = true, Site site = Site::here()) {
  host_lanes->lds_write(lds, 16, site);
  host_copies[host_lanes->thread].push_back({real ? load16(from, site) : U32x4{}, lds, 0});
}
inline void commit_copies() {
  for (auto& copy : host_copies[host_lanes->thread]) ++copy.groups_since;
}
/// A copy whose group is not committed has groups_since 0, one of the last group has 1.
template <int Groups>
void wait_copies_but(Site site = Site::here()) {
  std::erase_if(host_copies[host_lanes->thread], [&](const HostCopy& copy) {
    if (copy.groups_since <= Groups) return false;
    host_lanes->lds_write(copy.to, 16, site);
    *static_cast<U32x4*>(copy.to) = copy.value;
    return true;
  });
}
inline void wait_copies(Site site = Site::here()) {
  commit_copies();
  wait_copies_but<0>(site);
}

template <class T, int Count>
class Shared {
 public:
  T get(int index, Site site = Site::here()) const {
    check(index, site);
    host_lanes->lds_read(&data_[index], sizeof(T), site);
    return data_[index];
  }
  float scalar(int index, Site site = Site::here()) const {
    check(index / 4, site);
    const float* at = reinterpret_cast<const float*>(data_) + index;
    host_lanes->lds_read(at, sizeof(float), site);
    return *at;
  }
  U32x2 half_of(int index, int half, Site site = Site::here()) const {
    check(index, site);
    const U32x2* at = reinterpret_cast<const U32x2*>(&data_[index]) + half;
    host_lanes->lds_read(at, sizeof(U32x2), site);
    return *at;
  }
  void set(int index, T value, Site site = Site::here()) {
    check(index, site);
    host_lanes->lds_write(&data_[index], sizeof(T), site);
    data_[index] = value;
  }
  void add(int index, T value, Site site = Site::here()) {
    check(index, site);
    data_[index] += value;
  }
  void copy16(int index, const void* from, bool real, Site site = Site::here()) {
    static_assert(sizeof(T) == 16);
    check(index, site);
    copy16_async(&data_[index], from, real, site);
  }
  void set_half(int index, u16 value, Site site = Site::here()) { set_part(index, value, site); }
  void set_word(int index, u32 value, Site site = Site::here()) { set_part(index, value, site); }
  void set_scalar(int index, float value, Site site = Site::here()) { set_part(index, value, site); }

 private:
  template <class Part>
  void set_part(int index, Part value, Site site) {
    check(index / static_cast<int>(sizeof(T) / sizeof(Part)), site);
    Part* at = reinterpret_cast<Part*>(data_) + index;
    host_lanes->lds_write(at, sizeof value, site);
    *at = value;
  }
  static void check(int index, Site site) {
    if (index < 0 || index >= Count) host_lanes->fail("an index outside an array in shared memory", site);
  }
  T data_[Count];
};

}  // namespace forge::gpu
