#include "codegen/cpu/cpu_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/cpu/cpu_chooser.h"
#include "codegen/cpu/lower_cpu.h"
#include "codegen/place_weights.h"
#include "codegen/tile_draft.h"
#include "kernels/cpu/route.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

using ir::Op;

constexpr std::int64_t kCpuPrefillChunk = 512;
constexpr std::int64_t kCpuPrefillRows = 64;  // most rows of logits of a prefill step
/// Prompt tokens in a step. Prompts that share a step finish together; with smaller steps the first of them finish
/// sooner. On CPUs a step's time is proportional to its tokens, so small steps cost little (SmolLM2, 16 clients at
/// once: first token after 59 ms with 128, 47 ms with 64).
constexpr std::int32_t kCpuPromptTokens = 64;
constexpr std::int32_t kCpuLongPrompt =
    128;  // prompts from this length on use matrix tiles; shorter ones would not gain
constexpr DType kCpuKvTypes[] = {DType::kF16, DType::kQ8_0};

/// Why these nodes are not an attention step; nothing if they are.
std::optional<std::string> cpu_refuses_attention(const ir::Graph& graph, std::span<const ir::NodeId> members) {
  if (members.size() == 1) return std::nullopt;
  if (members.size() > 2 || graph.op(members[0]) != Op::kAttention || graph.op(members[1]) != Op::kQuantize)
    return "attention can only be fused with a quantize";
  const auto& a = graph.attrs_as<ir::AttentionAttrs>(members[0]);
  if (a.heads / a.kv_heads * value_dim_of(a) % kActivationUnit != 0)
    return "the query heads of a KV head are not a multiple of 32 columns";
  return std::nullopt;
}

/// Refuses sizes beyond the fixed arrays on the kernels' stacks.
std::optional<std::string> refuses_size(const ir::Graph& graph, ir::NodeId node) {
  const auto above = [](std::int64_t count, std::size_t most) { return count > static_cast<std::int64_t>(most); };
  if (graph.op(node) == Op::kAttention)
    for (const auto& a = graph.attrs_as<ir::AttentionAttrs>(node); const auto columns : {a.head_dim, value_dim_of(a)})
      if (above(columns, cpu::kHeadDimMax))
        return fmt::format("its heads have {} columns, and at most {} are possible", columns, cpu::kHeadDimMax);
  if (graph.op(node) == Op::kSelectKeys)
    if (const auto columns = graph.attrs_as<ir::SelectKeysAttrs>(node).head_dim; above(columns, cpu::kHeadDimMax))
      return fmt::format("its index heads have {} columns, and at most {} are possible", columns, cpu::kHeadDimMax);
  if (graph.op(node) == Op::kSelfAttention)
    if (const auto columns = graph.attrs_as<ir::SelfAttentionAttrs>(node).head_dim; above(columns, cpu::kHeadDimMax))
      return fmt::format("its heads have {} columns, and at most {} are possible", columns, cpu::kHeadDimMax);
  if (above(state_rows_of(graph, node), cpu::kStateRowsMax))
    return fmt::format("its state has {} rows a head, and at most {} are possible", state_rows_of(graph, node),
                       cpu::kStateRowsMax);
  if (graph.op(node) == Op::kShortConv && above(graph.type(graph.operand(node, 1)).cols(), cpu::kConvTapsMax))
    return fmt::format("its kernel has {} taps, and at most {} are possible", graph.type(graph.operand(node, 1)).cols(),
                       cpu::kConvTapsMax);
  std::int64_t experts = 1;
  if (graph.op(node) == Op::kRoute) experts = graph.type(graph.operand(node, 0)).cols();
  if (graph.op(node) == Op::kExpertMatmul) experts = graph.type(graph.operand(node, 1)).shape[0].value;
  if (above(experts, cpu::kExpertsMax))
    return fmt::format("it has {} experts, and at most {} are possible", experts, cpu::kExpertsMax);
  return std::nullopt;
}

/// Refuses groups that cannot be a step, whatever tile program they would form.
std::optional<std::string> cpu_refuses_members(const ir::Graph& graph, std::span<const ir::NodeId> members) {
  for (const auto node : members) {
    if (graph.op(node) == Op::kAttention) return cpu_refuses_attention(graph, members);
    if (graph.op(node) == Op::kShortConv) return refuses_conv(graph, members, /*parameters_max=*/0);
    const bool tiles =
        graph.op(node) == Op::kSplit || graph.op(node) == Op::kRmsNorm || graph.op(node) == Op::kLayerNorm;
    if (members.size() > 1 && !tiles && stands_alone(graph, node))
      return fmt::format("{} is a step of its own", ir::op_def(graph.op(node)).name);
  }
  return std::nullopt;
}

}  // namespace

CpuTarget::CpuTarget(cpu::CpuClass cpu_class, const TargetOptions& options)
    : class_(cpu_class),
      name_(cpu::target_name(cpu_class)),
      kv_type_(options.kv_type),
      split_attention_(options.attention.split),
      deterministic_(options.deterministic) {}

// Quantised weights are multiplied with quantised activations (integer dots), floats with f32. Rows must be whole
// blocks.
DType CpuTarget::activation_type(DType weight, std::int64_t k, bool) const {
  return is_float(weight) || k % kActivationUnit != 0 ? DType::kF32 : DType::kQ8A_32;
}

// Preferably 32 columns, so that a tile with gate and up gives a whole quantised block; else whole groups of packed
// rows.
std::int64_t CpuTarget::glu_interleave(DType, std::int64_t n) const {
  return n % kActivationUnit == 0 ? kActivationUnit : n % kPackedRows == 0 ? kPackedRows : 0;
}

std::optional<std::string> CpuTarget::group_refusal(const ir::Graph& graph, std::span<const ir::NodeId> members) const {
  if (auto why = cpu_refuses_members(graph, members)) return why;
  if (graph.op(members[0]) == Op::kAttention || graph.op(members[0]) == Op::kShortConv ||
      (members.size() == 1 && stands_alone(graph, members[0])))
    return std::nullopt;
  auto draft = draft_tile_program(graph, members);
  if (!draft) return draft.error();
  for (const auto& section : draft->sections)
    if (std::ranges::any_of(section.ops, [](const auto& op) { return op.gated; }))
      return "the tile is not the first operand";
  return std::nullopt;
}

std::expected<passes::Choice, passes::Refusal> CpuTarget::choose(const ir::Graph& graph,
                                                                 std::span<const ir::NodeId> members,
                                                                 const passes::Binding& binding) const {
  auto why = cpu_refuses_members(graph, members);
  for (const auto member : members)
    if (!why) why = refuses_size(graph, member);
  if (!why) {
    auto choice = CpuChooser(graph, binding, split_attention_).choose(members);
    if (choice) return std::move(*choice);
    why = choice.error();
  }
  return std::unexpected(passes::Refusal{.why = std::move(*why), .fix = {}});
}

// Two variants: decode with one token per sequence, and prefill with up to 512 tokens.
std::vector<passes::Target::VariantSpec> CpuTarget::variants(std::int64_t context, std::int64_t batch_max) const {
  const auto blocks = (context + kv_block_tokens() - 1) / kv_block_tokens();
  const auto chunk = std::max(kCpuPrefillChunk, batch_max);
  return {{fmt::format("decode{}", batch_max), {batch_max, batch_max, batch_max, blocks}},
          {fmt::format("prefill{}", chunk), {chunk, std::max(kCpuPrefillRows, batch_max), batch_max, blocks}}};
}

std::vector<passes::Target::VariantSpec> CpuTarget::embedding_variants(std::int64_t context,
                                                                       std::int64_t batch_max) const {
  const auto blocks = (context + kv_block_tokens() - 1) / kv_block_tokens();
  const auto chunk = std::max(kCpuPrefillChunk, batch_max);
  return {{fmt::format("hidden{}", chunk), {chunk, chunk, batch_max, blocks}}};
}

// Short texts, and up to a whole context.
std::vector<passes::Target::VariantSpec> CpuTarget::encoder_variants(std::int64_t context,
                                                                     std::int64_t batch_max) const {
  const auto blocks = (context + kv_block_tokens() - 1) / kv_block_tokens();
  const auto spec = [&](std::int64_t tokens) {
    return VariantSpec{fmt::format("encode{}", tokens), {tokens, tokens, batch_max, blocks}};
  };
  const auto few = std::max<std::int64_t>(64, batch_max), many = std::max({context, kCpuPrefillChunk, batch_max});
  return {spec(few), spec(many)};
}

void CpuTarget::add_facts(plan::TargetFactsT& facts) const {
  facts.api = "CPU";
  facts.prompt_tokens = kCpuPromptTokens;
  // A reused prefix may have been part of a prompt that was multiplied by tiles, or not.
  facts.long_prompt = cpu::has_prefill_tiles(class_) && !deterministic_ ? kCpuLongPrompt : 0;
}

std::unique_ptr<plan::ProgramT> CpuTarget::lower(passes::Program program, std::optional<passes::Program> hidden,
                                                 const ModelFile& model, KernelCompiler*) const {
  return lower_cpu(std::move(program), std::move(hidden), model, kv_type_);
}

BackEnd cpu_back_end() {
  return {
      .name = "cpu",
      .on_host = true,
      .kv_types = [](std::string_view) { return std::vector(std::begin(kCpuKvTypes), std::end(kCpuKvTypes)); },
      .gives_hidden = true,
      .find = [](std::string_view name) -> std::optional<std::string> {
        if (name == "cpu" || name == "auto") return cpu::target_name(cpu::detect());
        if (!cpu::class_of_target(name)) return std::nullopt;
        return std::string(name);
      },
      .rank = [](std::string_view target, std::string_view) -> std::optional<int> {
        const auto cpu_class = cpu::class_of_target(target);
        if (!cpu_class || !cpu::runs_here(*cpu_class)) return std::nullopt;
        return static_cast<int>(*cpu_class);
      },
      .target_names =
          [] {
            std::string names = "cpu";
            for (const auto cpu_class : cpu::all_classes()) names += ", " + cpu::target_name(cpu_class);
            return names;
          },
      .features = [] { return cpu::features(); },
      .make = [](std::string_view target, const TargetOptions& options) -> std::unique_ptr<const BackEndTarget> {
        if (options.attention.tiles)
          throw Error(
              ErrorCode::kUsage,
              fmt::format("{} does not support --attention {}", target, *options.attention.tiles ? "tiles" : "rows"),
              "CPUs have only one attention kernel for prefill", "give --attention split or whole, for decode");
        return std::make_unique<CpuTarget>(*cpu::class_of_target(target), options);
      }};
}

}  // namespace forge::codegen
