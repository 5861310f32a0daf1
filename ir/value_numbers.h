#pragma once
// Maps values to the numbers that the text form gives them (%0, %1, ... in topological order) and back. Plans and dumps
// name values by these numbers, because they can be recomputed from the graph alone.

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace forge::ir {

/// The numbering of one graph, valid until the graph is next changed.
class ValueNumbers {
 public:
  explicit ValueNumbers(const Graph& graph);

  [[nodiscard]] std::uint32_t of(Value value) const { return first_[value.node] + value.result; }
  /// Precondition: number < size().
  [[nodiscard]] Value value(std::uint32_t number) const { return values_[number]; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(values_.size()); }

 private:
  std::vector<std::uint32_t> first_;  ///< by node: number of its result 0; the others follow
  std::vector<Value> values_;         ///< by number
};

}  // namespace forge::ir
