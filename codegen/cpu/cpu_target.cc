#include "codegen/cpu/cpu_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/place_weights.h"
#include "codegen/tile_draft.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/route.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

using ir::Op;

constexpr std::int64_t kCpuPrefillChunk = 512;
constexpr std::int64_t kCpuPrefillRows = 64;  // rows whose logits one prefill step can be asked for
constexpr std::int64_t kSplitTokensMax = 4;   // beyond, tokens alone keep the threads busy

std::optional<std::string> cpu_refuses_attention(const ir::Graph& graph, std::span<const ir::NodeId> members) {
  if (members.size() == 1) return std::nullopt;
  if (members.size() > 2 || graph.op(members[0]) != Op::kAttention || graph.op(members[1]) != Op::kQuantize)
    return "attention takes a quantize only";
  const auto& a = graph.attrs_as<ir::AttentionAttrs>(members[0]);
  if (a.heads / a.kv_heads * a.head_dim % kActivationBlock != 0)
    return "the heads of a KV head are no multiple of 32 columns";
  return std::nullopt;
}

/// What kernels have no room for on their stacks.
std::optional<std::string> refuses_size(const ir::Graph& graph, ir::NodeId node) {
  const auto above = [](std::int64_t count, std::size_t most) { return count > static_cast<std::int64_t>(most); };
  if (graph.op(node) == Op::kAttention)
    if (const auto columns = graph.attrs_as<ir::AttentionAttrs>(node).head_dim; above(columns, cpu::kHeadDimMax))
      return fmt::format("its heads have {} columns, and at most {} are possible", columns, cpu::kHeadDimMax);
  std::int64_t experts = 1;
  if (graph.op(node) == Op::kRoute) experts = graph.type(graph.operand(node, 0)).cols();
  if (graph.op(node) == Op::kExpertMatmul) experts = graph.type(graph.operand(node, 1)).shape[0].value;
  if (above(experts, cpu::kExpertsMax))
    return fmt::format("it has {} experts, or heads with weights of their own, and at most {} are possible", experts,
                       cpu::kExpertsMax);
  return std::nullopt;
}

}  // namespace

std::int64_t split_attention_tokens(const ir::Bounds& bounds) {
  return bounds.tokens <= bounds.sequences ? std::min(bounds.tokens, kSplitTokensMax) : 0;
}

CpuTarget::CpuTarget(cpu::CpuClass cpu_class) : name_(fmt::format("cpu-{}", cpu::name(cpu_class))) {}

DType CpuTarget::activation_type(DType weight, std::int64_t k) const {
  return is_float(weight) || k % kActivationBlock != 0 ? DType::kF32 : DType::kQ8A;
}

std::int64_t CpuTarget::glu_interleave(DType, std::int64_t n) const {
  return n % kActivationBlock == 0 ? kActivationBlock : n % kPackedRows == 0 ? kPackedRows : 0;
}

std::optional<std::string> CpuTarget::refuses_group(const ir::Graph& graph, std::span<const ir::NodeId> members) const {
  for (const auto node : members) {
    if (graph.op(node) == Op::kAttention) return cpu_refuses_attention(graph, members);
    const bool tiles =
        graph.op(node) == Op::kSplit || graph.op(node) == Op::kRmsNorm || graph.op(node) == Op::kLayerNorm;
    if (members.size() > 1 && !tiles && stands_alone(graph, node))
      return fmt::format("{} is a step of its own", ir::op_def(graph.op(node)).name);
  }
  if (members.size() == 1 && stands_alone(graph, members[0])) return std::nullopt;
  auto draft = draft_tile_program(graph, members);
  if (!draft) return draft.error();
  return std::nullopt;
}

passes::KernelChoice CpuTarget::choose_kernel(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                              const ir::Bounds& bounds) const {
  if (const auto why = refuses_group(graph, members))
    throw Error(ErrorCode::kInternal, "the CPU has no kernel for a fused group", *why);
  for (const auto member : members)
    if (const auto why = refuses_size(graph, member))
      throw Error(ErrorCode::kModelUnsupported, "the CPU has no kernel for a step of this model", *why);
  const auto node = members[0];
  if (graph.op(node) == Op::kAttention) {
    const auto& a = graph.attrs_as<ir::AttentionAttrs>(node);
    const auto context = static_cast<std::size_t>(bounds.table_blocks) * cpu::kKvBlockTokens;
    const auto partials =
        static_cast<std::int64_t>(cpu::attention_chunks(context) *
                                  cpu::attention_partial_floats(static_cast<std::size_t>(a.head_dim)) * sizeof(float));
    const auto tokens = split_attention_tokens(bounds);
    return {.kernel = members.size() > 1 ? "attention + quantize" : "attention",
            .scratch_bytes = tokens * a.heads * partials,
            .reason = tokens > 0 ? "KV cut into chunks" : "one task a KV head and tile of queries"};
  }
  if (stands_alone(graph, node))
    return {.kernel = std::string(ir::op_def(graph.op(node)).name), .scratch_bytes = 0, .reason = {}};
  return {.kernel = draft_tile_program(graph, members)->label(graph), .scratch_bytes = 0, .reason = {}};
}

std::vector<passes::TargetModel::VariantSpec> CpuTarget::variants(std::int64_t context, std::int64_t batch_max) const {
  const auto blocks = (context + kv_block_tokens() - 1) / kv_block_tokens();
  const auto chunk = std::max(kCpuPrefillChunk, batch_max);
  return {{fmt::format("decode{}", batch_max), {batch_max, batch_max, batch_max, blocks}},
          {fmt::format("prefill{}", chunk), {chunk, std::max(kCpuPrefillRows, batch_max), batch_max, blocks}}};
}

std::vector<passes::TargetModel::VariantSpec> CpuTarget::hidden_variants(std::int64_t context,
                                                                         std::int64_t batch_max) const {
  const auto blocks = (context + kv_block_tokens() - 1) / kv_block_tokens();
  const auto chunk = std::max(kCpuPrefillChunk, batch_max);
  return {{fmt::format("hidden{}", chunk), {chunk, chunk, batch_max, blocks}}};
}

}  // namespace forge::codegen
