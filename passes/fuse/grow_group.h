#pragma once
// How fusion passes make groups: from a seed along the uses of its members, as far as the pass's filter, the target and
// the order of steps allow.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/passes.h"

namespace forge::passes {

/// One pass's view of a graph whose edges it does not change; only groups are set.
class GroupGrower {
 public:
  GroupGrower(ir::Graph& graph, PassContext& context, std::string_view pass);

  using Filter = std::function<bool(ir::NodeId)>;

  /// Starts from `seed` and takes users of members that `filter` lets through, in topological order, as long as the
  /// target does not refuse and no step would wait for itself. What the target refuses alone is tried once more
  /// together with its users (an interleaved split makes sense only with its GLU). Nothing is set yet.
  std::vector<ir::NodeId> grow(ir::NodeId seed, const Filter& filter);

  /// Goes on growing with `more` nodes taken in at once; false, and `members` unchanged, when that is refused.
  bool extend(std::vector<ir::NodeId>& members, std::span<const ir::NodeId> more, const Filter& filter);

  /// Makes a group of two or more members; a single node needs none. Returns whether it did.
  bool commit(std::span<const ir::NodeId> members);

  [[nodiscard]] bool taken(ir::NodeId node) const { return graph_.group(node) != ir::kNoGroup; }
  [[nodiscard]] const std::vector<ir::NodeId>& order() const { return order_; }

 private:
  void follow_users(std::vector<ir::NodeId>& members, const Filter& filter);
  bool try_add(std::vector<ir::NodeId>& members, std::span<const ir::NodeId> more);
  [[nodiscard]] bool would_wait_for_itself(std::span<const ir::NodeId> members);
  [[nodiscard]] std::uint32_t farthest_to_look(std::uint32_t position) const;
  void note_span(std::uint32_t first, std::uint32_t last);
  [[nodiscard]] std::vector<ir::NodeId> frontier(std::span<const ir::NodeId> members, const Filter& filter) const;

  ir::Graph& graph_;
  PassContext& context_;
  std::string_view pass_;
  std::vector<ir::NodeId> order_;                  ///< topological
  std::vector<std::uint32_t> position_;            ///< in order_, by node
  std::vector<std::vector<ir::NodeId>> users_;     ///< by node
  std::vector<std::vector<ir::NodeId>> in_group_;  ///< members by group
  std::vector<std::uint32_t> reach_;          ///< by position: the last one of the groups that begin there or before
  std::vector<std::uint32_t> seen_, member_;  ///< stamps by node
  std::uint32_t stamp_ = 0;
  std::string refusal_;  ///< of the last try_add that the target refused
};

/// Walks forward from the node's results through ops that `through` lets pass and says whether a node that `goal`
/// names is met (the node itself does not count). A sum of two computed values is not passed: it is the residual
/// stream, which all later layers hang on, and no bias.
bool leads_to(const ir::Graph& graph, ir::NodeId node, const GroupGrower::Filter& through,
              const GroupGrower::Filter& goal);

}  // namespace forge::passes
