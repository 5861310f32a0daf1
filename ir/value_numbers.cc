#include "ir/value_numbers.h"

namespace forge::ir {

ValueNumbers::ValueNumbers(const Graph& graph) : first_(graph.id_bound()) {
  for (const NodeId node : graph.topological_order()) {
    first_[node] = size();
    for (std::uint32_t result = 0; result < graph.results(node).size(); ++result) values_.push_back({node, result});
  }
}

}  // namespace forge::ir
