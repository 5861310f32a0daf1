// Kernels with exactly one mistake each, and correct kernels beside them. The executor must report the former and
// accept the latter.

#include "kernels/gpu/prelude/prelude.h"
#include "tests/gpu_host/cases/case_args.h"

using namespace forge::gpu;

namespace {
struct Lds {
  Shared<int, 64> values;
  Shared<u32, 1> flag;
};
struct Small {
  Shared<int, 1> value;
};
struct Large {
  Shared<int, 20000> values;
};
struct alignas(128) Aligned {
  Shared<int, 64> values;
};
struct Bytes {
  Shared<u8, 64> values;
};
}  // namespace

FORGE_KERNEL(wave_sums, 1, 128, IntArgs) {
  args.out[thread_id()] = sum_lanes<kWave>(args.in[thread_id()]);
}
// sum_lanes and max_lanes must equal, bit for bit, the shuffle sequence that they abbreviate.
FORGE_KERNEL(butterflies, 1, 128, IntArgs) {
  const float x = 1.0f / static_cast<float>(args.in[thread_id()]);
  float sum = x, most = x;
  bool equal = sum_lanes<1>(x) == x;
  const auto step = [&]<int Mask>() {
    sum += shuffle_xor<Mask>(sum);
    most = max_of(most, shuffle_xor<Mask>(most));
    equal = equal && sum == sum_lanes<2 * Mask>(x) && most == max_lanes<2 * Mask>(x);
  };
  step.operator()<1>();
  step.operator()<2>();
  step.operator()<4>();
  step.operator()<8>();
  step.operator()<16>();
  if constexpr (kWave == 64) step.operator()<kWave / 2>();
  args.out[thread_id()] = equal;
}
FORGE_KERNEL(rotated, 1, 64, IntArgs) {
  args.out[thread_id()] = shuffle(args.in[thread_id()], (lane_id() + 1) % kWave);
}
FORGE_KERNEL(reversed_in_lds, 1, 64, IntArgs) {
  FORGE_LDS(Lds, lds);
  lds.values.set(thread_id(), args.in[thread_id()]);
  barrier();
  args.out[thread_id()] = lds.values.get(63 - thread_id());
}
FORGE_KERNEL(last_sums, 3, 64, IntArgs) {
  FORGE_LDS(Lds, lds);
  args.out[1 + block_id() * 64 + thread_id()] = args.in[block_id() * 64 + thread_id()];
  if (!last_arrival(reinterpret_cast<u32*>(args.counter), 3, lds.flag)) return;
  int sum = 0;
  for (int i = 0; i < 3; ++i) sum += args.out[1 + i * 64 + thread_id()];
  sum = sum_lanes<32>(sum);
  if (thread_id() == 0) args.out[0] = sum;
}
// Adjacent bytes of one word, written by different lanes, do not race; all blocks reuse the same shared memory.
FORGE_KERNEL(bytes_in_lds, 3, 64, IntArgs) {
  FORGE_LDS(Bytes, lds);
  lds.values.set(thread_id(), static_cast<u8>(args.in[thread_id()]));
  barrier();
  args.out[block_id() * 64 + thread_id()] = lds.values.get(thread_id() ^ 1);
  barrier();
  lds.values.set(thread_id() ^ 1, 0);
  args.out[block_id() * 64 + thread_id()] += lds.values.get(thread_id() ^ 1);
}
FORGE_KERNEL(loads, 1, 64, IntArgs) {
  const char* in = reinterpret_cast<const char*>(args.in);
  const int i = thread_id();
  u32 sum = load16(in + 16 * (i % 16)).at[3] + load16_once(in).at[1];
  sum += load8(in + 8 * i).at[1] + load4(in + 4 * i) + static_cast<u32>(load(reinterpret_cast<const u64*>(in)) >> 32);
  if (i == 7) store_host(args.counter, 11);
  wait_for_producer();
  release_consumers();
  args.out[i] = static_cast<int>(sum);
}
FORGE_KERNEL_BOUNDS(functions, 1, 64, 2, IntArgs) {
  const float x = static_cast<float>(args.in[thread_id()]);
  const float sum = log2_of(exp2_of(x / 8)) + sqrt_of(x * x) + round_of(x + 0.25f) + abs_of(-x) + fma_of(x, 2, 1);
  args.out[thread_id()] = static_cast<int>(round_of(8 * sum)) + f16_of_f32(x) % 2;
}
FORGE_KERNEL(any_blocks, 0, 64, IntArgs) {
  args.out[block_id()] = block_id();
}
FORGE_KERNEL(turns, 2, 128, IntArgs) {
  args.out[args.counter[0]++] = block_id() * 128 + thread_id();
}
FORGE_KERNEL(part_wave, 1, 48, IntArgs) {
  args.out[thread_id()] = 0;
}
FORGE_KERNEL(dots, 1, 64, IntArgs) {
  args.out[thread_id()] = dot4(static_cast<u32>(args.in[thread_id()]), 0x80ff7f01u, -3);
}

FORGE_KERNEL(barrier_missed, 1, 64, IntArgs) {
  if (thread_id() != 5) barrier();
  args.out[thread_id()] = 0;
}
FORGE_KERNEL(barriers_differ, 1, 64, IntArgs) {
  if (thread_id() < 32)
    barrier();
  else
    barrier();
  args.out[thread_id()] = 0;
}
// All lanes of a wave agree, but the waves of the block do not.
FORGE_KERNEL(barrier_missed_by_wave, 1, 128, IntArgs) {
  if (thread_id() >= 64) barrier();
  args.out[thread_id()] = 0;
}
FORGE_KERNEL(barriers_differ_by_wave, 1, 128, IntArgs) {
  if (thread_id() < 64)
    barrier();
  else
    barrier();
  args.out[thread_id()] = 0;
}
FORGE_KERNEL(shuffle_missed, 1, 64, IntArgs) {
  if (lane_id() % 2 == 0) args.out[thread_id()] = shuffle_xor<1>(args.in[thread_id()]);
}
FORGE_KERNEL(sums_differ, 1, 64, IntArgs) {
  if (lane_id() % 2 == 0)
    args.out[thread_id()] = sum_lanes<kWave>(args.in[thread_id()]);
  else
    args.out[thread_id()] = sum_lanes<kWave>(args.in[thread_id()]);
}
FORGE_KERNEL(shuffle_outside, 1, 64, IntArgs) {
  args.out[thread_id()] = shuffle(1, kWave);
}
FORGE_KERNEL(lds_unwritten, 1, 64, IntArgs) {
  FORGE_LDS(Lds, lds);
  if (thread_id() < 63) lds.values.set(thread_id(), 1);
  barrier();
  args.out[thread_id()] = lds.values.get(thread_id());
}
FORGE_KERNEL(lds_no_barrier, 1, 64, IntArgs) {
  FORGE_LDS(Lds, lds);
  lds.values.set(thread_id(), 1);
  args.out[thread_id()] = lds.values.get(thread_id() ^ 1);
}
FORGE_KERNEL(lds_overwritten, 1, 64, IntArgs) {
  FORGE_LDS(Lds, lds);
  lds.values.set(thread_id(), 1);
  barrier();
  args.out[thread_id()] = lds.values.get(thread_id() ^ 1);
  lds.values.set(thread_id(), 2);
}
FORGE_KERNEL(lds_two_writers, 1, 64, IntArgs) {
  FORGE_LDS(Lds, lds);
  lds.values.set(thread_id() / 2, 1);
  args.out[thread_id()] = 0;
}
FORGE_KERNEL(lds_outside, 1, 64, IntArgs) {
  FORGE_LDS(Lds, lds);
  lds.values.set(thread_id() + 1, 1);
  args.out[thread_id()] = 0;
}
FORGE_KERNEL(lds_elsewhere, 1, 64, IntArgs) {
  FORGE_LDS(Lds, lds);
  lds.values.set(thread_id(), 1);
  copy16_async(args.out, args.in);
}
FORGE_KERNEL(lds_twice, 1, 64, IntArgs) {
  FORGE_LDS(Lds, lds);
  FORGE_LDS(Small, small);
  lds.values.set(thread_id(), 1);
  args.out[thread_id()] = small.value.get(0);
}
FORGE_KERNEL(lds_too_large, 1, 64, IntArgs) {
  FORGE_LDS(Large, lds);
  lds.values.set(thread_id(), args.in[0]);
}
FORGE_KERNEL(lds_too_aligned, 1, 64, IntArgs) {
  FORGE_LDS(Aligned, lds);
  lds.values.set(thread_id(), args.in[0]);
}
FORGE_KERNEL(brings_too_much, 1, 64, IntArgs) {
  const char parcel[300] = {};
  host_lanes->meet(parcel, sizeof parcel, Site::here());
  args.out[thread_id()] = 0;
}
FORGE_KERNEL(not_uniform, 1, 64, IntArgs) {
  args.out[thread_id()] = uniform(thread_id());
}
FORGE_KERNEL(misaligned, 1, 64, IntArgs) {
  args.out[thread_id()] = static_cast<int>(load16(args.in + 1).at[0]);
}
FORGE_KERNEL(misaligned8, 1, 64, IntArgs) {
  args.out[thread_id()] = static_cast<int>(load8(args.in + 1).at[0]);
}
FORGE_KERNEL(misaligned4, 1, 64, IntArgs) {
  args.out[thread_id()] = static_cast<int>(load4(reinterpret_cast<const char*>(args.in) + 2));
}
FORGE_KERNEL(guard_written, 1, 64, IntArgs) {
  args.out[thread_id() + 1] = 0;
}
FORGE_KERNEL(order_matters, 1, 64, IntArgs) {
  args.out[0] = thread_id();
}
