#include "runtime/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "runtime/philox.h"
#include "support/error.h"

namespace forge::runtime {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Four floats per vector, by the compiler's vector extension. Every target has it, and each lane computes the same
// result on all of them. This file is built with -ffp-contract=off: a fused multiply-add would round differently.
using Floats = float __attribute__((vector_size(16)));
using Ints = std::int32_t __attribute__((vector_size(16)));
constexpr std::size_t kWide = 4;
constexpr std::size_t kBlock = 4 * kWide;

Floats load(const float* from) {
  Floats out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

/// exp(x) for x <= 0 with a relative error of 3e-7; 0 below -87. Not libm's exp, whose result differs between machines.
/// Writes x = n ln 2 + r with |r| <= ln 2 / 2 and returns 2^n * exp(r). ln 2 is split into two floats so that x - n ln
/// 2 is almost exact (Cody and Waite); exp(r) is a Taylor polynomial of degree 7; 2^n is built from exponent bits.
Floats exp_of_negative(Floats x) {
  const Ints in_range = x >= -87.0F;
  x = in_range ? x : Floats{};
  // 1.5 * 2^23: adding it rounds to an integer, which is left in the low mantissa bits.
  constexpr float kRound = 12582912.0F;
  const Floats shifted = x * 1.44269504F + kRound;
  const Floats n = shifted - kRound;
  const Floats r = (x - n * 0.693145752F) - n * 1.42860677e-6F;
  Floats sum = r * (1.0F / 5040) + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  const Ints exponent = std::bit_cast<Ints>(shifted) - std::bit_cast<std::int32_t>(kRound);
  const auto power = std::bit_cast<Floats>((exponent + 127) << 23);
  return in_range ? sum * power : Floats{};
}

/// weights[i] = exp(logits[i] / temperature) for logits <= 0. Returns the sum of the weights. The order of additions is
/// fixed: 16 values into four lanes, the four lanes pairwise, then in double from block to block.
double exponentials(std::span<const float> logits, float temperature, std::span<float> weights) {
  double total = 0;
  std::size_t i = 0;
  for (; i + kBlock <= logits.size(); i += kBlock) {
    Floats sum{};
    for (std::size_t part = i; part < i + kBlock; part += kWide) {
      const Floats weight = exp_of_negative(load(&logits[part]) / temperature);
      std::memcpy(&weights[part], &weight, sizeof weight);
      sum += weight;
    }
    total += static_cast<double>(sum[0] + sum[1]) + static_cast<double>(sum[2] + sum[3]);
  }
  for (; i < logits.size(); ++i) {
    weights[i] = exp_of_negative(Floats{logits[i] / temperature})[0];
    total += static_cast<double>(weights[i]);
  }
  return total;
}

/// The largest value; -infinity for an empty span. Two independent accumulators halve the dependency chain.
float largest(std::span<const float> values) {
  Floats top = Floats{} + kMinusInfinity, other = top;
  std::size_t i = 0;
  for (; i + 2 * kWide <= values.size(); i += 2 * kWide) {
    const Floats a = load(&values[i]), b = load(&values[i + kWide]);
    top = a > top ? a : top;
    other = b > other ? b : other;
  }
  top = other > top ? other : top;
  float result = std::max(std::max(top[0], top[1]), std::max(top[2], top[3]));
  for (; i < values.size(); ++i) result = std::max(result, values[i]);
  return result;
}

/// True if any of values[0, kBlock) is at least `threshold`.
bool any_at_least(const float* values, float threshold) {
  Ints found{};
  for (std::size_t part = 0; part < kBlock; part += kWide) found |= load(values + part) >= threshold;
  return (found[0] | found[1] | found[2] | found[3]) != 0;
}

/// The lowest index of a value >= top; top is the largest value. Skips blocks of 16 that have none.
std::size_t first_of(std::span<const float> values, float top) {
  std::size_t i = 0;
  while (i + kBlock <= values.size() && !any_at_least(&values[i], top)) i += kBlock;
  while (values[i] < top) ++i;
  return i;
}

/// Copies `from` so that values can be compared: NaN becomes -infinity, +infinity becomes the largest float.
void copy_comparable(std::span<const float> from, std::span<float> to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const float low = from[i] > -FLT_MAX ? from[i] : kMinusInfinity;  // NaN compares false
    to[i] = low < FLT_MAX ? low : FLT_MAX;
  }
}

/// Histogram buckets of keep_mass: keys in [0, 16) in steps of 1/64; the last bucket takes all larger keys.
constexpr std::size_t kBuckets = 1024;
std::size_t bucket_of(float key) {
  return static_cast<std::size_t>(std::min(key * 64, static_cast<float>(kBuckets - 1)));
}

}  // namespace

SamplerScratch::SamplerScratch(std::size_t vocab)
    : values_(vocab), count_(vocab), ids_(vocab), logits_(vocab), weights_(vocab), items_(vocab) {}

/// The candidate tokens of one draw, stored in the scratch memory as parallel arrays ids_/logits_/weights_ of count_
/// entries. Every filter compacts them in place and keeps their order (ascending ids).
class Draw {
 public:
  explicit Draw(SamplerScratch& scratch) : s_(scratch) {}

  /// Start: all tokens that are not masked.
  void take_all(float largest_value);
  /// Start: the k largest, the lower id first among equals.
  void take_top(std::size_t k, float largest_value);
  void keep_typical(float mass);
  void keep_top_p(float mass);
  void keep_min_p(float share);
  std::int32_t choose(float temperature, double uniform);

 private:
  using Item = SamplerScratch::Item;

  std::span<float> logits() { return std::span(s_.logits_).first(count_); }
  /// Computes the weights exp(logit / temperature) of all candidates; returns their sum.
  double weigh(float temperature = 1) { return exponentials(logits(), temperature, s_.weights_); }

  static bool before(const Item& a, const Item& b) { return a.key < b.key || (a.key == b.key && a.place < b.place); }
  /// Sorting items[0, n) by `before` and adding up masses from the front: the item at which the sum reaches `target`.
  Item find_cut(std::size_t n, double target);
  /// Keeps the shortest run of candidates, in the order of (key(i), i), whose weights add up to `target`. key(i) >= 0.
  template <class Key>
  void keep_mass(double target, Key&& key);
  /// Keeps the candidates i for which (key(i), i) is not after the cut.
  template <class Key>
  void keep_until(const Item& cut, Key&& key);
  template <class Keep>
  void keep_if(Keep&& keep);

  SamplerScratch& s_;
  std::size_t count_ = 0;
};

/// Quickselect by mass instead of rank (source: Hoare, "Algorithm 65: Find", 1961). Invariant: `base` is the mass of
/// all items in front of items[low], and the answer is in items[low, high).
///
///   [ smaller, mass counted in base | low ... undecided ... high | larger, discarded ]
///
/// Pivots are the median of three pseudo-random places from a fixed seed: linear time on average for every input, and
/// the same path on every machine.
Draw::Item Draw::find_cut(std::size_t n, double target) {
  Item* items = s_.items_.data();
  std::size_t low = 0, high = n;
  double base = 0;
  std::uint32_t state = 0x2545F491;
  const auto place = [&] {
    state = state * 1664525 + 1013904223;
    return low + static_cast<std::size_t>((std::uint64_t{state} * (high - low)) >> 32);
  };
  Item last = items[0];
  while (low < high) {
    std::size_t a = place(), b = place(), c = place();
    if (before(items[b], items[a])) std::swap(a, b);
    if (before(items[c], items[b])) b = before(items[c], items[a]) ? a : c;
    std::swap(items[b], items[high - 1]);
    const Item pivot = items[high - 1];
    std::size_t middle = low;
    double mass = 0;
    for (std::size_t i = low; i + 1 < high; ++i) {
      if (!before(items[i], pivot)) continue;
      mass += static_cast<double>(items[i].mass);
      std::swap(items[i], items[middle++]);
    }
    std::swap(items[middle], items[high - 1]);
    // The left part reaches the target: the answer is in it.
    if (middle > low && base + mass >= target) {
      high = middle;
      continue;
    }
    // Otherwise the pivot is included. Stop if it reaches the target, else continue to the right of it.
    last = pivot;
    base += mass + static_cast<double>(pivot.mass);
    if (base >= target) break;
    low = middle + 1;
  }
  return last;
}

template <class Keep>
void Draw::keep_if(Keep&& keep) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    if (!keep(i)) continue;
    s_.ids_[kept] = s_.ids_[i];
    s_.logits_[kept] = s_.logits_[i];
    ++kept;
  }
  count_ = kept;
}

template <class Key>
void Draw::keep_until(const Item& cut, Key&& key) {
  keep_if([&](std::size_t i) { return !before(cut, Item{key(i), 0, static_cast<std::int32_t>(i)}); });
}

/// Finds the histogram bucket in which the cumulative mass reaches the target, then runs the quickselect on the items
/// of that bucket only.
template <class Key>
void Draw::keep_mass(double target, Key&& key) {
  target = std::max(target, DBL_MIN);  // at least one token
  std::array<double, kBuckets> masses{};
  for (std::size_t i = 0; i < count_; ++i) masses[bucket_of(key(i))] += static_cast<double>(s_.weights_[i]);
  std::size_t bucket = 0;
  double base = 0;
  while (bucket + 1 < kBuckets && base + masses[bucket] < target) base += masses[bucket++];
  std::size_t n = 0;
  for (std::size_t i = 0; i < count_; ++i)
    if (bucket_of(key(i)) == bucket) s_.items_[n++] = {key(i), s_.weights_[i], static_cast<std::int32_t>(i)};
  // No items: rounding kept the sum below the target, so all candidates stay.
  if (n > 0) keep_until(find_cut(n, target - base), key);
}

void Draw::take_all(float largest_value) {
  count_ = 0;
  // Branch-free: both stores always happen, count_ advances only for a candidate.
  for (std::size_t id = 0; id < s_.values_.size(); ++id) {
    s_.ids_[count_] = static_cast<std::int32_t>(id);
    s_.logits_[count_] = s_.values_[id] - largest_value;
    count_ += s_.values_[id] > kMinusInfinity ? 1 : 0;
  }
}

/// One pass over the vocabulary with a rising threshold. Candidates above the threshold are collected in a buffer of
/// max(4k, 512); when it is full it is reduced to the k largest, and the k-th becomes the new threshold. Most of the
/// vocabulary is only compared, 16 values at a time.
void Draw::take_top(std::size_t k, float largest_value) {
  const std::size_t limit = std::min(s_.values_.size(), std::max<std::size_t>(4 * k, 512));
  float threshold = kMinusInfinity;
  const auto shrink = [&] {
    if (count_ <= k) return;
    for (std::size_t i = 0; i < count_; ++i) s_.items_[i] = {-s_.logits_[i], 1, static_cast<std::int32_t>(i)};
    const Item cut = find_cut(count_, static_cast<double>(k));
    keep_until(cut, [&](std::size_t i) { return -s_.logits_[i]; });
    threshold = -cut.key;  // among equals the lower id wins, so later ids must be above the threshold
  };
  count_ = 0;
  const std::size_t vocab = s_.values_.size();
  for (std::size_t begin = 0; begin < vocab; begin += kBlock) {
    const std::size_t end = std::min(begin + kBlock, vocab);
    if (end - begin == kBlock && !any_at_least(&s_.values_[begin], threshold)) continue;
    for (std::size_t id = begin; id < end; ++id) {
      if (!(s_.values_[id] > threshold)) continue;
      if (count_ == limit) {
        shrink();
        if (!(s_.values_[id] > threshold)) continue;
      }
      s_.ids_[count_] = static_cast<std::int32_t>(id);
      s_.logits_[count_++] = s_.values_[id];
    }
  }
  shrink();
  for (float& logit : logits()) logit -= largest_value;
}

/// Locally typical sampling: orders tokens by the distance of their surprise -log p from the entropy of the
/// distribution.
void Draw::keep_typical(float mass) {
  const double total = weigh();
  const double log_total = std::log(total);
  double entropy = 0;
  for (std::size_t i = 0; i < count_; ++i)
    if (s_.weights_[i] > 0)
      entropy -= static_cast<double>(s_.weights_[i]) / total * (static_cast<double>(s_.logits_[i]) - log_total);
  const auto key = [&](std::size_t i) {
    return static_cast<float>(std::abs(log_total - static_cast<double>(s_.logits_[i]) - entropy));
  };
  keep_mass(static_cast<double>(mass) * total, key);
}

/// Nucleus sampling: the key is the distance from the largest logit, so the largest come first.
void Draw::keep_top_p(float mass) {
  const double target = static_cast<double>(mass) * weigh();
  keep_mass(target, [&](std::size_t i) { return -s_.logits_[i]; });
}

/// p >= share * max p is logit >= max logit + log(share): no exponentials needed.
void Draw::keep_min_p(float share) {
  const float floor = largest(logits()) + std::log(share);
  keep_if([&](std::size_t i) { return s_.logits_[i] >= floor; });
}

/// Draws from the candidates: walks along the cumulative weights until they exceed uniform * total. Zero weights are
/// skipped, so rounding at the end cannot select an impossible token.
std::int32_t Draw::choose(float temperature, double uniform) {
  if (count_ == 1) return s_.ids_[0];
  const float top = largest(logits());
  for (float& logit : logits()) logit -= top;  // filters may have removed the largest
  const double goal = uniform * weigh(temperature);
  double reached = 0;
  std::int32_t chosen = s_.ids_[0];
  for (std::size_t i = 0; i < count_; ++i) {
    if (s_.weights_[i] <= 0) continue;
    chosen = s_.ids_[i];
    reached += static_cast<double>(s_.weights_[i]);
    if (reached > goal) break;
  }
  return chosen;
}

Sampler::Sampler(std::size_t vocab, SamplerParams params) : vocab_(vocab), params_(std::move(params)) {
  const auto check = [](bool good, const char* name, auto value, const char* range) {
    if (!good)
      throw Error(ErrorCode::kUsage, fmt::format("{} cannot be {}", name, value), fmt::format("it must be {}", range));
  };
  const auto share = [](float x) { return x >= 0 && x <= 1; };
  const auto& p = params_;
  check(std::isfinite(p.temperature) && p.temperature >= 0, "temperature", p.temperature, "0 or more");
  check(p.top_k >= 0, "top_k", p.top_k, "0 (off) or more");
  check(share(p.top_p), "top_p", p.top_p, "between 0 and 1");
  check(share(p.min_p), "min_p", p.min_p, "between 0 and 1");
  check(share(p.typical_p), "typical_p", p.typical_p, "between 0 and 1");
  check(std::isfinite(p.repeat_penalty) && p.repeat_penalty > 0, "repeat_penalty", p.repeat_penalty, "above 0");
  check(std::isfinite(p.frequency_penalty), "frequency_penalty", p.frequency_penalty, "a number");
  check(std::isfinite(p.presence_penalty), "presence_penalty", p.presence_penalty, "a number");
  check(p.penalty_window <= std::size_t{1} << 24, "penalty_window", p.penalty_window, "at most 16777216");
  for (const auto& [token, bias] : p.logit_bias) {
    check(token >= 0 && static_cast<std::size_t>(token) < vocab, "the token of a logit bias", token,
          "in the vocabulary");
    check(!std::isnan(bias) && bias < std::numeric_limits<float>::infinity(), "a logit bias", bias, "a number");
  }
  window_.reserve(params_.penalty_window);
}

void Sampler::accept(std::int32_t token) {
  if (params_.penalty_window == 0 || token < 0 || static_cast<std::size_t>(token) >= vocab_) return;
  if (window_.size() < params_.penalty_window) {
    window_.push_back(token);  // within its capacity
  } else {
    window_[window_next_] = token;
    window_next_ = (window_next_ + 1) % window_.size();
  }
}

/// Steps 1 to 3 of the documented order (mask, bias, penalties), on scratch.values_.
void Sampler::adjust(SamplerScratch& scratch, std::span<const std::uint32_t> allowed) const {
  auto& values = scratch.values_;
  for (std::size_t word = 0; word < allowed.size(); ++word)
    for (std::uint32_t refused = ~allowed[word]; refused != 0; refused &= refused - 1)
      if (const std::size_t id = word * 32 + static_cast<std::size_t>(std::countr_zero(refused)); id < vocab_)
        values[id] = kMinusInfinity;
  for (const auto& [token, bias] : params_.logit_bias) {
    float& value = values[static_cast<std::size_t>(token)];
    value = std::min(value + bias, FLT_MAX);
  }
  const bool penalties = params_.repeat_penalty != 1 || params_.frequency_penalty != 0 || params_.presence_penalty != 0;
  if (!penalties) return;
  // Count occurrences first, then visit each distinct token once: exchange() returns 0 for repeats and clears the
  // counts.
  for (const std::int32_t token : window_) ++scratch.count_[static_cast<std::size_t>(token)];
  for (const std::int32_t token : window_) {
    const auto times = std::exchange(scratch.count_[static_cast<std::size_t>(token)], 0);
    float& value = values[static_cast<std::size_t>(token)];
    if (times == 0 || value == kMinusInfinity) continue;
    value = value > 0 ? value / params_.repeat_penalty : value * params_.repeat_penalty;
    value -= params_.frequency_penalty * static_cast<float>(times) + params_.presence_penalty;
    value = value < FLT_MAX ? value : FLT_MAX;
  }
}

std::int32_t Sampler::sample(std::span<const float> logits, SamplerScratch& scratch,
                             std::span<const std::uint32_t> allowed) {
  invariant(
      logits.size() == vocab_ && scratch.vocab() == vocab_ && (allowed.empty() || allowed.size() == (vocab_ + 31) / 32),
      "SAMPLE-001", "logits, mask and scratch have the same vocabulary");
  copy_comparable(logits, scratch.values_);
  adjust(scratch, allowed);
  const float top = largest(scratch.values_);
  if (top == kMinusInfinity) return kNoToken;
  if (params_.temperature == 0) return static_cast<std::int32_t>(first_of(scratch.values_, top));
  Draw draw(scratch);
  const auto k = static_cast<std::size_t>(params_.top_k);
  if (k > 0 && k < vocab_) {
    draw.take_top(k, top);
  } else {
    draw.take_all(top);
  }
  if (params_.typical_p < 1) draw.keep_typical(params_.typical_p);
  if (params_.top_p < 1) draw.keep_top_p(params_.top_p);
  if (params_.min_p > 0) draw.keep_min_p(params_.min_p);
  return draw.choose(params_.temperature, philox_uniform(params_.seed, draws_++));
}

}  // namespace forge::runtime
