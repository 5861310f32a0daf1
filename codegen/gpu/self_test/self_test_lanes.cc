// Expected results of SelfTestLanes (kernels/gpu/self_test/self_test.h), computed lane by lane.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "codegen/gpu/self_test/self_test_kernels.h"
#include "kernels/gpu/self_test/self_test_io.h"

namespace forge::codegen {
namespace {

using namespace gpu::self_test;

/// One wave's inputs: [lane][kLaneInputs].
class Wave {
 public:
  Wave(const std::vector<std::uint32_t>& input, std::size_t first, std::size_t lanes)
      : lanes_(lanes), words_(&input[first * kLaneInputs]) {}
  [[nodiscard]] std::size_t lanes() const { return lanes_; }
  [[nodiscard]] std::uint32_t word(std::size_t lane) const { return words_[lane * kLaneInputs]; }
  /// The lane's number x[i].
  [[nodiscard]] float x(std::size_t lane, std::size_t i) const { return number_of(words_[lane * kLaneInputs + 1 + i]); }

  /// Reduces the group of `count` neighbouring lanes that `lane` is in, in the order of a butterfly (combine_lanes).
  template <class T, class Value, class Combine>
  [[nodiscard]] static T combined(std::size_t lane, std::size_t count, const Value& value, const Combine& combine) {
    std::vector<T> terms;
    for (std::size_t i = 0; i < count; ++i) terms.push_back(value(lane / count * count + i));
    for (std::size_t step = 1; step < count; step *= 2)
      for (std::size_t i = 0; i < count; i += 2 * step) terms[i] = combine(terms[i], terms[i + step]);
    return terms[0];
  }
  template <class Value>
  [[nodiscard]] float sum(std::size_t lane, std::size_t count, const Value& value) const {
    return combined<float>(lane, count, value, std::plus<float>());
  }
  /// Sum of x[i] over all lanes of the wave.
  [[nodiscard]] float sum_of(std::size_t i) const {
    return sum(0, lanes_, [&](std::size_t lane) { return x(lane, i); });
  }
  [[nodiscard]] float max_of(std::size_t lane, std::size_t count, std::size_t i) const {
    float most = x(lane / count * count, i);
    for (std::size_t l = 0; l < count; ++l) most = std::max(most, x(lane / count * count + l, i));
    return most;
  }

 private:
  std::size_t lanes_;
  const std::uint32_t* words_;
};

/// [result][thread of the grid].
using Results = std::vector<std::vector<std::uint32_t>>;

void exchange(const Wave& wave, std::size_t thread, std::size_t lane, Results& out) {
  for (std::size_t log = 0, mask = 1; mask < wave.lanes(); ++log, mask *= 2) {
    const auto words = [&](std::size_t l) { return wave.word(l); };
    out[kShuffleXor + log][thread] = wave.word(lane ^ mask);
    out[kSumOfLanes + log][thread] = Wave::combined<std::uint32_t>(lane, 2 * mask, words, std::plus<std::uint32_t>());
    out[kSumOfFloats + log][thread] = word_of(wave.sum(lane, 2 * mask, [&](std::size_t l) { return wave.x(l, 0); }));
    out[kMaxOfFloats + log][thread] = word_of(wave.max_of(lane, 2 * mask, 0));
  }
}

void some_lanes(const Wave& wave, std::size_t thread, std::size_t lane, Results& out) {
  const auto squares = [&](std::size_t l) {
    float sum = 0;
    for (std::size_t i = 0; i < kLaneRounds; ++i) sum += wave.x(l, i) * wave.x(l, i);
    return sum;
  };
  out[kFactor][thread] = word_of(1.0F / std::sqrt(wave.sum(0, wave.lanes(), squares) * 0.125F + 1e-5F));
  out[kFactorsTwice][thread] = word_of(wave.max_of(0, wave.lanes(), 1) + wave.sum_of(2) * 0.5F);
  float rounds = 0;
  for (std::size_t i = 0; i < kLaneRounds; ++i) rounds += wave.sum_of(i) * 2.0F;
  out[kFactorsLoop][thread] = word_of(rounds);
  out[kLastLane][thread] = word_of(wave.sum_of(3) * wave.sum_of(3));
  const float other = wave.x(0, 4) + wave.x(16, 4);
  out[kOneExchange][thread] = word_of(other * 3.0F);
  constexpr std::size_t kPart = 16;
  out[kPartsOfTile][thread] =
      word_of(wave.sum(lane, kPart, [&](std::size_t l) { return wave.x(l, 5) * wave.x(l, 5); }));
  std::uint32_t scan = 0;
  for (std::size_t l = 0; l <= lane; ++l) scan += wave.word(l);
  out[kScan][thread] = scan;
}

/// Results that depend on all waves of a block.
void whole_block(const std::vector<std::uint32_t>& input, std::size_t first, std::size_t lanes, Results& out) {
  const std::size_t threads = kLaneWaves * lanes;
  std::size_t best = 0;
  const auto x0 = [&](std::size_t thread) { return number_of(input[(first + thread) * kLaneInputs + 1]); };
  for (std::size_t t = 1; t < threads; ++t)
    if (x0(t) > x0(best)) best = t;
  const Wave second(input, first + lanes, lanes);
  const float alone = second.sum(0, lanes, [&](std::size_t l) { return second.x(l, 0) * second.x(l, 1); }) + 1.0F;
  for (std::size_t t = 0; t < threads; ++t) {
    out[kBestOfBlock][first + t] = static_cast<std::uint32_t>(best);
    out[kWaveAlone][first + t] = word_of(alone);
  }
}

struct Named {
  int result;
  const char* name;
};
constexpr Named kNames[] = {
    {kShuffle, "shuffle"},
    {kShuffleByData, "shuffle by data"},
    {kUniform, "uniform"},
    {kWaveId, "wave_id"},
    {kLaneId, "lane_id"},
    {kFactor, "sum of squares kept by lane 0"},
    {kFactorsTwice, "two reductions kept by lane 0"},
    {kFactorsLoop, "reductions in a loop kept by lane 0"},
    {kBestOfBlock, "best_of_block"},
    {kLastLane, "sum kept by the last lane"},
    {kPartsOfTile, "sum of 16 lanes kept by the first"},
    {kOneExchange, "shuffle_xor<16> kept by lane 0"},
    {kWaveAlone, "sum of one wave alone"},
    {kScan, "sum up to a lane"},
};

}  // namespace

SelfTestKernel self_test_lanes(const GpuTarget& target) {
  const auto lanes = static_cast<std::size_t>(target.wave), threads = kLaneWaves * lanes, total = kLaneBlocks * threads;
  KernelText text{
      .header = "kernels/gpu/self_test/self_test.h", .kernel = "SelfTestLanes", .defaults = {}, .before = {}};
  text.blocks = kLaneBlocks;
  text.threads = static_cast<std::int64_t>(threads);
  auto kernel = self_test_kernel(target, "lanes", std::move(text));
  TestWords random(1);
  for (std::size_t t = 0; t < total; ++t) {
    kernel.input.push_back(random.next());
    for (int i = 1; i < kLaneInputs; ++i) kernel.input.push_back(word_of(random.number(0.01F, 3)));
  }
  // The largest value of each block occurs twice, so that best_of_block must return the lower index.
  for (std::size_t b = 0; b < kLaneBlocks; ++b)
    for (const std::size_t t : {threads - 3, lanes + 7})
      kernel.input[(b * threads + t) * kLaneInputs + 1] = word_of(5.0F + static_cast<float>(b));

  Results out(kLaneResults, std::vector<std::uint32_t>(total));
  for (std::size_t first = 0; first < total; first += lanes) {
    const Wave wave(kernel.input, first, lanes);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const std::size_t thread = first + lane;
      out[kShuffle][thread] = wave.word((7 * lane + 3) % lanes);
      out[kShuffleByData][thread] = word_of(wave.x(wave.word(lane) % lanes, 0));
      out[kUniform][thread] = wave.word(0);
      out[kWaveId][thread] = static_cast<std::uint32_t>(first % threads / lanes);
      out[kLaneId][thread] = static_cast<std::uint32_t>(lane);
      exchange(wave, thread, lane, out);
      some_lanes(wave, thread, lane, out);
    }
  }
  for (std::size_t b = 0; b < kLaneBlocks; ++b) whole_block(kernel.input, b * threads, lanes, out);

  kernel.out_words = kLaneResults * total;
  const auto add = [&](std::size_t result, std::string name) {
    kernel.sections.push_back({.name = std::move(name), .first = result * total, .expected = std::move(out[result])});
  };
  for (const auto& [result, name] : kNames) add(static_cast<std::size_t>(result), name);
  for (std::size_t log = 0; std::size_t{1} << log < lanes; ++log) {
    add(kShuffleXor + log, fmt::format("shuffle_xor<{}>", 1 << log));
    add(kSumOfLanes + log, fmt::format("sum_lanes<{}> of words", 2 << log));
    add(kSumOfFloats + log, fmt::format("sum_lanes<{}> of floats", 2 << log));
    add(kMaxOfFloats + log, fmt::format("max_lanes<{}>", 2 << log));
  }
  return kernel;
}

}  // namespace forge::codegen
