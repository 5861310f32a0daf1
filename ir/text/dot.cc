#include "ir/text/dot.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <set>

#include "ir/text/attrs_io.h"

namespace forge::ir {

std::string dot_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) out += c;
  }
  return out;
}

namespace {

/// Grey for inputs and constants, yellow for weights, red for state ops, blue for matmuls and the embedding.
const char* fill_colour(Op op) {
  switch (op) {
    case Op::kInput:
    case Op::kConstant:
      return "#e8e8e8";
    case Op::kWeight:
    case Op::kConcatRows:
    case Op::kSliceRows:
      return "#fff2cc";
    case Op::kKvState:
    case Op::kRecurrentState:
    case Op::kKvStore:
    case Op::kAttention:
    case Op::kSelectKeys:
      return "#f8d7da";
    case Op::kMatmul:
    case Op::kEmbed:
      return "#d6e4f7";
    default:
      return "#ffffff";
  }
}

/// Writes the DOT text: first the clusters with their nodes, then neighbours of the drawn layer, edges and outputs.
class Drawer {
 public:
  Drawer(const Graph& graph, const DotOptions& options) : graph_(graph), options_(options) {}

  std::string run() {
    assign_clusters();
    out_ =
        "digraph forge {\n"
        "  graph [rankdir=TB fontname=\"Helvetica\" compound=true ranksep=0.35 nodesep=0.25];\n"
        "  node [shape=box style=\"rounded,filled\" fontname=\"Helvetica\" fontsize=10 margin=\"0.08,0.04\"];\n"
        "  edge [fontname=\"Helvetica\" fontsize=8 color=\"#606060\"];\n";
    for (const auto& [layer, groups] : members_) {
      const bool boxed = layer != kNoLayer;
      if (boxed)
        line("  subgraph cluster_layer_{0} {{\n    label=\"layer {0}\"; style=dashed; color=\"#909090\";\n", layer);
      for (const auto& [group, nodes] : groups) draw_group(group, nodes);
      if (boxed) out_ += "  }\n";
    }
    for (const NodeId node : outside_) line("  n{} [label=\"{}\" style=dashed];\n", node, label(node));
    draw_edges();
    draw_outputs();
    return out_ + "}\n";
  }

 private:
  template <class... A>
  void line(fmt::format_string<A...> format, A&&... arguments) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<A>(arguments)...);
  }

  /// Assigns nodes to clusters. A DOT node can be in one cluster only, but a fused group may have nodes of two layers,
  /// so the whole group is drawn in the lowest of its layers. With only_layer, nodes of other layers that share an edge
  /// with it are collected in outside_ and drawn dashed.
  void assign_clusters() {
    std::map<std::uint32_t, std::int32_t> layer_of_group;
    for (const NodeId node : graph_.nodes()) {
      const auto group = graph_.group(node);
      const auto layer = graph_.layer(node);
      if (group == kNoGroup || layer == kNoLayer) continue;
      const auto [first, fresh] = layer_of_group.try_emplace(group, layer);
      if (!fresh) first->second = std::min(first->second, layer);
    }
    for (const NodeId node : graph_.nodes()) {
      const auto group = graph_.group(node);
      const auto found = layer_of_group.find(group);
      const auto layer = found == layer_of_group.end() ? graph_.layer(node) : found->second;
      if (options_.only_layer != kNoLayer && layer != options_.only_layer) continue;
      members_[layer][group].push_back(node);
      drawn_.insert(node);
    }
    for (const NodeId node : graph_.nodes())
      for (const Value& value : graph_.operands(node))
        if (drawn_.contains(node) != drawn_.contains(value.node))
          outside_.insert(drawn_.contains(node) ? value.node : node);
  }

  /// A group's nodes in a filled box with the caller's note or "group N" as its label; ungrouped nodes without a box.
  void draw_group(std::uint32_t group, const std::vector<NodeId>& nodes) {
    if (group != kNoGroup) {
      const auto note = options_.group_note ? options_.group_note(group) : std::string();
      line("    subgraph cluster_group_{} {{\n      label=\"{}\"; style=filled; color=\"#eaf5ea\";\n", group,
           dot_escaped(note.empty() ? fmt::format("group {}", group) : note));
    }
    for (const NodeId node : nodes)
      line("      n{} [label=\"{}\" fillcolor=\"{}\"];\n", node, label(node), fill_colour(graph_.op(node)));
    if (group != kNoGroup) out_ += "    }\n";
  }

  /// Op and node id; the name of a weight or input; then type and note of each result, a line each.
  [[nodiscard]] std::string label(NodeId node) const {
    std::string text = fmt::format("{} #{}", op_def(graph_.op(node)).name, node);
    if (graph_.op(node) == Op::kWeight) text += "\\n" + dot_escaped(graph_.attrs_as<WeightAttrs>(node).name);
    if (graph_.op(node) == Op::kInput) ((text += "\\n") += enum_name(graph_.attrs_as<InputAttrs>(node).kind));
    for (std::uint32_t i = 0; i < graph_.results(node).size(); ++i) {
      const Value value{node, i};
      text += "\\n" + graph_.type(value).text();
      if (const auto note = options_.note ? options_.note(value) : std::string(); !note.empty())
        text += "\\n" + dot_escaped(note);
    }
    return text;
  }

  /// Edges between drawn nodes and across the border of the drawn layer. Of nodes with several results the edge is
  /// labelled with the result's number.
  void draw_edges() {
    for (const NodeId node : graph_.nodes())
      for (const Value& value : graph_.operands(node)) {
        if (!drawn_.contains(node) && !drawn_.contains(value.node)) continue;
        line("  n{} -> n{}", value.node, node);
        if (graph_.results(value.node).size() > 1) line(" [label=\"{}\"]", value.result);
        out_ += ";\n";
      }
  }

  void draw_outputs() {
    std::size_t number = 0;
    for (const auto& [name, value] : graph_.outputs()) {
      if (drawn_.contains(value.node))
        line("  out{0} [label=\"{1}\" shape=ellipse fillcolor=\"#d9ead3\"];\n  n{2} -> out{0};\n", number,
             dot_escaped(name), value.node);
      ++number;
    }
  }

  const Graph& graph_;
  const DotOptions& options_;
  std::map<std::int32_t, std::map<std::uint32_t, std::vector<NodeId>>> members_;  // layer -> group -> nodes
  std::set<NodeId> drawn_, outside_;
  std::string out_;
};

}  // namespace

std::string dot(const Graph& graph, const DotOptions& options) {
  return Drawer(graph, options).run();
}

}  // namespace forge::ir
