#pragma once
// Sampling of the next token on the device, in one kernel. Blocks scan the parts of a row for its largest logit, and of
// rows with a mask make the logits of forbidden tokens -infinity, which is all that the draw needs to know. The last
// block of a row takes the largest one (temperature 0) or draws a token, and writes the inputs of the next step (ids,
// positions, KV lengths), so that the next step needs nothing from the host.
//
// The filters have the order and meaning of the host's sampler (runtime/sampler.h): top_k, then top_p over what is
// left, then min_p, then temperature. Candidates are in the order of ids and a draw takes one Philox number, so a seed
// gives the same tokens on host and device, except for rounding at the border of a filter.
//
// Without sorting: a filter's border (the k-th largest logit, or where the probability mass reaches top_p) is found by
// radix search over the bits of the logits, four bits per pass. All sums have a fixed order, so results are
// deterministic.

#include "kernels/gpu/float_order.h"
#include "kernels/gpu/prelude/prelude.h"
#include "kernels/gpu/step_io.h"

namespace forge::gpu {

inline constexpr float kLargestFloat = 3.402823466e38f;
inline constexpr float kMinusInfinity = __builtin_bit_cast(float, 0xff800000u);

struct BestLogit {
  float value;
  i32 index;
};
/// The larger logit, or of equal ones that with the lower index. A NaN in b never wins.
FORGE_DEVICE BestLogit better(const BestLogit& a, const BestLogit& b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}
template <int Mask>
FORGE_DEVICE BestLogit better_of_neighbour(const BestLogit& best) {
  return better(best, BestLogit{shuffle_xor<Mask>(best.value), shuffle_xor<Mask>(best.index)});
}
template <int Waves>
struct BestLds {
  Shared<float, Waves> values;
  Shared<i32, Waves> indices;
};
/// The best of all lanes of the block; all lanes get it. All lanes call this; it contains a barrier.
template <int Waves>
FORGE_DEVICE BestLogit best_of_block(BestLogit best, BestLds<Waves>& lds) {
  if constexpr (kWave == 64) best = better_of_neighbour<32>(best);
  best = better_of_neighbour<16>(best);
  best = better_of_neighbour<8>(best);
  best = better_of_neighbour<4>(best);
  best = better_of_neighbour<2>(best);
  best = better_of_neighbour<1>(best);
  if (lane_id() == 0) {
    lds.values.set(wave_id(), best.value);
    lds.indices.set(wave_id(), best.index);
  }
  barrier();
  best = {lds.values.get(0), lds.indices.get(0)};
  FORGE_UNROLL
  for (int w = 1; w < Waves; ++w) best = better(best, BestLogit{lds.values.get(w), lds.indices.get(w)});
  return best;
}

/// Random number `index` of a seed, uniform in [0, 1) with 53 bits: Philox4x32-10 (Salmon et al., SC 2011), a
/// counter-based generator without state. Host: runtime/sampler.h.
FORGE_DEVICE double philox_uniform(u32 seed_low, u32 seed_high, u32 index) {
  u32 counter[4] = {index, 0, 0, 0}, key[2] = {seed_low, seed_high};
  for (int round = 0; round < 10; ++round) {
    const u64 a = static_cast<u64>(0xD2511F53u) * counter[0], b = static_cast<u64>(0xCD9E8D57u) * counter[2];
    const u32 next[4] = {static_cast<u32>(b >> 32) ^ counter[1] ^ key[0], static_cast<u32>(b),
                         static_cast<u32>(a >> 32) ^ counter[3] ^ key[1], static_cast<u32>(a)};
    FORGE_UNROLL
    for (int i = 0; i < 4; ++i) counter[i] = next[i];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const u64 bits = (static_cast<u64>(counter[0]) << 32 | counter[1]) >> 11;
  return static_cast<double>(bits) * (1.0 / 9007199254740992.0);
}

/// Arguments of Sample. HasStates: those of a model with recurrent state.
template <bool HasStates>
struct SampleArgs {
  float* logits;          ///< [rows][kVocab]; those of forbidden tokens become -infinity
  float* values;          ///< [rows][kScanBlocks], scratch: the largest logit of each part
  float* indices;         ///< [rows][kScanBlocks], scratch: the bits of their ids
  const u32* masks;       ///< [rows][kMaskWords], of rows with SamplingRow::masked
  SamplingRow* sampling;  ///< [rows]; `draws` is advanced
  i32* ids;               ///< [rows], input of the next step: written
  i32* positions;         ///< [rows], advanced by one
  i32* kv_length;         ///< [rows], advanced by one
  i32* counts;            ///< kSampledCount is advanced by one
  u32* counters;          ///< [rows], and one of all rows, of last_arrival: zero before the first use and afterwards
  i32* sampled;           ///< [kSampledRing][rows], ring in pinned host memory
};
template <>
struct SampleArgs<true> : SampleArgs<false> {
  // [rows], inputs of the next step: it reads the slot that this one wrote, and writes the one that this one read.
  i32 *state_read, *state_write;
};
/// C::kStates, or false if C has no such member.
template <class C>
FORGE_DEVICE constexpr bool draws_states() {
  if constexpr (requires { C::kStates; })
    return C::kStates;
  else
    return false;
}

/// C has kVocab, kRows (most rows of a step), kScanBlocks (blocks of a row) and kWaves (of a block).
template <class C>
struct Sample {
  static constexpr int kThreads = C::kWaves * kWave, kBlocks = C::kRows * C::kScanBlocks;
  static constexpr int kMaskWords = ceil_div(C::kVocab, 32);
  static constexpr int kDigits = 16, kValuePasses = 8, kIdPasses = 5;  // four bits a pass: 32 of a value, 20 of an id
  static_assert(C::kVocab <= 1 << 20, "ids have 20 bits");
  static constexpr int kSegment = ceil_div(C::kVocab, C::kWaves* kWave) * kWave;  ///< ids of a wave in draw()
  static constexpr float kLog2E = 1.44269504088896f;

  struct Lds {
    BestLds<C::kWaves> best;
    Shared<float, C::kWaves * kDigits> bins;
    Shared<float, kDigits> totals;
    Shared<float, C::kWaves> segments;
    Shared<i32, 1> chosen;
    Shared<u32, 1> flag;
  };
  using Args = SampleArgs<draws_states<C>()>;
  /// The candidates that are left: logits with a key above `key`, and those with that key and an id of at most `id`.
  struct Cut {
    u32 key;
    i32 id;
  };

  /// The largest logit of a part of a row.
  FORGE_DEVICE static BestLogit scan(const Args& args, int row, int part, bool has_mask, Lds& lds) {
    float* logits = args.logits + static_cast<u64>(row) * C::kVocab;
    const u32* mask = args.masks + static_cast<u64>(row) * kMaskWords;
    BestLogit best{kMinusInfinity, C::kVocab};
    // Four loads are in flight per lane; past the end, the last logit is loaded again. NaN never wins.
    constexpr int kStride = C::kScanBlocks * kThreads, kAhead = 4;
    for (int i = part * kThreads + thread_id(); i < C::kVocab; i += kAhead * kStride) {
      BestLogit ahead[kAhead];
      FORGE_UNROLL
      for (int j = 0; j < kAhead; ++j) {
        const int at = i + j * kStride < C::kVocab ? i + j * kStride : C::kVocab - 1;
        ahead[j] = {load(logits + at), at};
      }
      if (has_mask) {
        FORGE_UNROLL
        for (int j = 0; j < kAhead; ++j) ahead[j].value = masked(logits, mask, ahead[j]);
      }
      FORGE_UNROLL
      for (int j = 0; j < kAhead; ++j) best = better(best, ahead[j]);
    }
    return best_of_block<C::kWaves>(best, lds.best);
  }
  /// The logit, or -infinity if the mask forbids the token; then the logit is that for the draw, too.
  FORGE_DEVICE static float masked(float* logits, const u32* mask, const BestLogit& logit) {
    if ((load(mask + logit.index / 32) >> logit.index % 32 & 1u) != 0) return logit.value;
    logits[logit.index] = kMinusInfinity;
    return kMinusInfinity;
  }

  /// Logit i, with +infinity replaced by the largest float and NaN by -infinity. Another block may have masked it.
  FORGE_DEVICE static float logit(const float* logits, int i) {
    const float value = load_fresh(logits + i);
    return value > -kLargestFloat ? min_of(value, kLargestFloat) : kMinusInfinity;  // NaN compares false
  }
  FORGE_DEVICE static bool keeps(const Cut& cut, u32 key, int id) {
    return key > cut.key || (key == cut.key && id <= cut.id);
  }

  /// Adds up each digit's mass over all lanes of the block, in a fixed order (lanes by butterfly, then waves), into
  /// lds.totals. Ends with a barrier.
  FORGE_DEVICE static void add_up(const float (&mass)[kDigits], Lds& lds) {
    FORGE_UNROLL
    for (int d = 0; d < kDigits; ++d) {
      const float sum = sum_lanes<kWave>(mass[d]);
      if (lane_id() == 0) lds.bins.set(wave_id() * kDigits + d, sum);
    }
    barrier();
    if (thread_id() < kDigits) {
      float total = 0;
      for (int w = 0; w < C::kWaves; ++w) total += lds.bins.get(w * kDigits + thread_id());
      lds.totals.set(thread_id(), total);
    }
    barrier();
  }

  /// Narrows `cut` to the fewest candidates, in order of falling logit (lower ids first among equals), whose mass
  /// reaches `target`. A candidate's mass is 1 (top_k), or exp(logit - top) if Exponential (top_p).
  ///
  /// Radix search for the last candidate that is needed. 8 passes find the four-bit digits of its key from the top: a
  /// pass adds up, for each of the 16 values of the next digit, the mass of the candidates whose higher digits equal
  /// `prefix`; then it goes down from digit 15 until `base` (the mass of all larger keys) plus the digit's mass reaches
  /// the target. If not all candidates with the resulting key are needed, 5 more passes find the id by the same method,
  /// over 0xfffff - id, which is larger for lower ids.
  template <bool Exponential>
  FORGE_DEVICE static Cut cut_at(const float* logits, const Cut& cut, float top, float target, Lds& lds) {
    u32 prefix = 0, id_prefix = 0;
    float base = 0;
    for (int pass = 0; pass < kValuePasses + kIdPasses; ++pass) {
      const bool by_id = pass >= kValuePasses;
      const int shift = 4 * (by_id ? kValuePasses + kIdPasses - 1 - pass : kValuePasses - 1 - pass);
      float mass[kDigits] = {};
      for (int i = thread_id(); i < C::kVocab; i += kThreads) {
        const float value = logit(logits, i);
        const u32 key = rising_bits(value), id_key = 0xfffffu - static_cast<u32>(i);
        if (!keeps(cut, key, i)) continue;
        if (by_id ? key != prefix || id_key >> shift >> 4 != id_prefix : pass > 0 && key >> shift >> 4 != prefix)
          continue;
        const u32 digit = (by_id ? id_key : key) >> shift & 15u;
        const float weight = Exponential ? exp2_of((value - top) * kLog2E) : 1.0f;
        FORGE_UNROLL
        for (int d = 0; d < kDigits; ++d) mass[d] += digit == static_cast<u32>(d) ? weight : 0.0f;
      }
      add_up(mass, lds);
      int digit = kDigits - 1;
      for (; digit > 0 && base + lds.totals.get(digit) < target; --digit) base += lds.totals.get(digit);
      if (by_id)
        id_prefix = id_prefix << 4 | static_cast<u32>(digit);
      else
        prefix = prefix << 4 | static_cast<u32>(digit);
      if (pass != kValuePasses - 1) continue;
      const u32 bits = prefix ^ (prefix >> 31 != 0 ? 0x80000000u : 0xffffffffu);
      const float weight = Exponential ? exp2_of((__builtin_bit_cast(float, bits) - top) * kLog2E) : 1.0f;
      // If the target is not reached without the last of the equal logits, all of them are kept.
      if (!(base + lds.totals.get(digit) - weight >= target)) return {prefix, C::kVocab};
    }
    return {prefix, static_cast<i32>(0xfffffu - id_prefix)};
  }

  /// Unnormalised probability of token i, exp((logit - top) * inverse); 0 if the cut removes it. inverse: 1 /
  /// temperature.
  FORGE_DEVICE static float weight_at(const float* logits, const Cut& cut, float top, float inverse, int i) {
    if (i >= C::kVocab) return 0.0f;
    const float value = logit(logits, i);
    return keeps(cut, rising_bits(value), i) ? exp2_of((value - top) * kLog2E * inverse) : 0.0f;
  }

  /// Draws a token from the candidates: the first, in order of ids, where the running sum of weights exceeds random *
  /// total. Each wave adds up a segment of kSegment ids; all lanes find the segment in which the goal lies; the wave
  /// that has it goes through it, kWave ids at a time, and then lane by lane. `best` is the answer if rounding leaves
  /// none.
  FORGE_DEVICE static i32 draw(const float* logits, const Cut& cut, const BestLogit& best, float temperature,
                               double random, Lds& lds) {
    const float inverse = 1.0f / temperature;
    const int begin = wave_id() * kSegment;
    float sum = 0;
    for (int i = begin + lane_id(); i < begin + kSegment; i += kWave)
      sum += weight_at(logits, cut, best.value, inverse, i);
    sum = sum_lanes<kWave>(sum);
    if (lane_id() == 0) lds.segments.set(wave_id(), sum);
    if (thread_id() == 0) lds.chosen.set(0, best.index);
    barrier();
    double total = 0;
    for (int w = 0; w < C::kWaves; ++w) total += static_cast<double>(lds.segments.get(w));
    double goal = random * total;
    int wave = 0;
    for (; wave + 1 < C::kWaves && goal >= static_cast<double>(lds.segments.get(wave)); ++wave)
      goal -= static_cast<double>(lds.segments.get(wave));
    if (wave == wave_id()) {
      for (int i0 = begin; i0 < begin + kSegment; i0 += kWave) {
        const float weight = weight_at(logits, cut, best.value, inverse, i0 + lane_id());
        const double row = static_cast<double>(sum_lanes<kWave>(weight));
        const bool is_here = goal < row || i0 + kWave >= begin + kSegment;
        if (uniform(is_here)) {
          double reached = 0;
          i32 chosen = -1;
          for (int l = 0; l < kWave; ++l) {  // all lanes compute the same, so the shuffle is not divergent
            const float other = shuffle(weight, l);
            if (other <= 0.0f || (chosen >= 0 && reached > goal)) continue;
            chosen = i0 + l;
            reached += static_cast<double>(other);
          }
          if (lane_id() == 0 && chosen >= 0) lds.chosen.set(0, chosen);
          break;
        }
        goal -= row;
      }
    }
    barrier();
    return lds.chosen.get(0);
  }

  /// The token of a row, or kNoFiniteLogits if all of its logits are NaN or -infinity. All lanes of the block call
  /// this.
  FORGE_DEVICE static i32 choose(const Args& args, int row, float temperature, Lds& lds) {
    BestLogit best{kMinusInfinity, C::kVocab};
    for (int i = thread_id(); i < C::kScanBlocks; i += kThreads)
      best = better(best, BestLogit{load_fresh(args.values + row * C::kScanBlocks + i),
                                    __builtin_bit_cast(i32, load_fresh(args.indices + row * C::kScanBlocks + i))});
    best = best_of_block<C::kWaves>(best, lds.best);
    if (best.index >= C::kVocab || best.value == kMinusInfinity) return kNoFiniteLogits;
    best.value = min_of(best.value, kLargestFloat);
    if (!(temperature > 0)) return best.index;
    const SamplingRow* sampling = args.sampling + row;

    const float* logits = args.logits + static_cast<u64>(row) * C::kVocab;
    Cut cut{rising_bits(-kLargestFloat), C::kVocab};
    const int top_k = load(&sampling->top_k);
    const float top_p = load(&sampling->top_p), min_p = load(&sampling->min_p);
    if (top_k > 0 && top_k < C::kVocab) cut = cut_at<false>(logits, cut, best.value, static_cast<float>(top_k), lds);
    if (top_p < 1) {
      float mass[kDigits] = {};
      for (int i = thread_id(); i < C::kVocab; i += kThreads) mass[0] += weight_at(logits, cut, best.value, 1.0f, i);
      add_up(mass, lds);
      const float total = lds.totals.get(0);
      cut = cut_at<true>(logits, cut, best.value, max_of(top_p * total, 1e-30f), lds);
    }
    if (min_p > 0) {
      const u32 floor = rising_bits(best.value + log2_of(min_p) * (1.0f / kLog2E));
      if (floor > cut.key) cut = {floor, C::kVocab};
    }
    return draw(logits, cut, best, temperature,
                philox_uniform(load(&sampling->seed_low), load(&sampling->seed_high), load(&sampling->draws)), lds);
  }

  FORGE_DEVICE static void run(const Args& args, Lds& lds) {
    const int row = block_id() / C::kScanBlocks, part = block_id() % C::kScanBlocks;
    release_consumers();
    // The step's inputs were written by the previous step, so they are read before the wait.
    const int rows = uniform(load(args.counts + kRowCount));
    if (row >= rows) return;
    const int sampled = load(args.counts + kSampledCount), position = load(args.positions + row),
              length = load(args.kv_length + row);
    const float temperature = load(&args.sampling[row].temperature);
    const bool has_mask = uniform(load(&args.sampling[row].masked) != 0);
    wait_for_producer();
    const auto best = scan(args, row, part, has_mask, lds);
    if (thread_id() == 0) {
      args.values[row * C::kScanBlocks + part] = best.value;
      args.indices[row * C::kScanBlocks + part] = __builtin_bit_cast(float, best.index);
    }
    if (!last_arrival(args.counters + row, C::kScanBlocks, lds.flag)) return;
    const i32 token = choose(args, row, temperature, lds);
    if (thread_id() == 0) {
      store_host(args.sampled + sampled % kSampledRing * C::kRows + row, token);
      args.ids[row] = token < 0 ? 0 : token;
      args.positions[row] = position + 1;
      args.kv_length[row] = length + 1;
      if constexpr (draws_states<C>()) {
        const i32 read = load(args.state_read + row);
        args.state_read[row] = load(args.state_write + row);
        args.state_write[row] = read;
      }
      if (temperature > 0) args.sampling[row].draws = load(&args.sampling[row].draws) + 1;
    }
    // Every row's last block has read kSampledCount by then, so only the last of them may advance it.
    bool last = true;
    if constexpr (C::kRows > 1) last = last_arrival(args.counters + C::kRows, static_cast<u32>(rows), lds.flag);
    if (last && thread_id() == 0) args.counts[kSampledCount] = sampled + 1;
  }
};

}  // namespace forge::gpu
