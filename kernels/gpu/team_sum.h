#pragma once
// A reduction that transposes: lanes with parts of many sums end with a whole sum each.

#include "kernels/gpu/prelude/prelude.h"

namespace forge::gpu {

/// Each lane of a team of `Lanes` neighbours passes its part of Count sums and gets the sum over the team of one of
/// them: with s = Lanes / Count, lanes i * s .. (i + 1) * s - 1 of the team get the i-th. In each step a lane keeps
/// half of its sums and sends the other half to its partner, so that the number of shuffles halves:
///
///   4 sums, 4 lanes   lane 0            lane 1            lane 2            lane 3
///   start             p0 p1 p2 p3       p0 p1 p2 p3       p0 p1 p2 p3       p0 p1 p2 p3
///   after xor 2       p0 p1             p0 p1             p2 p3             p2 p3
///   after xor 1       p0                p1                p2                p3
template <int Lanes, int Count, int Size>
FORGE_DEVICE float sum_parts(float (&parts)[Size]) {
  static_assert(Count <= Size && Count <= Lanes, "a lane gets one sum");
  if constexpr (Lanes == 1) {
    return parts[0];
  } else if constexpr (Count == 1) {
    parts[0] += shuffle_xor<Lanes / 2>(parts[0]);
    return sum_parts<Lanes / 2, 1>(parts);
  } else {
    const bool upper = (lane_id() & (Lanes / 2)) != 0;
    FORGE_UNROLL
    for (int i = 0; i < Count / 2; ++i) {
      const float first = parts[i], second = parts[i + Count / 2];
      parts[i] = (upper ? second : first) + shuffle_xor<Lanes / 2>(upper ? first : second);
    }
    return sum_parts<Lanes / 2, Count / 2>(parts);
  }
}

/// Sum of `value` over the teams of Lanes lanes of the wave, for each lane of a team; every team gets it.
template <int Lanes>
FORGE_DEVICE float sum_teams(float value) {
  if constexpr (Lanes < kWave)
    return sum_teams<2 * Lanes>(value + shuffle_xor<Lanes>(value));
  else
    return value;
}
/// Their maximum; no value is NaN.
template <int Lanes>
FORGE_DEVICE float max_teams(float value) {
  if constexpr (Lanes < kWave)
    return max_teams<2 * Lanes>(larger_of(value, shuffle_xor<Lanes>(value)));
  else
    return value;
}

}  // namespace forge::gpu
