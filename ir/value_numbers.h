#pragma once
// Values by the numbers that the text form gives them: %0, %1, ... in topological order.

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace forge::ir {

/// Of one graph, and valid until it is next changed.
class ValueNumbers {
 public:
  explicit ValueNumbers(const Graph& graph);

  [[nodiscard]] std::uint32_t of(Value value) const { return first_[value.node] + value.result; }
  /// Precondition: number < size().
  [[nodiscard]] Value value(std::uint32_t number) const { return values_[number]; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(values_.size()); }

 private:
  std::vector<std::uint32_t> first_;  ///< of a node's results, by node
  std::vector<Value> values_;         ///< by number
};

}  // namespace forge::ir
