#pragma once
// The router of a mixture of experts: chooses the experts of each token from the router's logits. A slot is a token and
// one of its experts; the experts' products are computed by matmul_rows.h (a tile per slot) or matmul_tiles.h, and
// summed by SummedSlots (rows.h).

#include "kernels/gpu/tile.h"

namespace forge::gpu {

/// Top-k routing, one block of kWaves per token: a kernel's own, or the last block of a matmul. gate = softmax over all
/// experts or sigmoid of the logits (arXiv 1701.06538); rank = gate + bias, where the bias (kBiased) only influences
/// the choice (arXiv 2408.15664). The kUsed experts with the highest ranks are chosen, best first; the lower number
/// wins ties and NaN ranks come last. The share of a chosen expert is its gate times kScale, divided by the sum of the
/// chosen gates if kOverChosen, and times the expert's factor if kFactors. Group-limited routing (kGroups > 1): experts
/// are in groups of equal size, and only the kGroupsUsed groups with the largest sum of their kGroupTop best ranks take
/// part. With kPerAdjugate = n > 1 a chosen expert e stands for expert e / n, with that one's gate. C has kExperts,
/// kUsed, kGroups, kGroupsUsed, kGroupTop, kPerAdjugate, kRowFloats (row stride of the logits), kTokensTotal, kCount,
/// kSigmoid, kBiased, kFactors, kOverChosen and kScale. kFresh: other blocks of the running kernel have written the
/// logits (matmul_norm.h).
template <class C, bool kFresh = false, int kWaves = C::kWaves>
struct Route {
  static constexpr int kThreads = kWaves * kWave, kBlocks = C::kTokensTotal;
  static constexpr int kOwn = ceil_div(C::kExperts, kWave);  ///< experts of a lane: lane, lane + kWave, ...
  static constexpr int kMembers = C::kExperts / C::kGroups;  ///< experts of a group
  /// Threads that share an expert while they count better ones, and how many others each of them looks at.
  static constexpr int kPartsMost = 8;
  static constexpr int kParts = kThreads < 2 * C::kExperts            ? 1
                                : kThreads / C::kExperts < kPartsMost ? kThreads / C::kExperts
                                                                      : kPartsMost;
  static constexpr int kOthers = ceil_div(C::kExperts, kParts);
  static constexpr float kWorst = __builtin_bit_cast(float, 0xff800000u);  // -infinity
  static constexpr float kSumLeast = 0x1p-14f;  ///< lower bound of the divisor, in case all chosen gates are 0
  static_assert(C::kUsed <= kWave && C::kUsed <= C::kExperts,
                "each chosen expert needs a lane: kUsed is at most kWave and kExperts");
  static_assert(C::kGroups <= kWave && C::kExperts % C::kGroups == 0,
                "each group needs a lane, and groups have equal sizes");
  struct Lds {
    Shared<float, C::kExperts> ranks, gates;
    Shared<float, C::kGroups> worth;
    Shared<i32, kParts * C::kExperts> better;
    Shared<i32, C::kUsed> chosen;  ///< best first
  };
  struct Args {
    const float* logits;   ///< [kTokensTotal][kRowFloats]
    const float* bias;     ///< [kExperts]; read only if kBiased
    const float* factors;  ///< [kExperts]; read only if kFactors
    const i32* counts;
    i32* experts;   ///< [kTokensTotal][kUsed]
    float* shares;  ///< [kTokensTotal][kUsed]
  };

  FORGE_DEVICE static float logit(const float* at) { return kFresh ? load_fresh(at) : load(at); }

  /// Computes the gates of the lane's experts.
  FORGE_DEVICE static void gates(const float* logits, float (&gate)[kOwn]) {
    constexpr float kLog2E = 1.44269504088896f;
    float top = kWorst;
    FORGE_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const int expert = i * kWave + lane_id();
      gate[i] = expert < C::kExperts ? logit(logits + expert) : kWorst;
      top = max_of(top, gate[i]);
    }
    if constexpr (C::kSigmoid) {
      FORGE_UNROLL
      for (int i = 0; i < kOwn; ++i) gate[i] = 1.0f / (1.0f + exp2_of(-kLog2E * gate[i]));
    } else {
      top = max_lanes<kWave>(top);
      float total = 0;
      FORGE_UNROLL
      for (int i = 0; i < kOwn; ++i) {
        gate[i] = exp2_of(kLog2E * (gate[i] - top));
        if (i * kWave + lane_id() < C::kExperts) total += gate[i];
      }
      total = sum_lanes<kWave>(total);
      FORGE_UNROLL
      for (int i = 0; i < kOwn; ++i) gate[i] /= total;
    }
  }

  /// Group-limited routing: sets the ranks of experts outside the best groups to kWorst. Thread g computes the worth of
  /// group g, the sum of its kGroupTop best ranks, by keeping them sorted while it goes through the members.
  FORGE_DEVICE static void keep_best_groups(Lds& lds) {
    if (thread_id() < C::kGroups) {
      float best[C::kGroupTop], worth = 0;  // descending
      FORGE_UNROLL
      for (int n = 0; n < C::kGroupTop; ++n) best[n] = kWorst;
      for (int m = 0; m < kMembers; ++m) {
        float value = lds.ranks.get(thread_id() * kMembers + m);
        FORGE_UNROLL
        for (int n = 0; n < C::kGroupTop; ++n) {
          const float larger = max_of(best[n], value);
          value = min_of(best[n], value);
          best[n] = larger;
        }
      }
      FORGE_UNROLL
      for (int n = 0; n < C::kGroupTop; ++n) worth += best[n];
      lds.worth.set(thread_id(), worth);
    }
    barrier();
    FORGE_LOOP
    for (int expert = thread_id(); expert < C::kExperts; expert += kThreads) {
      const int own = expert / kMembers;
      const float mine = lds.worth.get(own);
      int better = 0;
      for (int g = 0; g < C::kGroups; ++g) {
        const float other = lds.worth.get(g);
        better += other > mine || (other == mine && g < own) ? 1 : 0;
      }
      if (better >= C::kGroupsUsed) lds.ranks.set(expert, kWorst);
    }
    barrier();
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int t = block_id();
    release_consumers();
    wait_for_producer();
    if (C::kTokensTotal > 1 && idle_tile(args.counts, C::kCount, t)) return;
    route(args, t, lds);
  }
  /// The gates and ranks of all experts, in shared memory. One wave.
  FORGE_DEVICE static void store_ranks(const Args& args, int t, Lds& lds) {
    float gate[kOwn];
    const float* logits = args.logits + static_cast<u64>(t) * C::kRowFloats;
    gates(logits, gate);
    // Large logits have the same sigmoid in f32, so where nothing is added to gates the logits themselves are ranked.
    constexpr bool kRanksLogits = C::kSigmoid && !C::kBiased && C::kGroups == 1;
    FORGE_UNROLL
    for (int i = 0; i < kOwn; ++i) {
      const int expert = i * kWave + lane_id();
      if (expert >= C::kExperts) continue;
      float rank = kRanksLogits ? logit(logits + expert) : gate[i];
      if (C::kBiased) rank += load(args.bias + expert);
      lds.ranks.set(expert, rank == rank ? rank : kWorst);
      lds.gates.set(expert, gate[i]);
    }
  }
  /// Routes token t. All threads of the block. An expert's place is the number of those that are better, which takes
  /// two barriers, where a search for the best one after the other takes three reductions over the wave for each.
  FORGE_DEVICE static void route(const Args& args, int t, Lds& lds) {
    if (wave_id() == 0) store_ranks(args, t, lds);
    barrier();
    if constexpr (C::kGroups > 1) keep_best_groups(lds);
    FORGE_LOOP
    for (int at = thread_id(); at < kParts * C::kExperts; at += kThreads) {
      const int expert = at % C::kExperts, begin = at / C::kExperts * kOthers;
      const int end = begin + kOthers < C::kExperts ? begin + kOthers : C::kExperts;
      const float mine = lds.ranks.get(expert);
      int better = 0;
      for (int other = begin; other < end; ++other) {
        const float rank = lds.ranks.get(other);
        better += rank > mine || (rank == mine && other < expert) ? 1 : 0;
      }
      lds.better.set(at, better);
    }
    barrier();
    FORGE_LOOP
    for (int expert = thread_id(); expert < C::kExperts; expert += kThreads) {
      int place = 0;
      FORGE_UNROLL
      for (int part = 0; part < kParts; ++part) place += lds.better.get(part * C::kExperts + expert);
      if (place < C::kUsed) lds.chosen.set(place, expert);
    }
    barrier();
    if (thread_id() >= C::kUsed) return;
    const auto expert_at = [&](int place) { return lds.chosen.get(place) / C::kPerAdjugate; };
    float sum = 0;
    FORGE_UNROLL
    for (int u = 0; u < C::kUsed; ++u) sum += lds.gates.get(expert_at(u));
    const float factor = C::kOverChosen ? C::kScale / max_of(sum, kSumLeast) : C::kScale;
    const int chosen = expert_at(thread_id());
    float share = lds.gates.get(chosen);
    if constexpr (C::kFactors) share *= load(args.factors + chosen);
    args.experts[static_cast<u64>(t) * C::kUsed + thread_id()] = chosen;
    args.shares[static_cast<u64>(t) * C::kUsed + thread_id()] = share * factor;
  }
};

}  // namespace forge::gpu
