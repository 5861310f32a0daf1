#include "passes/fuse/grow_group.h"

#include <algorithm>
#include <numeric>

namespace forge::passes {

using ir::NodeId;

GroupGrower::GroupGrower(ir::Graph& graph, PassContext& context, std::string_view pass)
    : graph_(graph),
      context_(context),
      pass_(pass),
      order_(graph.topological_order()),
      position_(graph.id_bound()),
      users_(graph.id_bound()),
      seen_(graph.id_bound()),
      member_(graph.id_bound()) {
  for (std::uint32_t i = 0; i < order_.size(); ++i) {
    const NodeId node = order_[i];
    position_[node] = i;
    if (runs_in_step(graph, node))
      users_[node] = graph.users(node);  // sources depend on nothing: no path leads to them
    const std::uint32_t group = graph.group(node);
    if (group == ir::kNoGroup) continue;
    if (group >= in_group_.size()) in_group_.resize(group + 1);
    in_group_[group].push_back(node);
  }
  reach_.resize(order_.size());
  std::iota(reach_.begin(), reach_.end(), 0U);
  for (const auto& members : in_group_)
    if (!members.empty()) record_span(position_[members.front()], position_[members.back()]);
}

/// Records that a group extends from position `first` to `last` of the topological order.
void GroupGrower::record_span(std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t i = first; i < last; ++i) reach_[i] = std::max(reach_[i], last);
}

/// The last position from which a path may lead back to `position` or before it. Edges only lead forward in the
/// topological order; a path can go back only by entering a group at a late member and leaving it from an early one. So
/// the limit is where the chain of overlapping group spans that covers `position` ends. It keeps the search local.
std::uint32_t GroupGrower::search_limit(std::uint32_t position) const {
  while (reach_[position] > position) position = reach_[position];
  return position;
}

std::vector<NodeId> GroupGrower::grow(NodeId seed, const Filter& filter) {
  std::vector<NodeId> members;
  if (taken(seed) || !runs_in_step(graph_, seed)) return members;
  if (!try_add(members, {&seed, 1})) {
    if (!refusal_.empty()) note(context_, pass_, graph_, seed, refusal_);
    return members;
  }
  follow_users(members, filter);
  return members;
}

/// Adds users of members until none can be added. After each addition the frontier is computed again, because a node
/// that was refused may be accepted together with the new member. Reasons of the last round become notes.
void GroupGrower::follow_users(std::vector<NodeId>& members, const Filter& filter) {
  std::vector<std::pair<NodeId, std::string>> refused;
  for (bool grown = true; grown;) {
    grown = false;
    refused.clear();
    for (const NodeId candidate : frontier(members, filter)) {
      if (try_add(members, {&candidate, 1})) {
        grown = true;
        break;
      }
      const std::string why = refusal_;
      std::vector<NodeId> with_users{candidate};
      for (const NodeId user : users_[candidate])
        if (!taken(user) && filter(user)) with_users.push_back(user);
      if (with_users.size() > 1 && try_add(members, with_users)) {
        grown = true;
        break;
      }
      if (!why.empty()) refused.emplace_back(candidate, why);
    }
  }
  for (const auto& [node, why] : refused) note(context_, pass_, graph_, node, why);
}

/// Ungrouped users of members that pass the filter, distinct, in topological order.
std::vector<NodeId> GroupGrower::frontier(std::span<const NodeId> members, const Filter& filter) const {
  std::vector<NodeId> found;
  for (const NodeId member : members)
    for (const NodeId user : users_[member])
      if (!taken(user) && std::ranges::find(members, user) == members.end() && filter(user)) found.push_back(user);
  std::ranges::sort(found, {}, [&](NodeId node) { return position_[node]; });
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

/// Adds `more` to `members` if no cycle of steps results and the target accepts the whole. Otherwise leaves `members`
/// unchanged; refusal_ is then the target's reason, or empty for a cycle.
bool GroupGrower::try_add(std::vector<NodeId>& members, std::span<const NodeId> more) {
  std::vector<NodeId> wider = members;
  for (const NodeId node : more)
    if (std::ranges::find(wider, node) == wider.end()) wider.push_back(node);
  std::ranges::sort(wider, {}, [&](NodeId node) { return position_[node]; });
  refusal_.clear();
  if (would_create_cycle(wider)) return false;
  if (auto why = context_.target.group_refusal(graph_, wider)) {
    refusal_ = std::move(*why);
    return false;
  }
  members = std::move(wider);
  return true;
}

/// True if a path leads from a member through other steps back to a member: as one step, the group would need its own
/// results before it runs.
///   members {a, c} with a -> b -> c: b needs a, and c needs b, so {a, c} without b cannot be one step
/// An existing group is one step, so a path that enters it at any member leaves it from all of them. `seen_` and
/// `member_` hold the number of the search (stamp_) in which a node was marked, which saves clearing them.
bool GroupGrower::would_create_cycle(std::span<const NodeId> members) {
  ++stamp_;
  for (const NodeId member : members) member_[member] = stamp_;
  const std::uint32_t farthest = search_limit(position_[members.back()]);
  std::vector<NodeId> open;
  const auto visit = [&](NodeId node) {
    if (seen_[node] == stamp_ || position_[node] > farthest) return;
    const std::uint32_t group = graph_.group(node);
    const auto single = std::span<const NodeId>(&node, 1);
    for (const NodeId step : group == ir::kNoGroup ? single : std::span<const NodeId>(in_group_[group])) {
      seen_[step] = stamp_;
      open.push_back(step);
    }
  };
  for (const NodeId member : members)
    for (const NodeId user : users_[member])
      if (member_[user] != stamp_) visit(user);
  while (!open.empty()) {
    const NodeId node = open.back();
    open.pop_back();
    for (const NodeId user : users_[node]) {
      if (member_[user] == stamp_) return true;
      visit(user);
    }
  }
  return false;
}

bool GroupGrower::commit(std::span<const NodeId> members) {
  if (members.size() < 2) return false;
  const std::uint32_t group = graph_.new_group();
  if (group >= in_group_.size()) in_group_.resize(group + 1);
  for (const NodeId member : members) {
    graph_.set_group(member, group);
    in_group_[group].push_back(member);
  }
  record_span(position_[members.front()], position_[members.back()]);
  return true;
}

bool leads_to(const ir::Graph& graph, NodeId node, const GroupGrower::Filter& through,
              const GroupGrower::Filter& goal) {
  const auto is_residual = [&](NodeId sum) {
    return graph.op(sum) == ir::Op::kAdd && runs_in_step(graph, graph.operand(sum, 0).node) &&
           runs_in_step(graph, graph.operand(sum, 1).node);
  };
  std::vector<NodeId> open{node};
  std::vector<NodeId> seen{node};
  while (!open.empty()) {
    const NodeId at = open.back();
    open.pop_back();
    for (const NodeId user : graph.users(at)) {
      if (goal(user)) return true;
      if (!through(user) || is_residual(user) || std::ranges::find(seen, user) != seen.end()) continue;
      seen.push_back(user);
      open.push_back(user);
    }
  }
  return false;
}

}  // namespace forge::passes
