#pragma once
// Kernels of the GPU self-test: loads, shared memory, barriers, atomics, fences between blocks, and launches that
// depend on each other. self_test_io.h has the layouts.

#include "kernels/gpu/prelude/prelude.h"
#include "kernels/gpu/self_test/self_test_io.h"

namespace forge::gpu {

/// Loads of all sizes, asynchronous copies, and exchanges through shared memory. Result layout: MemoryResult.
template <class C>
struct SelfTestMemory {
  static constexpr int kThreads = self_test::kMemoryThreads, kBlocks = self_test::kMemoryBlocks;
  using Args = SelfTestArgs;
  struct Lds {
    U32x4 copied[kThreads], grouped[kThreads];
    Shared<u32, kThreads> words;
    Shared<i32, self_test::kMemoryBins> bins;
    Shared<U32x4, kThreads / 8> halves;
    Shared<U32x4, kThreads / 4> quads;
    Shared<F32x4, kThreads / 4> floats;
  };

  FORGE_DEVICE static void put(const Args& args, int result, u32 value) {
    args.out[result * (kBlocks * kThreads) + block_id() * kThreads + thread_id()] = value;
  }
  FORGE_DEVICE static u32 folded(const U32x4& v) { return v.at[0] ^ v.at[1] << 1 ^ v.at[2] << 2 ^ v.at[3] << 3; }

  /// Word `index` of v, by comparisons, because registers cannot be indexed by a variable.
  FORGE_DEVICE static u32 word_of(const U32x4& v, int index) {
    const u32 low = index % 2 == 0 ? v.at[0] : v.at[1], high = index % 2 == 0 ? v.at[2] : v.at[3];
    return index < 2 ? low : high;
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    using namespace self_test;
    const int t = thread_id(), mirror = kThreads - 1 - t;
    const u32* in = args.in + (block_id() * kThreads + t) * 4;
    const u32 first = load(in);
    put(args, kLoad1, static_cast<u32>(load(reinterpret_cast<const u8*>(in) + t % 16)));
    put(args, kLoad2, static_cast<u32>(load(reinterpret_cast<const u16*>(in) + t % 8)));
    put(args, kLoad4, load4(in + t % 4));
    put(args, kLoadFloat, __builtin_bit_cast(u32, load(reinterpret_cast<const float*>(in) + t % 4)));
    const U32x2 pair = load8(in + t % 2 * 2);
    put(args, kLoad8, pair.at[0] + pair.at[1] * 3u);
    put(args, kLoad16, folded(load16(in)));
    put(args, kLoad16Once, folded(load16_once(in)));

    copy16_async(&lds.grouped[t], in, t % 4 != 0);
    commit_copies();
    copy16_async(&lds.copied[t], in);
    commit_copies();
    lds.words.set(t, first);
    if (t < kMemoryBins) lds.bins.set(t, 0);
    lds.halves.set_half(t, static_cast<u16>(first));
    lds.quads.set_word(t, first ^ 0x5a5a5a5au);
    if (t % 4 == 0) {
      const float value = static_cast<float>(first & 0xffffu);
      lds.floats.set(t / 4, F32x4{{value, value + 1.0f, value + 2.0f, value + 3.0f}});
    }
    wait_copies_but<1>();
    barrier();
    put(args, kCopyGroup, lds.grouped[mirror].at[1]);
    wait_copies();
    barrier();
    put(args, kCopyAsync, lds.copied[mirror].at[3]);
    put(args, kSharedMirror, lds.words.get(mirror));
    lds.bins.add(static_cast<int>(first % kMemoryBins), 1);
    put(args, kSharedHalf, word_of(lds.halves.get(mirror / 8), mirror / 2 % 4));
    put(args, kSharedWord, word_of(lds.quads.get(mirror / 4), mirror % 4));
    put(args, kSharedScalar, __builtin_bit_cast(u32, lds.floats.scalar(mirror)));
    barrier();
    put(args, kSharedAdd, static_cast<u32>(lds.bins.get(t % kMemoryBins)));
    FORGE_LOOP
    for (int round = 0; round < kMemoryRounds; ++round) {
      const u32 other = lds.words.get((t + 61) % kThreads);
      barrier();
      lds.words.set(t, mixed(other) + static_cast<u32>(round));
      barrier();
    }
    put(args, kSharedRounds, lds.words.get(t));
  }
};

/// Exchanges between blocks: partial sums that the last block to arrive adds up (last_arrival), tickets by atomic_add,
/// and stores to host memory.
template <class C>
struct SelfTestBlocks {
  static constexpr int kThreads = self_test::kBlockThreads, kBlocks = self_test::kBlocks;
  using Args = SelfTestArgs;
  struct Lds {
    Shared<u32, 1> flag;
  };

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    using namespace self_test;
    const int t = thread_id(), block = block_id(), launch = static_cast<int>(args.number);
    float* partials = reinterpret_cast<float*>(args.work + kPartials);
    // One block is much later than all others, so that a last_arrival that does not wait for it gives a wrong sum.
    u32 slow = static_cast<u32>(t);
    if (block == (launch * 7 + 3) % kBlocks) {
      FORGE_LOOP
      for (int i = 0; i < kLateSpin; ++i) slow = mixed(slow) ^ slow >> 7;
    }
    const u32 word = load(args.in + block * kThreads + t) ^ (slow == kNeverMixed ? 1u : 0u);
    // Integers, so that sums are exact. They differ between launches, so that a stale value of an earlier launch is
    // seen.
    partials[block * kThreads + t] = static_cast<float>(word % 1000u + static_cast<u32>(launch));
    if (launch == 0) {
      args.out[kTickets + static_cast<int>(atomic_add(args.work + kTicket, 1u))] = 1u;
      if (t == 0) {
        atomic_store(args.out + kStored + block, word ^ 0x12345678u);
        store_host(args.host + block, static_cast<int>(mixed(word)));
      }
    }
    if (!last_arrival(args.work + kArrivals, static_cast<u32>(kBlocks), lds.flag)) return;
    float sum = 0;
    for (int b = 0; b < kBlocks; ++b) sum += load_fresh(partials + b * kThreads + t);
    args.out[launch * kThreads + t] = __builtin_bit_cast(u32, sum);
  }
};

/// A chain of launches: each thread reads a word that another block of the launch before wrote.
template <class C>
struct SelfTestChain {
  static constexpr int kThreads = self_test::kChainThreads, kBlocks = self_test::kChainBlocks;
  using Args = SelfTestArgs;

  FORGE_DEVICE static void run(const Args& args) {
    using namespace self_test;
    release_consumers();
    const int index = block_id() * kThreads + thread_id(), launch = static_cast<int>(args.number);
    // A third of the blocks of each launch is slow, so that a launch that starts too early reads old words.
    u32 slow = static_cast<u32>(index);
    if (block_id() % 3 == launch % 3) {
      FORGE_LOOP
      for (int i = 0; i < kChainSpin; ++i) slow = mixed(slow) ^ slow >> 7;
    }
    wait_for_producer();
    const int from = (index * 5 + kThreads * 7) % kChainWords;
    const u32 before = load((launch == 0 ? args.in : args.out + (launch - 1) * kChainWords) + from);
    args.out[launch * kChainWords + index] = mixed(before) + (slow & 1u);
  }
};

}  // namespace forge::gpu
