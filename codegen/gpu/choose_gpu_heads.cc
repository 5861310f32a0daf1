// Steps of one token that are joined with the next one, in one launch: attention that makes its own heads first
// (kernels/gpu/attention_heads.h), and a matmul that goes on with what follows the gathering of rows, of which there is
// one.

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "codegen/gpu/gpu_chooser.h"
#include "codegen/gpu/heads_draft.h"
#include "passes/passes.h"

namespace forge::codegen {

using ir::Op;
using plan::TileOpKind;

namespace {

/// True if nothing but the attention reads what the step makes, besides the KV cache.
bool makes_heads_only(const ir::Graph& graph, std::span<const ir::NodeId> step, ir::NodeId attention) {
  for (const auto node : step)
    for (std::uint32_t i = 0; i < graph.results(node).size(); ++i) {
      const ir::Value value{node, i};
      if (graph.type(value).is_state()) continue;
      if (graph.is_output(value)) return false;
      const bool is_query = value == graph.operand(attention, 0);
      for (const ir::Use& use : graph.uses(value))
        if (is_query ? use.node != attention : std::ranges::find(step, use.node) == step.end()) return false;
    }
  return true;
}

/// The nodes of a step and of the next one.
std::vector<ir::NodeId> joined(std::span<const ir::NodeId> step, std::span<const ir::NodeId> next) {
  std::vector<ir::NodeId> nodes(step.begin(), step.end());
  nodes.insert(nodes.end(), next.begin(), next.end());
  return nodes;
}

/// Notes where a section's rows go; false if one goes anywhere but to the attention or the KV cache.
bool note_sinks(const DraftSection& section, ir::Value query, HeadsDraft& out) {
  for (const auto& op : section.ops) {
    if (op.kind < TileOpKind::kStore) continue;
    if (op.kind == TileOpKind::kStoreK) {
      out.keys = op.origin;
    } else if (op.kind == TileOpKind::kStoreV) {
      out.values = op.origin;
    } else if (op.kind == TileOpKind::kStore && op.operand == query) {
      out.query = op.origin;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<HeadsDraft> draft_heads(const ir::Graph& graph, std::span<const ir::NodeId> step,
                                      std::span<const ir::NodeId> next, const KvFormat& kv, int wave) {
  const auto attention = next.front();
  if (graph.op(attention) != Op::kAttention || graph.op(step.front()) == Op::kAttention) return std::nullopt;
  const auto& a = graph.attrs_as<ir::AttentionAttrs>(attention);
  if (a.selected > 0 || value_dim_of(a) != a.head_dim || a.head_dim % wave != 0 ||
      kv_state_of(graph, graph.operand(attention, 1)).shared_row == 1 || !makes_heads_only(graph, step, attention))
    return std::nullopt;
  auto drafted = draft_step(graph, step, kv);
  if (!drafted || drafted->routed || drafted->halves || drafted->shape.norm_columns != a.head_dim) return std::nullopt;
  HeadsDraft out{.draft = std::move(drafted->draft)};
  if (out.draft.source != ir::kNoNode || out.draft.input.node == ir::kNoNode || out.draft.slots != 1)
    return std::nullopt;
  for (const auto& section : out.draft.sections)
    if (!note_sinks(section, graph.operand(attention, 0), out)) return std::nullopt;
  return out.query >= 0 ? std::optional(std::move(out)) : std::nullopt;
}

bool gathers_only_row(const ir::Graph& graph, std::span<const ir::NodeId> step, std::span<const ir::NodeId> next,
                      const KvFormat& kv) {
  const auto gather = next.front();
  if (graph.op(gather) != Op::kGatherRows || !passes::is_matmul(graph, step.front()) ||
      std::ranges::find(step, graph.operand(gather, 0).node) == step.end())
    return false;
  const auto drafted = draft_step(graph, joined(step, next), kv, kOneRowRules);
  return drafted && !drafted->routed;
}

std::optional<passes::Choice> GpuChooser::choose_joined(std::span<const ir::NodeId> step,
                                                        std::span<const ir::NodeId> next) {
  if (graph_.op(next.front()) == Op::kGatherRows) {
    auto choice = choose(joined(step, next), kOneRowRules);
    return choice ? std::optional(std::move(*choice)) : std::nullopt;
  }
  const auto heads = draft_heads(graph_, step, next, kv_, target_.wave);
  if (!heads || !attention(next, &*heads).empty()) return std::nullopt;
  out_.step.label = heads->draft.label(graph_) + " + " + out_.step.label;
  return std::move(out_);
}

/// The heads of an attention in its kernel: the epilogue of their columns, and where they are.
void GpuChooser::add_heads(const HeadsDraft& heads, ir::Value query, KernelText& text,
                           std::vector<PointerArgument>& arguments) const {
  auto context = epilogue_context();
  context.kept = query;
  auto epilogue = generate_epilogue(graph_, heads.draft, context, "Heads");
  text.more_header = "kernels/gpu/attention_heads.h";
  text.kernel = fmt::format("HeadsBefore<{}>::Kernel", text.kernel);
  text.before += epilogue.text + "\n";
  text.config.use("Heads", "gpu::Heads")
      .number("kQueryColumn", heads.query)
      .number("kKeyColumn", heads.keys)
      .number("kValueColumn", heads.values);
  std::vector<PointerArgument> all{{.kind = PointerArgument::Kind::kValue, .value = heads.draft.input}};
  all.insert(all.end(), epilogue.pointers.begin(), epilogue.pointers.end());
  // The attention's own arguments never read the query's place, which has none in the arena.
  for (auto& argument : arguments)
    if (argument.value == query) argument = all.front();
  all.insert(all.end(), arguments.begin(), arguments.end());
  arguments = std::move(all);
}

}  // namespace forge::codegen
