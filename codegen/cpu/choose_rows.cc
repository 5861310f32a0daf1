// Steps of the CPU that are not tile programs: attention, and operations on whole rows. Each function copies the node's
// attributes into the body of a plan's step.

#include <algorithm>

#include "codegen/cpu/cpu_chooser.h"
#include "kernels/cpu/attention/attention.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

/// Steps of up to this many tokens split a token's context over threads, in chunks. With more tokens, the tokens alone
/// keep all threads busy.
constexpr std::int64_t kSplitTokensMax = 4;
/// Tokens whose keys are scored at once: enough to keep many threads busy, and the most scratch that they may take.
constexpr std::int64_t kScoredTokensMax = 16, kScoresBytesMax = std::int64_t{64} << 20;

plan::RopeScaling plan_scaling(ir::RopeScaling scaling) {
  switch (scaling) {
    case ir::RopeScaling::kNone:
      return plan::RopeScaling::None;
    case ir::RopeScaling::kLinear:
      return plan::RopeScaling::Linear;
    case ir::RopeScaling::kYarn:
      return plan::RopeScaling::Yarn;
  }
  throw Error(ErrorCode::kInternal, "a RoPE scaling that plans do not have");
}

}  // namespace

/// nodes: the attention, and optionally the quantize of its result. Decode steps may split the context: then every task
/// writes partial results (values, maximum, sum) to scratch, which are merged at the end.
plan::AttentionT CpuChooser::attention(std::span<const ir::NodeId> nodes, passes::Choice& choice) {
  const auto node = nodes[0];
  const auto& a = graph_.attrs_as<ir::AttentionAttrs>(node);
  const auto& bounds = binding_.bounds;
  const bool decodes = bounds.tokens <= bounds.sequences;
  const auto split_most = !split_attention_ ? kSplitTokensMax : *split_attention_ ? bounds.tokens : 0;
  const auto split_tokens = decodes ? std::min(bounds.tokens, split_most) : 0;
  const auto context = static_cast<std::size_t>(bounds.table_blocks) * cpu::kKvBlockTokens;
  const auto partials = static_cast<std::int64_t>(
      cpu::attention_chunks(context) * cpu::attention_partial_floats(static_cast<std::size_t>(value_dim_of(a))) *
      sizeof(float));
  choice.scratch_bytes = split_tokens * a.heads * partials;
  choice.step.label = nodes.size() > 1 ? "attention + quantize" : "attention";
  choice.step.reason = split_tokens > 0 ? "KV split into chunks" : "one task per KV head and tile of queries";
  if (decodes && split_attention_) choice.step.reason += ", as requested";
  plan::AttentionT out;
  out.q = role(graph_.operand(node, 0));
  out.state = role(state(graph_.operand(node, 1), a.layer));
  out.scratch_bytes = choice.scratch_bytes;
  if (out.scratch_bytes > 0) out.partials = role(StepOperands::scratch(0));
  const auto operands = graph_.operands(node);
  if (operands.size() > (a.selected > 0 ? 7 : 6)) out.sinks = role(operands[6]);
  if (a.selected > 0) {
    out.selected_keys = role(operands.back());
    out.lists = static_cast<std::int32_t>(graph_.type(operands.back()).cols() / a.selected);
    out.selected = static_cast<std::int32_t>(a.selected);
    out.selected_block = static_cast<std::int32_t>(a.selected_block);
  }
  out.heads = static_cast<std::int32_t>(a.heads);
  out.kv_heads = static_cast<std::int32_t>(a.kv_heads);
  out.head_dim = static_cast<std::int32_t>(a.head_dim);
  out.value_dim = static_cast<std::int32_t>(value_dim_of(a));
  out.window = static_cast<std::int32_t>(a.window);
  out.chunk = static_cast<std::int32_t>(a.chunk);
  for (std::int64_t head = 0; head < a.heads && a.alibi > 0; ++head)
    out.slopes.push_back(ir::alibi_slope(a.alibi, a.heads, head));
  out.scale = a.scale;
  out.softcap = a.softcap;
  out.split_tokens = static_cast<std::int32_t>(split_tokens);
  if (stores_attention(graph_, nodes)) out.out = role(ir::Value{node, 0});
  if (nodes.size() > 1) out.quantized = role(ir::Value{nodes[1], 0});
  return out;
}

/// Scores of a few tokens at once are in scratch: of up to kScoredTokensMax, less where contexts are long.
plan::SelectKeysT CpuChooser::select_keys(ir::NodeId node, passes::Choice& choice) {
  const auto& a = graph_.attrs_as<ir::SelectKeysAttrs>(node);
  const auto& bounds = binding_.bounds;
  const bool weighted = graph_.operands(node).size() > 6;
  const std::int64_t lists = weighted ? 1 : a.heads;
  const auto positions = bounds.table_blocks * static_cast<std::int64_t>(cpu::kKvBlockTokens);
  const auto token_bytes = lists * 2 * positions * static_cast<std::int64_t>(sizeof(float));
  const auto tokens =
      std::clamp<std::int64_t>(kScoresBytesMax / token_bytes, 1, std::min(bounds.tokens, kScoredTokensMax));
  choice.scratch_bytes = tokens * token_bytes;
  plan::SelectKeysT out;
  out.q = role(graph_.operand(node, 0));
  if (weighted) out.weights = role(graph_.operand(node, 6));
  out.state = role(state(graph_.operand(node, 1), a.layer));
  out.scores = role(StepOperands::scratch(0));
  out.out = role(ir::Value{node, 0});
  out.heads = static_cast<std::int32_t>(a.heads);
  out.head_dim = static_cast<std::int32_t>(a.head_dim);
  out.top_k = static_cast<std::int32_t>(a.top_k);
  out.block = static_cast<std::int32_t>(a.block);
  out.local = static_cast<std::int32_t>(a.local);
  out.tokens = static_cast<std::int32_t>(tokens);
  out.scratch_bytes = choice.scratch_bytes;
  return out;
}

plan::SelfAttentionT CpuChooser::self_attention(ir::NodeId node, passes::Choice& choice) {
  const auto& a = graph_.attrs_as<ir::SelfAttentionAttrs>(node);
  const cpu::KvShape shape{.type = DType::kF16,
                           .heads = static_cast<std::size_t>(a.kv_heads),
                           .head_dim = static_cast<std::size_t>(a.head_dim),
                           .value_dim = static_cast<std::size_t>(a.head_dim)};
  choice.scratch_bytes =
      static_cast<std::int64_t>(cpu::self_attention_blocks(static_cast<std::size_t>(binding_.bounds.tokens),
                                                           static_cast<std::size_t>(binding_.bounds.sequences)) *
                                cpu::kv_block_bytes(shape));
  plan::SelfAttentionT out;
  out.q = role(graph_.operand(node, 0));
  out.k = role(graph_.operand(node, 1));
  out.v = role(graph_.operand(node, 2));
  out.out = role(ir::Value{node, 0});
  out.cache = role(StepOperands::scratch(0));
  out.heads = static_cast<std::int32_t>(a.heads);
  out.kv_heads = static_cast<std::int32_t>(a.kv_heads);
  out.head_dim = static_cast<std::int32_t>(a.head_dim);
  out.window = static_cast<std::int32_t>(a.window);
  for (std::int64_t head = 0; head < a.heads && a.alibi > 0; ++head)
    out.slopes.push_back(ir::alibi_slope(a.alibi, a.heads, head));
  out.scale = a.scale;
  out.cache_bytes = choice.scratch_bytes;
  return out;
}

plan::NormRowsT CpuChooser::norm_rows(ir::NodeId node) {
  const auto& norm = graph_.attrs_as<ir::NormAttrs>(node);
  const auto& type = graph_.type({node, 0});
  plan::NormRowsT out;
  out.rows = row_count(type.shape[0]);
  out.x = role(graph_.operand(node, 0));
  out.weight = role(graph_.operand(node, 1));
  out.out = role(ir::Value{node, 0});
  out.cols = type.cols();
  out.dim = norm.dim;
  out.eps = norm.eps;
  return out;
}

plan::MatchRmsT CpuChooser::match_rms(ir::NodeId node) {
  const auto& type = graph_.type({node, 0});
  plan::MatchRmsT out;
  out.rows = row_count(type.shape[0]);
  out.x = role(graph_.operand(node, 0));
  out.like = role(graph_.operand(node, 1));
  out.out = role(ir::Value{node, 0});
  out.cols = type.cols();
  return out;
}

plan::GaussianTopkT CpuChooser::gaussian_topk(ir::NodeId node) {
  const auto& type = graph_.type({node, 0});
  plan::GaussianTopkT out;
  out.rows = row_count(type.shape[0]);
  out.x = role(graph_.operand(node, 0));
  out.out = role(ir::Value{node, 0});
  out.cols = type.cols();
  out.cutoff = graph_.attrs_as<ir::GaussianTopkAttrs>(node).cutoff;
  return out;
}

plan::RouteT CpuChooser::route(ir::NodeId node) {
  const auto& route = graph_.attrs_as<ir::RouteAttrs>(node);
  const auto logits = graph_.operand(node, 0);
  plan::RouteT out;
  out.rows = row_count(graph_.type(logits).shape[0]);
  out.logits = role(logits);
  if (graph_.operands(node).size() > 1) out.bias = role(graph_.operand(node, 1));
  if (graph_.operands(node).size() > 2) out.factors = role(graph_.operand(node, 2));
  out.chosen = role(ir::Value{node, 0});
  out.shares = role(ir::Value{node, 1});
  out.experts = static_cast<std::int32_t>(graph_.type(logits).cols());
  out.used = static_cast<std::int32_t>(route.used);
  out.groups = static_cast<std::int32_t>(route.groups);
  out.groups_used = static_cast<std::int32_t>(route.groups_used);
  out.group_top = static_cast<std::int32_t>(route.group_top);
  out.gate = route.gate == ir::RouteGate::kSigmoid ? plan::RouteGate::Sigmoid : plan::RouteGate::Softmax;
  out.share = route.share == ir::RoutingNormalization::kChosen ? plan::RoutingNormalization::Chosen
                                                               : plan::RoutingNormalization::All;
  out.scale = route.scale;
  out.experts_per_adjugate = static_cast<std::int32_t>(route.experts_per_adjugate);
  return out;
}

plan::RopeFrequenciesT CpuChooser::rope_frequencies(ir::NodeId node) {
  const auto& rope = graph_.attrs_as<ir::RopeFreqsAttrs>(node);
  plan::RopeFrequenciesT out;
  out.out = role(ir::Value{node, 0});
  if (!graph_.operands(node).empty()) out.factors = role(graph_.operand(node, 0));
  out.dims = rope.dims;
  out.scaling = plan_scaling(rope.scaling);
  out.original_context = rope.original_context;
  out.base = rope.base;
  out.factor = rope.factor;
  out.ext_factor = rope.ext_factor;
  out.beta_fast = rope.beta_fast;
  out.beta_slow = rope.beta_slow;
  return out;
}

plan::RopeAnglesT CpuChooser::rope_angles(ir::NodeId node) {
  const auto& table = graph_.attrs_as<ir::RopeTableAttrs>(node);
  const auto frequencies = graph_.operand(node, 1);
  plan::RopeAnglesT out;
  out.frequencies = role(frequencies);
  out.out = role(ir::Value{node, 0});
  out.dims = 2 * graph_.type(frequencies).cols();
  out.magnitude = table.magnitude;
  out.temperature = table.temperature;
  out.temperature_length = table.temperature_length;
  out.temperature_offset = table.temperature_offset;
  return out;
}

plan::SplitPairsT CpuChooser::split_pairs(ir::NodeId node) {
  const auto& parts = graph_.attrs_as<ir::PartsAttrs>(node);
  invariant(parts.sizes.size() == 2 && parts.sizes[0] == parts.sizes[1], "CG-008",
            "an interleaved split has two parts of equal size");
  const auto x = graph_.operand(node, 0);
  const auto& shape = graph_.type({node, 0}).shape;
  plan::SplitPairsT out;
  out.rows = row_count(graph_.type(x).shape[0]);
  out.slots = shape.size() == 3 ? static_cast<std::int32_t>(shape[1].value) : 1;
  out.x = role(x);
  out.first = role(ir::Value{node, 0});
  out.second = role(ir::Value{node, 1});
  out.unit = parts.unit;
  out.cols = parts.sizes[0];
  return out;
}

/// Here the U rows of a token in a [T, U, N] value, which are contiguous, count as one row.
plan::ArrangeT CpuChooser::arrange(ir::NodeId node) {
  const auto& arrange = graph_.attrs_as<ir::ArrangeAttrs>(node);
  const auto whole_rows = [&](ir::Value value) {
    const auto& type = graph_.type(value);
    if (type.shape.size() < 3) return role(value);
    return role(with_row_bytes(operands_.of(value), row_bytes_of(type.dtype, type.shape[1].value * type.cols())));
  };
  plan::ArrangeT out;
  out.rows = row_count(graph_.type({node, 0}).shape[0]);
  out.out = whole_rows({node, 0});
  out.heads = arrange.heads;
  for (std::size_t i = 0; i < arrange.sources.size(); ++i) {
    auto piece = std::make_unique<plan::ArrangedPieceT>();
    if (arrange.sources[i] >= 0)
      piece->from = whole_rows(graph_.operand(node, static_cast<std::size_t>(arrange.sources[i])));
    piece->begin = arrange.begins[i];
    piece->stride = arrange.strides[i];
    piece->width = arrange.widths[i];
    out.pieces.push_back(std::move(piece));
  }
  return out;
}

}  // namespace forge::codegen
