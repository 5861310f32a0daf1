#include "codegen/gpu/gpu_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/gpu/epilogue_source.h"
#include "codegen/gpu/matmul_config.h"
#include "codegen/gpu/tile_sizes.h"
#include "codegen/tile_draft.h"
#include "kernels/quant/planes.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

using ir::Op;

constexpr std::int64_t kGpuPrefillChunk = 512, kLongPrefillChunk = 2048, kGpuPrefillRows = 64;
constexpr std::int64_t kHeadsPerBlockMax = 2;  // a block with more takes longer than blocks that share keys
constexpr std::int64_t kAttentionBlocksWanted = 256, kAttentionBlocksWantedNvidia = 384, kWorkersMax = 32;
constexpr std::int64_t kKeysPerWorker = 16384;  // elements of keys: with fewer, combining takes longer than it saves
constexpr std::int64_t kHeadDimMax = 256;

std::optional<std::string> gpu_refuses_attention(const ir::Graph& graph, std::span<const ir::NodeId> members) {
  const auto& a = graph.attrs_as<ir::AttentionAttrs>(members[0]);
  if (a.head_dim % 8 != 0 || a.head_dim > kHeadDimMax)
    return fmt::format("head_dim {} is no multiple of 8 up to {}", a.head_dim, kHeadDimMax);
  if (members.size() == 1) return std::nullopt;
  if (members.size() > 2 || graph.op(members[1]) != Op::kQuantize) return "attention takes a quantize only";
  if (a.head_dim % 16 != 0 || a.heads * a.head_dim % kActivationBlock != 0)
    return "a head is no whole quantised blocks";
  return std::nullopt;
}

/// Loading puts whole experts one behind the other, gate and up by turns or not merged at all.
std::optional<std::string> refuses_expert_weight(const ir::Graph& graph, ir::Value weight) {
  if (graph.op(weight.node) == Op::kConcatRows) {
    if (graph.attrs_as<ir::PartsAttrs>(weight.node).unit == 0) return "merged experts' weights do not alternate";
    for (const auto part : graph.operands(weight.node))
      if (auto why = refuses_expert_weight(graph, part)) return why;
    return std::nullopt;
  }
  if (graph.op(weight.node) != Op::kWeight) return "experts' weights are no tensors of the file";
  if (graph.attrs_as<ir::WeightAttrs>(weight.node).name.find(ir::kEachSlice) != std::string::npos)
    return "experts in tensors of their own have no GPU kernels yet";
  return std::nullopt;
}

std::optional<std::string> refuses_route(const ir::Graph& graph, ir::NodeId node) {
  constexpr std::int64_t kLanes = 32;  // of the smallest wave
  const auto& route = graph.attrs_as<ir::RouteAttrs>(node);
  if (route.used > kLanes || route.groups > kLanes)
    return fmt::format("{} experts of a token in {} groups are more than a wave's lanes", route.used, route.groups);
  return std::nullopt;
}

/// A matmul, embedding or row source has a kernel for its weight and shape.
std::optional<std::string> refuses_source(const ir::Graph& graph, const TileDraft& draft) {
  if (draft.source == ir::kNoNode) return std::nullopt;
  const auto op = graph.op(draft.source);
  if (op != Op::kMatmul && op != Op::kExpertMatmul && op != Op::kEmbed) return std::nullopt;
  if (op == Op::kExpertMatmul)
    if (auto why = refuses_expert_weight(graph, graph.operand(draft.source, 1))) return why;
  const auto& weight = graph.type(graph.operand(draft.source, op == Op::kEmbed ? 0 : 1));
  if (!quant::has_planes(weight.dtype))
    return fmt::format("there is no GPU kernel for weights of type {}", dtype_name(weight.dtype));
  const std::int64_t unit = is_float(weight.dtype) ? 8 : kActivationBlock;
  if (weight.cols() % unit != 0) return fmt::format("{} columns are no multiple of {}", weight.cols(), unit);
  return std::nullopt;
}

std::optional<AttentionConfig::Tiles> choose_attention_tiles(const GpuTarget& target,
                                                             const ir::AttentionAttrs& attention,
                                                             const ir::Bounds& bounds, const Tuning& tuning) {
  constexpr std::int64_t kLanesWanted = 256, kHeadDimMost = 128, kLongChunkDim = 64;
  if (!takes_matrix_instructions(target, bounds.tokens, tuning) || bounds.tokens <= bounds.sequences ||
      attention.head_dim % 32 != 0 || attention.head_dim > kHeadDimMost)
    return std::nullopt;
  AttentionConfig::Tiles out;
  const auto group = attention.heads / attention.kv_heads, waves = kLanesWanted / target.wave;
  for (std::int64_t heads = 1; heads <= std::min(group, waves); ++heads)
    if (group % heads == 0) out.heads = heads;
  const auto tokens = std::max<std::int64_t>(1, waves / out.heads) * kTileRows;
  out.tokens = std::clamp(tuned(tuning, "attention_tokens", tokens) / kTileRows * kTileRows, kTileRows, tokens);
  out.chunk = attention.head_dim <= kLongChunkDim && tuned(tuning, "attention_chunk", 64) >= 64 ? 64 : 32;
  return out;
}

}  // namespace

DType GpuTargetModel::activation_type(DType weight, std::int64_t k) const {
  return is_float(weight) || k % kActivationBlock != 0 ? DType::kF32 : DType::kQ8A;
}

std::int64_t GpuTargetModel::glu_interleave(DType, std::int64_t n) const {
  return n % kGluUnit == 0 ? kGluUnit : 0;
}

bool GpuTargetModel::merges_columns(std::int64_t n) const {
  return n % kResultColumns == 0;
}

std::optional<std::string> GpuTargetModel::refuses_group(const ir::Graph& graph,
                                                         std::span<const ir::NodeId> members) const {
  for (const auto node : members) {
    if (graph.op(node) == Op::kExpertSum && node != members[0]) return "experts are summed by a step of their own";
    if (graph.op(node) == Op::kRoute)
      if (auto why = refuses_route(graph, node)) return why;
    if (graph.op(node) == Op::kArrange) return "latent attention has no GPU kernels yet";
    if (graph.op(node) == Op::kAttention) return gpu_refuses_attention(graph, members);
    if (members.size() > 1 && graph.op(node) != Op::kSplit && stands_alone(graph, node))
      return fmt::format("{} is a step of its own", ir::op_def(graph.op(node)).name);
  }
  if (members.size() == 1 && stands_alone(graph, members[0])) return std::nullopt;
  const auto draft = draft_tile_program(graph, members);
  if (!draft) return draft.error();
  if (auto why = refuses_source(graph, *draft)) return why;
  if (draft->slots > 1 && (draft->source == ir::kNoNode || graph.op(draft->source) != Op::kExpertMatmul))
    return "rows of experts without their matmul have no GPU kernels";
  const auto shape = epilogue_shape(graph, *draft);
  if (!shape) return shape.error();
  return std::nullopt;
}

AttentionConfig choose_attention(const GpuTarget& target, const ir::AttentionAttrs& attention, const ir::Bounds& bounds,
                                 const Tuning& tuning) {
  AttentionConfig out;
  const auto group = attention.heads / attention.kv_heads;
  out.heads_per_block = group;
  const auto heads_max = tuned_positive(tuning, "heads", kHeadsPerBlockMax);
  for (std::int64_t parts = 2; out.heads_per_block > heads_max; ++parts)
    if (group % parts == 0) out.heads_per_block = group / parts;
  const auto jobs = attention.heads / out.heads_per_block;
  const auto rows = bounds.tokens;
  // clang holds more in registers than NVIDIA's compiler does. Small blocks are there sooner, between others' blocks.
  const bool amd = target.vendor == driver::Vendor::kAmd, many = rows > kTokenTile;
  out.waves = tuned_positive(tuning, "attention_waves", (amd || many ? 256 : 128) / target.wave);
  out.team_tokens = tuned_positive(tuning, "team_tokens", amd || many ? 4 : 8);
  out.tokens_per_worker = tuned_positive(tuning, "worker_tokens", kKeysPerWorker / attention.head_dim);
  const auto parts = (bounds.table_blocks * kGpuKvBlockTokens + out.tokens_per_worker - 1) / out.tokens_per_worker;
  const auto workers = many ? 1 : (amd ? kAttentionBlocksWanted : kAttentionBlocksWantedNvidia) / (jobs * rows);
  out.workers = std::clamp<std::int64_t>(tuned(tuning, "workers", workers), 1, std::min(kWorkersMax, parts));
  out.tiles = choose_attention_tiles(target, attention, bounds, tuning);
  if (out.tiles) {
    out.workers = 1;
    out.waves = out.tiles->heads * out.tiles->tokens / kTileRows;
    out.blocks = (rows + out.tiles->tokens - 1) / out.tiles->tokens * (attention.heads / out.tiles->heads);
  }
  out.blocks += rows * jobs * out.workers;
  if (out.workers > 1)
    out.scratch_bytes = rows * jobs * out.workers * out.heads_per_block * (attention.head_dim + 2) * 4;
  return out;
}

void AttentionConfig::write_to(ConfigText& out) const {
  out.number("kHeadsPerBlock", heads_per_block)
      .number("kWorkers", workers)
      .number("kTokensPerWorker", tokens_per_worker)
      .number("kWaves", waves)
      .number("kTeamTokens", team_tokens);
  if (tiles) out.number("kTileHeads", tiles->heads).number("kTileTokens", tiles->tokens).number("kChunk", tiles->chunk);
}

passes::KernelChoice GpuTargetModel::choose_kernel(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                                   const ir::Bounds& bounds) const {
  if (const auto why = refuses_group(graph, members))
    throw Error(ErrorCode::kModelUnsupported,
                fmt::format("{} has no kernel for a step of this model ({})", target_.name,
                            ir::op_def(graph.op(members[0])).name),
                *why, "run it on the CPU: --device cpu");
  const auto node = members[0];
  if (graph.op(node) == Op::kAttention) {
    const auto config = choose_attention(target_, graph.attrs_as<ir::AttentionAttrs>(node), bounds, tuning_);
    return {.kernel = members.size() > 1 ? "attention + quantize" : "attention",
            .scratch_bytes = config.scratch_bytes,
            .reason = fmt::format("{} blocks share the context of a row", config.workers)};
  }
  if (stands_alone(graph, node))
    return {.kernel = std::string(ir::op_def(graph.op(node)).name), .scratch_bytes = 0, .reason = {}};
  return {.kernel = draft_tile_program(graph, members)->label(graph), .scratch_bytes = 0, .reason = {}};
}

std::vector<passes::TargetModel::VariantSpec> GpuTargetModel::variants(std::int64_t context,
                                                                       std::int64_t batch_max) const {
  const auto blocks = (context + kGpuKvBlockTokens - 1) / kGpuKvBlockTokens;
  std::vector<VariantSpec> out;
  for (std::int64_t batch = 1;; batch *= 2) {
    out.push_back({fmt::format("decode{}", batch), {batch, batch, batch, blocks}});
    if (batch >= batch_max) break;
  }
  // A short prompt is a tile of tokens: it need not pass by all the tiles of a long one.
  const auto sequences = out.back().bounds.sequences;
  if (sequences < kTokenTile)
    out.push_back({fmt::format("prefill{}", kTokenTile), {kTokenTile, kTokenTile, sequences, blocks}});
  const auto chunk = std::max(kGpuPrefillChunk, (sequences + kTokenTile - 1) / kTokenTile * kTokenTile);
  const auto push_prefill = [&](std::int64_t tokens) {
    out.push_back(
        {fmt::format("prefill{}", tokens), {tokens, std::max(kGpuPrefillRows, sequences), sequences, blocks}});
  };
  push_prefill(chunk);
  // Cards with many units have work for all of them in large tiles only where a step has many tokens.
  const bool many_units = target_.matrix == MatrixKind::kMma || target_.matrix == MatrixKind::kMfma;
  const auto longest = std::min(tuned_positive(tuning_, "chunk", many_units ? kLongPrefillChunk : chunk),
                                context / kTokenTile * kTokenTile);
  if (longest > chunk && takes_matrix_instructions(target_, longest, tuning_)) push_prefill(longest);
  return out;
}

bool has_launch(const ir::Graph& graph, const passes::Step& step) {
  const auto node = step.nodes.front();
  return graph.op(node) != Op::kRopeFreqs || graph.operands(node).empty();
}

}  // namespace forge::codegen
