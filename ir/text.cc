#include "ir/text.h"

#include <fmt/format.h>

#include <iterator>

#include "ir/attrs_io.h"

namespace forge::ir {

/// Values are numbered in the order of printing, so ids that removed nodes left out never show.
std::string print(const Graph& graph) {
  const auto order = graph.topological_order();
  std::vector<std::size_t> number(graph.id_bound());  // of each node's first result
  std::size_t next = 0;
  const auto name = [&](Value value) { return fmt::format("%{}", number[value.node] + value.result); };
  std::string out;
  for (const NodeId node : order) {
    number[node] = next;
    const auto results = graph.results(node);
    next += results.size();
    for (std::uint32_t i = 0; i < results.size(); ++i) (out += i > 0 ? ", " : "") += name({node, i});
    fmt::format_to(std::back_inserter(out), " = {}(", op_def(graph.op(node)).name);
    const auto operands = graph.operands(node);
    for (std::size_t i = 0; i < operands.size(); ++i) (out += i > 0 ? ", " : "") += name(operands[i]);
    out += ')';
    if (const auto attrs = print_attrs(graph.attrs(node)); !attrs.empty()) (out += ' ') += attrs;
    for (std::size_t i = 0; i < results.size(); ++i) (out += i > 0 ? ", " : " : ") += results[i].text();
    if (graph.layer(node) != kNoLayer) fmt::format_to(std::back_inserter(out), " @layer {}", graph.layer(node));
    if (graph.group(node) != kNoGroup) fmt::format_to(std::back_inserter(out), " #group {}", graph.group(node));
    out += '\n';
  }
  for (const auto& output : graph.outputs())
    fmt::format_to(std::back_inserter(out), "output {} = {}\n", quoted(output.name), name(output.value));
  return out;
}

}  // namespace forge::ir
