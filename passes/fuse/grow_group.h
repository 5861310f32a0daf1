#pragma once
// How fusion passes form groups. A group is a set of nodes that one kernel computes. It grows from a seed (usually a
// matmul) along the uses of its members, as long as the pass's filter accepts the node, the target has a kernel for the
// result, and the group can still run as one step:
//
//   GroupGrower grower(graph, context, "fuse_glu");
//   for (NodeId node : grower.order())
//     if (is_matmul(graph, node) && !grower.taken(node)) grower.commit(grower.grow(node, filter));

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/passes.h"

namespace forge::passes {

/// The state of one fusion pass. It sets groups only; edges must not change while it exists, because it caches the
/// topological order and the users of all nodes.
class GroupGrower {
 public:
  /// `pass` is the name in notes. `graph` and `context` must outlive this.
  GroupGrower(ir::Graph& graph, PassContext& context, std::string_view pass);

  using Filter = std::function<bool(ir::NodeId)>;

  /// Returns the members of a group that starts at `seed`, in topological order; the graph is not changed yet. Users of
  /// members that pass `filter` are added in topological order unless the target refuses the enlarged group or a cycle
  /// of steps would result. A node that is refused alone is tried once more together with its users: an interleaved
  /// split, for example, is accepted only with its GLU. Empty if `seed` itself cannot start a group.
  std::vector<ir::NodeId> grow(ir::NodeId seed, const Filter& filter);

  /// Sets a new group on two or more members and returns true. A single node needs no group: returns false.
  bool commit(std::span<const ir::NodeId> members);

  /// True if the node is already in a group.
  [[nodiscard]] bool taken(ir::NodeId node) const { return graph_.group(node) != ir::kNoGroup; }
  [[nodiscard]] const std::vector<ir::NodeId>& order() const { return order_; }

 private:
  void follow_users(std::vector<ir::NodeId>& members, const Filter& filter);
  bool try_add(std::vector<ir::NodeId>& members, std::span<const ir::NodeId> more);
  [[nodiscard]] bool would_create_cycle(std::span<const ir::NodeId> members);
  [[nodiscard]] std::uint32_t search_limit(std::uint32_t position) const;
  void record_span(std::uint32_t first, std::uint32_t last);
  [[nodiscard]] std::vector<ir::NodeId> frontier(std::span<const ir::NodeId> members, const Filter& filter) const;

  ir::Graph& graph_;
  PassContext& context_;
  std::string_view pass_;
  std::vector<ir::NodeId> order_;                  ///< all nodes in topological order
  std::vector<std::uint32_t> position_;            ///< by node: its index in order_
  std::vector<std::vector<ir::NodeId>> users_;     ///< by node; empty for nodes that no step computes
  std::vector<std::vector<ir::NodeId>> in_group_;  ///< by group: its members
  std::vector<std::uint32_t> reach_;          ///< by position p: last position of all groups that begin at or before p
                                              ///< and end after it; p itself if there is none
  std::vector<std::uint32_t> seen_, member_;  ///< by node: the search (stamp_) that visited it, or had it as a member
  std::uint32_t stamp_ = 0;                   ///< number of the current search
  std::string refusal_;                       ///< the target's reason if it refused the last try_add, else empty
};

/// True if a path leads from the node's results, through ops that pass `through`, to a node that passes `goal` (`node`
/// itself does not count). Paths stop at a sum of two computed values: that is a residual add, from which every later
/// layer can be reached, and not a bias.
bool leads_to(const ir::Graph& graph, ir::NodeId node, const GroupGrower::Filter& through,
              const GroupGrower::Filter& goal);

}  // namespace forge::passes
