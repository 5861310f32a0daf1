#pragma once
// Views: nodes that need no step, because their results are ranges of columns of a value that lies in memory already. A
// split into consecutive parts is one if the target's kernels take rows at any distance (Target::views_columns).

#include <vector>

#include "passes/passes.h"

namespace forge::passes {

class Views {
 public:
  /// No views.
  Views() = default;
  /// The splits of the graph that are views for `target`: those in no group, of [M,N] values that a step computes.
  Views(const ir::Graph& graph, const Target& target);

  [[nodiscard]] bool holds(ir::NodeId node) const { return node < is_view_.size() && is_view_[node]; }
  /// The value that `value` is a view of, through any number of views; `value` itself if it is none.
  [[nodiscard]] ir::Value base(const ir::Graph& graph, ir::Value value) const;
  /// All uses of `value` by nodes that are no views, those of its views included.
  [[nodiscard]] std::vector<ir::Use> uses(const ir::Graph& graph, ir::Value value) const;

 private:
  std::vector<bool> is_view_;  ///< by node
};

}  // namespace forge::passes
