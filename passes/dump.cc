#include "passes/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "ir/text/dot.h"
#include "ir/text/text.h"
#include "ir/value_numbers.h"
#include "passes/passes.h"
#include "support/error.h"

namespace forge::passes {
namespace {

using ir::NodeId;
using ir::Value;

/// Arena size relative to the lower bound; 1 is optimal.
double arena_ratio(const Variant& variant) {
  return variant.arena_bound_bytes == 0 ? 1.0 : double(variant.arena_bytes) / double(variant.arena_bound_bytes);
}

/// Appends one step as comments: kernel and cost, nodes, scratch, then the buffers that start here and the values that
/// overwrite an operand in place.
void write_step(std::string& out, const Program& program, const Variant& variant, std::size_t number,
                const ir::ValueNumbers& numbers) {
  const Step& step = variant.steps[number];
  const plan::StepT& chosen = step.choice.step;
  const auto name = [&](Value value) { return fmt::format("%{}", numbers.of(value)); };
  const ir::Graph& graph = program.graph;
  const auto to = std::back_inserter(out);
  const std::string layer = chosen.layer == ir::kNoLayer ? std::string("-") : std::to_string(chosen.layer);
  fmt::format_to(to, "// step {} layer {}: {}\n//   reads {} of weights, moves {} of activations, {:.3g} MFLOP", number,
                 layer, chosen.label, bytes_text(chosen.weight_bytes), bytes_text(chosen.activation_bytes),
                 double(chosen.flops) * 1e-6);
  if (!chosen.reason.empty()) fmt::format_to(to, "; {}", chosen.reason);
  for (const Choice& next : step.choice.then) fmt::format_to(to, "\n//   then: {}", next.step.label);
  out += "\n//   nodes";
  for (const NodeId node : step.nodes) fmt::format_to(to, " {}={}", name({node, 0}), ir::op_def(graph.op(node)).name);
  out += '\n';
  if (step.choice.scratch_bytes > 0)
    fmt::format_to(to, "//   scratch at {:#x} +{}\n", step.scratch_offset, step.choice.scratch_bytes);
  for (const Buffer& buffer : variant.buffers) {
    if (buffer.first == static_cast<std::int32_t>(number))
      fmt::format_to(to, "//   defines {} {} at {:#x} +{}, live until step {}\n", name(buffer.value),
                     graph.type(buffer.value).text(), buffer.offset, buffer.bytes, buffer.last);
    for (const Value& alias : buffer.aliases)
      if (std::ranges::find(step.nodes, alias.node) != step.nodes.end())
        fmt::format_to(to, "//   defines {} {} in place of {} at {:#x}, live until step {}\n", name(alias),
                       graph.type(alias).text(), name(buffer.value), buffer.offset, buffer.last);
  }
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array kUnits{"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string schedule_text(const Program& program, const Variant& variant) {
  const ir::ValueNumbers numbers(program.graph);
  const ir::Bounds& bounds = variant.bounds;
  std::int64_t weight_bytes = 0;
  for (const Step& step : variant.steps) weight_bytes += step.choice.step.weight_bytes;
  std::string out = fmt::format(
      "// variant {}: T={} R={} B={} P={}, {} steps\n// arena {} bytes ({}), bound {}, ratio {:.3f}; one "
      "forward reads {} of weights\n",
      variant.name, bounds.tokens, bounds.rows, bounds.sequences, bounds.table_blocks, variant.steps.size(),
      variant.arena_bytes, bytes_text(variant.arena_bytes), variant.arena_bound_bytes, arena_ratio(variant),
      bytes_text(weight_bytes));
  for (std::size_t step = 0; step < variant.steps.size(); ++step) write_step(out, program, variant, step, numbers);
  return out + ir::print(program.graph);
}

std::int32_t middle_layer(const ir::Graph& graph) {
  std::int32_t last = ir::kNoLayer;
  for (const NodeId node : graph.nodes()) last = std::max(last, graph.layer(node));
  return last == ir::kNoLayer ? last : (last + 1) / 2;
}

std::string schedule_dot(const Program& program, const Variant& variant, std::int32_t layer) {
  std::map<std::uint32_t, std::size_t> step_of_group;
  std::map<NodeId, std::size_t> single;
  for (std::size_t step = 0; step < variant.steps.size(); ++step) {
    const NodeId first = variant.steps[step].nodes.front();
    if (const auto group = program.graph.group(first); group != ir::kNoGroup)
      step_of_group[group] = step;
    else
      single[first] = step;
  }
  const RowLayout layout(program.graph, variant.buffers);
  ir::DotOptions options{.only_layer = layer};
  options.note = [&](Value value) {
    std::string text;
    if (const auto found = single.find(value.node); found != single.end() && value.result == 0)
      text = fmt::format("step {} ", found->second);
    if (const auto at = layout.buffer_of(value); at >= 0) {
      const Buffer& buffer = variant.buffers[static_cast<std::size_t>(at)];
      text += fmt::format("arena {:#x} +{}{}", buffer.offset, buffer.bytes, buffer.value == value ? "" : " (in place)");
    }
    return text;
  };
  options.group_note = [&](std::uint32_t group) {
    const auto found = step_of_group.find(group);
    if (found == step_of_group.end()) return std::string();
    const plan::StepT& step = variant.steps[found->second].choice.step;
    return fmt::format("step {}: {}, {} of weights", found->second, step.label, bytes_text(step.weight_bytes));
  };
  return ir::dot(program.graph, options);
}

void write_dump(const std::string& dir, std::size_t number, std::string_view name, std::string_view suffix,
                std::string_view text) {
  const auto path = std::filesystem::path(dir) / fmt::format("{:02}-{}.{}", number, name, suffix);
  std::error_code failed;
  std::filesystem::create_directories(dir, failed);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (failed || !file)
    throw Error(ErrorCode::kIo, "a dump cannot be written to " + printable(path.string(), 300),
                failed ? failed.message() : std::string(), "name a folder that you may write to");
}

}  // namespace forge::passes
