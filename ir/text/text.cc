#include "ir/text/text.h"

#include <fmt/format.h>

#include <iterator>

#include "ir/text/attrs_io.h"
#include "ir/value_numbers.h"

namespace forge::ir {

/// Values are numbered in the order of printing, so the text does not depend on node ids.
std::string print(const Graph& graph) {
  const ValueNumbers numbers(graph);
  const auto name = [&](Value value) { return fmt::format("%{}", numbers.of(value)); };
  std::string out;
  for (const NodeId node : graph.topological_order()) {
    const auto results = graph.results(node);
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
