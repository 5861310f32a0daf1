#include "tools/viz/plan_dot.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "ir/text/dot.h"
#include "passes/dump.h"
#include "support/error.h"

namespace forge::tools {
namespace {

std::string escaped(std::string_view text) {
  return ir::dot_escaped(printable(text));
}

/// A value in the arena: the step that produces it, and the label of its arrow.
struct Made {
  std::size_t step = 0;
  std::string label;
};

class StepDrawer {
 public:
  StepDrawer(const plan::VariantT& variant, std::int32_t layer) : variant_(variant), layer_(layer) {
    for (const auto& buffer : variant.buffers)
      for (std::size_t i = 0; i < buffer->values.size(); ++i) {
        const auto& value = *buffer->values[i];
        made_[value.number] = {value.step, fmt::format("%{} {}\\narena {:#x} +{}{}", value.number, escaped(value.text),
                                                       buffer->offset, buffer->bytes, i > 0 ? " (in place)" : "")};
      }
  }

  std::string run() {
    out_ =
        "digraph forge {\n"
        "  graph [rankdir=TB fontname=\"Helvetica\" ranksep=0.35 nodesep=0.25];\n"
        "  node [shape=box style=\"rounded,filled\" fillcolor=\"#ffffff\" fontname=\"Helvetica\" fontsize=10];\n"
        "  edge [fontname=\"Helvetica\" fontsize=8 color=\"#606060\"];\n";
    for (std::size_t i = 0; i < variant_.steps.size(); ++i) arrows_of(i);
    std::map<std::int32_t, std::string> boxes;  // by layer
    for (std::size_t i = 0; i < variant_.steps.size(); ++i)
      if (is_drawn(i) || beside_.contains(i)) boxes[variant_.steps[i]->layer] += box_of(i);
    for (const auto& [layer, text] : boxes) {
      if (layer < 0) {
        out_ += text;
        continue;
      }
      out_ += fmt::format(
          "  subgraph cluster_layer_{0} {{\n    label=\"layer {0}\"; style=dashed; color=\"#909090\";\n{1}  }}\n",
          layer, text);
    }
    return out_ + arrows_ + "}\n";
  }

 private:
  [[nodiscard]] bool is_drawn(std::size_t step) const {
    return layer_ == kAllLayers || variant_.steps[step]->layer == layer_;
  }

  [[nodiscard]] std::string box_of(std::size_t i) const {
    const auto& step = *variant_.steps[i];
    auto label = fmt::format("step {}: {}", i, escaped(step.label));
    if (!step.reason.empty()) label += fmt::format("\\n({})", escaped(step.reason));
    if (step.weight_bytes > 0) label += fmt::format("\\n{} of weights", passes::bytes_text(step.weight_bytes));
    return fmt::format("    s{} [label=\"{}\"{}{}];\n", i, label, step.weight_bytes > 0 ? " fillcolor=\"#d6e4f7\"" : "",
                       is_drawn(i) ? "" : " style=\"rounded,dashed\"");
  }

  void arrow(const std::string& from, const std::string& to, std::string_view label) {
    arrows_ += fmt::format("  {} -> {} [label=\"{}\"];\n", from, to, label);
  }

  /// Adds an arrow for each value that the step reads, once per value. Values that it writes get theirs from the
  /// readers.
  void arrows_of(std::size_t i) {
    std::set<std::uint32_t> seen;
    std::set<std::string> caches;
    for (const auto& operand : variant_.steps[i]->operands) {
      const auto here = fmt::format("s{}", i);
      if (operand.space() == plan::Space::Kv && is_drawn(i)) {
        if (const auto name = fmt::format("kv{}", operand.index()); caches.insert(name).second)
          arrows_ += fmt::format(
              "  {0} [label=\"KV group {1}\" shape=cylinder fillcolor=\"#f8d7da\"];\n  {0} -> {2} [dir=both];\n", name,
              operand.index(), here);
      }
      const auto found = made_.find(operand.value());
      if (found == made_.end() || found->second.step == i || !seen.insert(operand.value()).second) continue;
      const auto maker = found->second.step;
      if (!is_drawn(i) && !is_drawn(maker)) continue;
      if (!is_drawn(i)) beside_.insert(i);
      if (!is_drawn(maker)) beside_.insert(maker);
      arrow(fmt::format("s{}", maker), here, found->second.label);
    }
  }

  const plan::VariantT& variant_;
  std::int32_t layer_;
  std::map<std::uint32_t, Made> made_;
  std::set<std::size_t> beside_;  ///< steps of other layers that exchange values with the drawn ones
  std::string out_, arrows_;
};

}  // namespace

std::string plan_dot(const plan::VariantT& variant, std::int32_t layer) {
  return StepDrawer(variant, layer).run();
}

}  // namespace forge::tools
