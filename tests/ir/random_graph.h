#pragma once
// Random valid graphs from a seed, for round-trip tests of the text form. Values of a few widths are combined by random
// ops that accept them.

#include <random>
#include <string>

#include "ir/builder.h"

namespace forge::ir::test {

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  /// Uniform in [0, end); end > 0.
  std::uint64_t below(std::uint64_t end) { return engine_() % end; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::mt19937_64 engine_;
};

class RandomGraph {
 public:
  explicit RandomGraph(std::uint32_t seed) : random_(seed) {}

  Graph build() {
    for (int i = 0; i < 2; ++i) add(b_.embed(weight(50), b_.input(InputKind::kIds)));
    const auto steps = random_.below(40);
    for (std::uint64_t i = 0; i < steps; ++i) {
      b_.set_layer(static_cast<std::int32_t>(random_.below(4)) - 1);
      grow();
    }
    for (std::uint64_t i = 0; i <= random_.below(3); ++i)
      graph_.add_output("out" + std::to_string(i), random_.pick(values_));
    prune();
    return std::move(graph_);
  }

 private:
  void add(Value value) {
    values_.push_back(value);
    if (random_.below(8) == 0)
      graph_.set_group(value.node, graph_.new_group());  // a group of one node is always convex
  }
  std::int64_t width(Value value) const { return graph_.type(value).cols(); }
  Value like(Value value) {
    std::vector<Value> same;
    for (const Value other : values_)
      if (graph_.type(other) == graph_.type(value)) same.push_back(other);
    return random_.pick(same);
  }
  Value weight(std::int64_t rows, std::int64_t cols = 64) {
    static constexpr std::array kTypes{DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0};
    return b_.weight("w" + std::to_string(weights_++), kTypes[random_.below(4)], {rows, cols});
  }
  Value vector(std::int64_t cols) { return b_.weight("v" + std::to_string(weights_++), DType::kF32, {cols}); }

  void grow() {
    const Value x = random_.pick(values_);
    const std::int64_t cols = width(x);
    switch (random_.below(9)) {
      case 0:
        return add(b_.add(x, like(x)));
      case 1:
        return add(b_.mul(x, vector(cols)));
      case 2:
        return add(b_.scale(x, static_cast<float>(random_.below(1000)) / 7));
      case 3:
        return add(b_.rms_norm(x, vector(cols), 1e-5f));
      case 4:
        return add(b_.matmul(x, weight(32 + 32 * static_cast<std::int64_t>(random_.below(3)), cols)));
      case 5:
        return add(b_.glu(x, like(x), random_.below(2) == 0 ? Activation::kSilu : Activation::kGelu));
      case 6: {
        const Value q{graph_.add(Op::kQuantize, {x}, QuantizeAttrs{}), 0};
        return add(b_.matmul(q, weight(64, cols)));
      }
      case 7: {
        const Value squares{graph_.add(Op::kSumSquares, {x}), 0};
        return add({graph_.add(Op::kInvRmsScale, {like(x), squares}, NormAttrs{1e-6f, cols}), 0});
      }
      default: {
        if (cols < 64) return;
        const NodeId split = graph_.add(Op::kSplit, {x}, PartsAttrs{{32, cols - 32}, 0});
        add({split, 0});
        return add({split, 1});
      }
    }
  }

  /// Removes some unused nodes, so that node ids have gaps.
  void prune() {
    for (NodeId node = graph_.id_bound(); node-- > 0;) {
      bool used = !graph_.users(node).empty();
      for (const auto& output : graph_.outputs()) used = used || output.value.node == node;
      if (!used && random_.below(2) == 0) graph_.remove(node);
    }
  }

  Random random_;
  Graph graph_;
  Builder b_{graph_};
  std::vector<Value> values_;
  int weights_ = 0;
};

inline Graph random_graph(std::uint32_t seed) {
  return RandomGraph(seed).build();
}

}  // namespace forge::ir::test
