#include "codegen/gpu/gpu_target.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/gpu/compile/compile_service.h"
#include "codegen/gpu/gpu_chooser.h"
#include "codegen/gpu/lower_gpu.h"
#include "codegen/gpu/matmul_config.h"
#include "codegen/gpu/matmul_draft.h"
#include "codegen/gpu/row_norm.h"
#include "codegen/gpu/select_config.h"
#include "codegen/gpu/source/epilogue_source.h"
#include "codegen/gpu/tile_sizes.h"
#include "codegen/tile_draft.h"
#include "kernels/quant/planes.h"
#include "passes/passes.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

using ir::Op;

constexpr std::int64_t kGpuPrefillChunk = 512, kLongPrefillChunk = 2048, kGpuPrefillRows = 64;
constexpr std::int32_t kGpuPromptTokens = 128;  // of a step; smaller steps take hardly less time
constexpr std::int64_t kStateRowsMax = 1024;
constexpr std::int64_t kHeadDimMax = 512, kSelfHeadDimMax = 256, kLatentDimMax = 640;
constexpr std::int64_t kShortTextTokens = 64;
constexpr std::int64_t kJoinedWavesLeast = 2;  ///< of a block that makes heads: queries lie where results will be
constexpr std::int64_t kBesideTokensMax = 64;  ///< with more tokens a matmul has enough blocks of its own

/// Attention on shared rows (kernels/gpu/latent_row.h).
std::optional<std::string> refuses_latents(const ir::AttentionAttrs& a, bool sinks) {
  if (a.kv_heads != 1 || a.head_dim % 8 != 0 || a.head_dim > kLatentDimMax || value_dim_of(a) % 8 != 0)
    return fmt::format("latent rows of {} columns, {} of them values, are not whole units up to {}", a.head_dim,
                       value_dim_of(a), kLatentDimMax);
  if (a.window != 0 || a.chunk != 0 || a.softcap != 0 || a.alibi != 0 || sinks)
    return "attention on latents has windows, a soft-cap, ALiBi or sinks";
  return std::nullopt;
}

/// Why these nodes have no attention kernel; nothing if they have.
std::optional<std::string> gpu_refuses_attention(const ir::Graph& graph, std::span<const ir::NodeId> members) {
  const auto& a = graph.attrs_as<ir::AttentionAttrs>(members[0]);
  if (kv_state_of(graph, graph.operand(members[0], 1)).shared_row == 1) {
    if (auto why = refuses_latents(a, has_sinks(graph, members[0]))) return why;
  } else {
    if (a.selected > 0 && (a.window != 0 || a.chunk != 0 || a.alibi != 0))
      return "sparse attention has a window, chunks or ALiBi";
    if (a.head_dim % 8 != 0 || a.head_dim > kHeadDimMax)
      return fmt::format("head_dim {} is not a multiple of 8 up to {}", a.head_dim, kHeadDimMax);
    if (value_dim_of(a) % 8 != 0 || value_dim_of(a) > a.head_dim)
      return fmt::format("values of {} columns are not whole units of 8, or wider than keys", value_dim_of(a));
  }
  if (members.size() == 1) return std::nullopt;
  if (members.size() > 2 || graph.op(members[1]) != Op::kQuantize) return "attention can only be fused with a quantize";
  if (value_dim_of(a) % 16 != 0 || a.heads * value_dim_of(a) % kActivationUnit != 0)
    return "heads are not whole quantised blocks";
  return std::nullopt;
}

/// The repack steps can only load experts' weights that are whole tensors of the file, the same rows of each expert in
/// one, or gate and up interleaved.
std::optional<std::string> refuses_expert_weight(const ir::Graph& graph, ir::Value weight) {
  if (graph.op(weight.node) == Op::kConcatRows) {
    if (graph.attrs_as<ir::PartsAttrs>(weight.node).unit == 0) return "merged experts' weights are not interleaved";
    for (const auto part : graph.operands(weight.node))
      if (auto why = refuses_expert_weight(graph, part)) return why;
    return std::nullopt;
  }
  if (graph.op(weight.node) == Op::kSliceRows) return refuses_expert_weight(graph, graph.operand(weight.node, 0));
  if (graph.op(weight.node) != Op::kWeight) return "experts' weights are not tensors of the model file";
  return std::nullopt;
}

/// The router kernel needs a lane for each chosen expert and each group.
std::optional<std::string> refuses_route(const ir::Graph& graph, ir::NodeId node) {
  constexpr std::int64_t kLanes = 32;  // lanes of the smallest wave
  const auto& route = graph.attrs_as<ir::RouteAttrs>(node);
  if (route.used > kLanes || route.groups > kLanes)
    return fmt::format("{} experts of a token in {} groups are more than a wave's lanes", route.used, route.groups);
  return std::nullopt;
}

/// Refuses tile programs whose source has no kernel for its weight's type and shape.
std::optional<std::string> refuses_source(const ir::Graph& graph, const TileDraft& draft) {
  if (draft.source == ir::kNoNode) return std::nullopt;
  const auto op = graph.op(draft.source);
  if (!passes::is_matmul(op) && op != Op::kEmbed) return std::nullopt;
  if (op == Op::kExpertMatmul)
    if (auto why = refuses_expert_weight(graph, graph.operand(draft.source, 1))) return why;
  const auto& weight = graph.type(graph.operand(draft.source, op == Op::kEmbed ? 0 : 1));
  if (!quant::has_planes(weight.dtype))
    return fmt::format("there is no GPU kernel for weights of type {}", dtype_name(weight.dtype));
  // Lanes load 16 bytes of a row of floats.
  const std::int64_t unit = weight.dtype == DType::kF32 ? 4 : is_float(weight.dtype) ? 8 : kActivationUnit;
  if (weight.cols() % unit != 0) return fmt::format("{} columns are not a multiple of {}", weight.cols(), unit);
  return std::nullopt;
}

/// StateUpdate reads four rows of a state at once.
std::optional<std::string> refuses_state(const ir::Graph& graph, ir::NodeId node) {
  const auto rows = state_rows_of(graph, node);
  if (rows % 4 != 0 || rows > kStateRowsMax)
    return fmt::format("its state has {} rows a head, which are not a multiple of 4 up to {}", rows, kStateRowsMax);
  return std::nullopt;
}

/// Variants that return a row for each of their tokens, for ascending numbers of tokens; equal ones are made once.
/// Steps are whole tiles of tokens.
std::vector<passes::Target::VariantSpec> rows_of_all_tokens(std::string_view name,
                                                            std::initializer_list<std::int64_t> sizes,
                                                            std::int64_t context, std::int64_t batch_max) {
  const auto blocks = (context + kGpuKvBlockTokens - 1) / kGpuKvBlockTokens;
  std::vector<passes::Target::VariantSpec> out;
  for (const auto size : sizes) {
    const auto tokens = (size + kTokenTile - 1) / kTokenTile * kTokenTile;
    if (out.empty() || tokens > out.back().bounds.tokens)
      out.push_back({fmt::format("{}{}", name, tokens), {tokens, tokens, batch_max, blocks}});
  }
  return out;
}

/// Refuses nodes whose keys and values the cache's type cannot have.
std::optional<std::string> refuses_kv(const ir::Graph& graph, ir::NodeId node, const KvFormat& kv) {
  const auto op = graph.op(node);
  if (op != Op::kKvStore && op != Op::kAttention && op != Op::kSelectKeys) return std::nullopt;
  return kv.refusal(kv_state_of(graph, graph.operand(node, op == Op::kKvStore ? 0 : 1)));
}

/// Turns matrix instructions off, whose sums have other orders than those of single tokens. Errors: kUsage if they are
/// asked for, or another split of attention than that of the mode.
void make_deterministic(Tuning& tuning, const AttentionChoice& attention) {
  const auto refuse = [](std::string_view option) {
    throw Error(ErrorCode::kUsage, fmt::format("--deterministic and {} exclude each other", option));
  };
  if (attention.tiles.value_or(false)) refuse("--attention tiles");
  if (attention.split.value_or(false)) refuse("--attention split");
  for (const auto& [key, value] : tuning)
    if (value != 0 && (key == "matrix" || key.ends_with(":matrix"))) refuse(fmt::format("--tune {}={}", key, value));
  tuning["matrix"] = 0;
}

/// Refuses groups that cannot be a step, whatever tile program they would form.
std::optional<std::string> refuses_members(const ir::Graph& graph, std::span<const ir::NodeId> members) {
  for (const auto node : members) {
    if (graph.op(node) == Op::kExpertSum && node != members[0] && graph.op(members[0]) != Op::kExpertMatmul)
      return "the sum over experts is a step of its own";
    if (graph.op(node) == Op::kRoute)
      if (auto why = refuses_route(graph, node)) return why;
    if (graph.op(node) == Op::kSelfAttention)
      if (const auto columns = graph.attrs_as<ir::SelfAttentionAttrs>(node).head_dim; columns > kSelfHeadDimMax)
        return fmt::format("heads of {} columns are wider than {}", columns, kSelfHeadDimMax);
    if (graph.op(node) == Op::kSelectKeys)
      if (auto why = refuses_select_keys(graph.attrs_as<ir::SelectKeysAttrs>(node))) return why;
    if (auto why = refuses_state(graph, node)) return why;
    if (graph.op(node) == Op::kShortConv) return refuses_conv(graph, members, elementwise::kParametersMax);
    if (graph.op(node) == Op::kAttention) return gpu_refuses_attention(graph, members);
    const bool in_tile = graph.op(node) == Op::kSplit || graph.op(node) == Op::kRmsNorm ||
                         (graph.op(node) == Op::kRoute && graph.op(members[0]) == Op::kMatmul);
    if (members.size() > 1 && !in_tile && stands_alone(graph, node))
      return fmt::format("{} is a step of its own", ir::op_def(graph.op(node)).name);
  }
  return std::nullopt;
}

}  // namespace

// Quantised weights are multiplied with quantised activations (int8 dots), floats with f32. Rows must be whole blocks.
// Rounding to 8 bits moves a router's logits by about 1 % of their deviation, so that several of a thousand choices of
// experts change; with 16 bits it does so only where f32 would.
DType GpuTargetModel::activation_type(DType weight, std::int64_t k, bool before_choice) const {
  if (is_float(weight) || k % kActivationUnit != 0) return DType::kF32;
  return before_choice ? DType::kQ16A_16 : DType::kQ8A_16;
}

std::int64_t GpuTargetModel::glu_interleave(DType, std::int64_t n) const {
  return n % kGluUnit == 0 ? kGluUnit : 0;
}

bool GpuTargetModel::merges_columns(std::int64_t n) const {
  return n % kResultColumns == 0;
}

std::expected<StepDraft, std::string> draft_step(const ir::Graph& graph, std::span<const ir::NodeId> members,
                                                 const KvFormat& kv, const DraftRules& rules) {
  StepDraft out;
  auto routed = split_at_route(graph, members, kv);
  if (!routed) return std::unexpected(routed.error());
  if (*routed) {
    if (auto why = refuses_source(graph, (*routed)->matmul)) return std::unexpected(*why);
    out.routed = std::move(*routed);
    return out;
  }
  auto draft = draft_tile_program(graph, members, rules);
  if (!draft) return std::unexpected(draft.error());
  if (auto why = refuses_source(graph, *draft)) return std::unexpected(*why);
  out.draft = std::move(*draft);
  auto halves = split_at_row_norm(graph, out.draft, kv);
  if (!halves) return std::unexpected(halves.error());
  out.halves = std::move(*halves);
  if (out.halves) return out;
  const auto shape = epilogue_shape(graph, out.draft, kv);
  if (!shape) return std::unexpected(shape.error());
  out.shape = *shape;
  return out;
}

std::optional<std::string> GpuTargetModel::group_refusal(const ir::Graph& graph,
                                                         std::span<const ir::NodeId> members) const {
  if (auto why = refuses_members(graph, members)) return why;
  if (graph.op(members[0]) == Op::kAttention || graph.op(members[0]) == Op::kShortConv ||
      (members.size() == 1 && stands_alone(graph, members[0])))
    return std::nullopt;
  const auto step = draft_step(graph, members, kv_);
  return step ? std::nullopt : std::optional(step.error());
}

GpuChooser GpuTargetModel::chooser(const ir::Graph& graph, const passes::Binding& binding) const {
  return {graph, binding, target_, tuning_, attention_, kv_, deterministic_};
}

std::expected<passes::Choice, passes::Refusal> GpuTargetModel::choose(const ir::Graph& graph,
                                                                      std::span<const ir::NodeId> members,
                                                                      const passes::Binding& binding) const {
  for (const auto node : members)
    if (auto why = refuses_kv(graph, node, kv_))
      return std::unexpected(passes::Refusal{.why = std::move(*why), .fix = "compile it with --kv-type f16"});
  auto why = refuses_members(graph, members);
  if (!why) {
    auto choice = chooser(graph, binding).choose(members);
    if (choice) return std::move(*choice);
    why = choice.error();
  }
  return std::unexpected(passes::Refusal{.why = std::move(*why), .fix = "run it on the CPU: --device cpu"});
}

// Matmuls of few tokens, which read all of their weight for little arithmetic; experts' blocks wait for the router.
bool GpuTargetModel::runs_beside(const ir::Graph& graph, std::span<const ir::NodeId> step,
                                 std::span<const ir::NodeId> beside, const ir::Bounds& bounds) const {
  const auto is = [&](ir::Op op, std::span<const ir::NodeId> nodes) {
    return graph.op(nodes.front()) == op && graph.type({nodes.front(), 0}).shape[0].symbol == ir::Symbol::kTokens;
  };
  const auto are = [&](ir::Op one, ir::Op other) { return is(one, step) && is(other, beside); };
  return bounds.tokens <= kBesideTokensMax && tuned(tuning_, "beside", 1) != 0 &&
         (are(ir::Op::kMatmul, ir::Op::kMatmul) || are(ir::Op::kRopeTable, ir::Op::kEmbed) ||
          are(ir::Op::kEmbed, ir::Op::kRopeTable));
}

std::optional<passes::Choice> GpuTargetModel::choose_both(const ir::Graph& graph, std::span<const ir::NodeId> step,
                                                          std::span<const ir::NodeId> beside,
                                                          const passes::Binding& binding) const {
  return chooser(graph, binding).choose_both(step, beside);
}

// Attention of one row with the heads that it reads. With more rows a block would need keys that other blocks make. The
// sums of their squares are not those of the steps of several rows, as deterministic plans want them. Where kernels
// overlap, a launch costs less than what the heads' blocks do longer (H200, Qwen3 30B 669.8 tokens/s with two launches
// and 667.9 with one, Gemma 3 4B 680.4 and 670.7).
bool GpuTargetModel::joins(const ir::Graph& graph, std::span<const ir::NodeId> step, std::span<const ir::NodeId> next,
                           const ir::Bounds& bounds) const {
  if (bounds.tokens != 1 || deterministic_) return false;
  const bool heads = tuned(tuning_, "join_heads", target_.overlaps ? 0 : 1) != 0 &&
                     tuned(tuning_, "attention_waves", kJoinedWavesLeast) >= kJoinedWavesLeast;
  return (heads && draft_heads(graph, step, next, kv_, target_.wave)) || gathers_only_row(graph, step, next, kv_);
}

std::optional<passes::Choice> GpuTargetModel::choose_joined(const ir::Graph& graph, std::span<const ir::NodeId> step,
                                                            std::span<const ir::NodeId> next,
                                                            const passes::Binding& binding) const {
  return chooser(graph, binding).choose_joined(step, next);
}

passes::StoredForms GpuTargetModel::stored_forms(const ir::Graph& graph, std::span<const std::vector<ir::NodeId>> steps,
                                                 const ir::Bounds& bounds) const {
  return stored_rows(target_, tuning_, graph, steps, bounds, kv_);
}

std::vector<passes::Choice> GpuTargetModel::sampling(const ir::Graph& graph, const passes::Binding& binding) const {
  for (const auto& output : graph.outputs())
    if (output.name == "logits") return chooser(graph, binding).sampling(graph.type(output.value).cols());
  return {};
}

bool has_sinks(const ir::Graph& graph, ir::NodeId attention) {
  return graph.operands(attention).size() > (graph.attrs_as<ir::AttentionAttrs>(attention).selected > 0 ? 7 : 6);
}

std::vector<passes::Target::VariantSpec> GpuTargetModel::variants(std::int64_t context, std::int64_t batch_max) const {
  const auto blocks = (context + kGpuKvBlockTokens - 1) / kGpuKvBlockTokens;
  std::vector<VariantSpec> out;
  for (std::int64_t batch = 1;; batch *= 2) {
    out.push_back({fmt::format("decode{}", batch), {batch, batch, batch, blocks}});
    if (batch >= batch_max) break;
  }
  // A short prompt fits one tile of tokens; its grids need not have the many idle blocks of a long one.
  const auto sequences = out.back().bounds.sequences;
  if (sequences < kTokenTile)
    out.push_back({fmt::format("prefill{}", kTokenTile), {kTokenTile, kTokenTile, sequences, blocks}});
  const auto chunk = std::max(kGpuPrefillChunk, (sequences + kTokenTile - 1) / kTokenTile * kTokenTile);
  const auto push_prefill = [&](std::int64_t tokens) {
    out.push_back(
        {fmt::format("prefill{}", tokens), {tokens, std::max(kGpuPrefillRows, sequences), sequences, blocks}});
  };
  push_prefill(chunk);
  // On GPUs with many compute units, large tiles give work to all of them only if a step has many tokens.
  const bool many_units = target_.matrix == MatrixKind::kMma || target_.matrix == MatrixKind::kMfmaGfx90a ||
                          target_.matrix == MatrixKind::kMfmaGfx942;
  const auto longest = std::min(tuned_positive(tuning_, "chunk", many_units ? kLongPrefillChunk : chunk),
                                context / kTokenTile * kTokenTile);
  if (longest > chunk && uses_matrix_instructions(target_, longest, tuning_)) push_prefill(longest);
  return out;
}

/// Steps with a row for every token: of a short text, and of as many tokens as a prefill step has.
std::vector<passes::Target::VariantSpec> GpuTargetModel::embedding_variants(std::int64_t context,
                                                                            std::int64_t batch_max) const {
  return rows_of_all_tokens("hidden", {kTokenTile, std::max(kGpuPrefillChunk, batch_max)}, context, batch_max);
}

/// Short texts, longer ones, and up to a whole context, in one step each.
std::vector<passes::Target::VariantSpec> GpuTargetModel::encoder_variants(std::int64_t context,
                                                                          std::int64_t batch_max) const {
  const auto some = std::max(kShortTextTokens, batch_max);
  return rows_of_all_tokens("encode", {some, std::max(kGpuPrefillChunk, some), std::max(context, some)}, context,
                            batch_max);
}

void GpuTargetModel::add_facts(plan::TargetFactsT& facts) const {
  facts.api = target_.api;
  facts.prompt_tokens = kGpuPromptTokens;
}

std::unique_ptr<plan::ProgramT> GpuTargetModel::lower(passes::Program program, std::optional<passes::Program> hidden,
                                                      const ModelFile& model, KernelCompiler* compiler) const {
  return lower_gpu(std::move(program), std::move(hidden), model, target_, kv_, *compiler);
}

BackEnd gpu_back_end() {
  return {.name = "gpu",
          .on_host = false,
          .kv_types = [](std::string_view target) { return gpu_kv_types(*find_target(target)); },
          .gives_hidden = true,
          .find = [](std::string_view name) -> std::optional<std::string> {
            const auto* target = find_target(name);
            if (target == nullptr) return std::nullopt;
            return std::string(target->name);
          },
          .rank = [](std::string_view target, std::string_view machine) -> std::optional<int> {
            return target == machine ? std::optional(0) : std::nullopt;
          },
          .target_names = [] { return target_names(); },
          .open_compiler = [](std::function<void(const std::string&)> note) -> std::unique_ptr<KernelCompiler> {
            CompileServiceOptions options;
            options.cache = plan::CacheOptions::from_environment();
            options.note = std::move(note);
            return std::make_unique<CompileService>(std::move(options));
          },
          .make = [](std::string_view target, const TargetOptions& options) -> std::unique_ptr<const BackEndTarget> {
            const auto& row = *find_target(target);
            if (options.attention.tiles.value_or(false) && row.matrix == MatrixKind::kNone)
              throw Error(ErrorCode::kUsage, fmt::format("{} does not support --attention tiles", target),
                          "it has no matrix instructions that forge's kernels use", "give --attention rows, or auto");
            auto tuning = parse_tuning(options.tune);
            if (options.deterministic) make_deterministic(tuning, options.attention);
            if (options.attention.tiles.value_or(false) && tuned(tuning, "matrix", 1) == 0)
              throw Error(ErrorCode::kUsage, "--attention tiles and --tune matrix=0 exclude each other");
            return std::make_unique<GpuTargetModel>(row, std::move(tuning), options.attention, options.kv_type,
                                                    options.deterministic);
          }};
}

}  // namespace forge::codegen
