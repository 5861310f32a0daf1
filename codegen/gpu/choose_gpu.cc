#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "codegen/gpu/gpu_chooser.h"
#include "codegen/gpu/matmul_config.h"
#include "codegen/gpu/matmul_draft.h"
#include "codegen/gpu/source/weight_text.h"
#include "codegen/gpu/tile_sizes.h"
#include "kernels/quant/planes.h"
#include "passes/passes.h"
#include "support/error.h"

namespace forge::codegen {

using ir::InputKind;
using ir::Op;
using plan::GpuInput;
using plan::Operand;
using plan::Space;
using Kind = PointerArgument::Kind;

std::expected<passes::Choice, std::string> GpuChooser::choose(std::span<const ir::NodeId> nodes,
                                                              const DraftRules& rules) {
  const auto node = nodes.front();
  if (graph_.op(node) == Op::kAttention) {
    const bool latent = kv_state_of(graph_, graph_.operand(node, 1)).shared_row == 1;
    if (auto why = latent ? latent_attention(nodes) : attention(nodes); !why.empty())
      return std::unexpected(std::move(why));
  } else if (graph_.op(node) == Op::kShortConv) {
    short_conv(nodes);
  } else if (nodes.size() == 1 && stands_alone(graph_, node)) {
    out_.step.label = ir::op_def(graph_.op(node)).name;
    if (auto why = step_of_one(node); !why.empty()) return std::unexpected(std::move(why));
  } else if (const auto step = draft_step(graph_, nodes, kv_, rules); !step) {
    return std::unexpected(step.error());
  } else if (step->routed) {
    if (auto why = refuses_alignment(step->routed->matmul); !why.empty()) return std::unexpected(std::move(why));
    matmul_and_route(*step->routed);
  } else {
    out_.step.label = step->draft.label(graph_);
    if (auto why = refuses_alignment(step->draft); !why.empty()) return std::unexpected(std::move(why));
    if (step->halves)
      matmul_and_norm(*step->halves);
    else
      tile(step->draft, step->shape);
  }
  return std::move(out_);
}

void GpuChooser::launch(std::string_view stem, const KernelText& text, std::span<const PointerArgument> arguments) {
  plan::LaunchT launch;
  launch.blocks = text.blocks;
  launch.threads = text.threads;
  launch.waits_itself = true;
  launch.lds_bytes = text.lds_bytes;
  out_.step.body.Set(std::move(launch));
  out_.kernel = kernel_source(target_, stem, text);
  stem_ = stem;
  text_ = text;
  for (const auto& argument : arguments) out_.step.operands.push_back(operand_of(argument));
}

// Operands that refer to values or scratch get their addresses in lowering. K and V pools are numbered 2 * layer and
// 2 * layer + 1 within their KV group.
Operand GpuChooser::operand_of(const PointerArgument& argument) const {
  const auto offset = static_cast<std::uint64_t>(argument.input);
  switch (argument.kind) {
    case Kind::kValue:
      return operands_.of(argument.value);
    case Kind::kKeys:
    case Kind::kValues: {
      const auto layer = static_cast<std::uint64_t>(kv_layer_of(argument.node));
      return plan::operand_at(Space::Kv, static_cast<std::uint16_t>(kv_group_of(argument.node)),
                              2 * layer + (argument.kind == Kind::kValues ? 1 : 0));
    }
    case Kind::kRecurrent:
      return plan::operand_at(Space::Recurrent,
                              static_cast<std::uint16_t>(recurrent_state_of(graph_, argument.node).group),
                              static_cast<std::uint64_t>(argument.input));
    case Kind::kBlockTable:
      return plan::operand_at(Space::Input, static_cast<std::uint16_t>(InputKind::kBlockTable),
                              static_cast<std::uint64_t>(kv_group_of(argument.node)));
    case Kind::kInput:
      return plan::operand_at(Space::Input, static_cast<std::uint16_t>(argument.input), 0);
    case Kind::kScratch:
      return StepOperands::scratch(argument.input);
    case Kind::kConstants:
      return plan::operand_at(Space::Constants, 0, offset);
    case Kind::kCounters:
      return plan::operand_at(Space::Counters, 0, offset);
    case Kind::kLogits:
      return plan::operand_at(Space::Output, 0, 0);
  }
  throw Error(ErrorCode::kInternal, "a pointer argument of an unknown kind");
}

/// The layer of a node that stores or reads keys, as its KV group numbers them.
std::int64_t GpuChooser::kv_layer_of(ir::NodeId node) const {
  if (graph_.op(node) == Op::kKvStore) return graph_.attrs_as<ir::KvStoreAttrs>(node).layer;
  if (graph_.op(node) == Op::kSelectKeys) return graph_.attrs_as<ir::SelectKeysAttrs>(node).layer;
  return graph_.attrs_as<ir::AttentionAttrs>(node).layer;
}

/// Its KV group.
std::int64_t GpuChooser::kv_group_of(ir::NodeId node) const {
  return kv_state_of(graph_, graph_.operand(node, graph_.op(node) == Op::kKvStore ? 0 : 1)).group;
}

PointerArgument GpuChooser::input(InputKind kind) {
  return {.kind = Kind::kInput, .input = static_cast<std::int64_t>(kind)};
}
PointerArgument GpuChooser::input(GpuInput kind) {
  return {.kind = Kind::kInput, .input = static_cast<std::int64_t>(kind)};
}

// All steps of a program share the same counters: they run one after another and leave them at zero.
PointerArgument GpuChooser::counters(std::int64_t count) {
  out_.counter_bytes =
      std::max<std::int64_t>(out_.counter_bytes, count * static_cast<std::int64_t>(sizeof(std::uint32_t)));
  return {.kind = Kind::kCounters};
}

// The count is kRowCount (1) for rows of logits, else kTokenCount (0).
GpuChooser::RowCount GpuChooser::rows_of_step(const ir::Dim& rows) const {
  const auto& bounds = binding_.bounds;
  if (rows.symbol == ir::Symbol::kRows) return {bounds.rows, 1};
  if (rows.symbol == ir::Symbol::kTokens) return {bounds.tokens, 0};
  return {rows.is_constant() ? rows.value : bounds.of(rows.symbol), 0};
}

// Experts' weights [experts][rows][k] are one weight with experts * rows rows.
std::string GpuChooser::weight_type(ir::Value weight) const {
  const auto& type = graph_.type(weight);
  const auto rows = type.shape.size() == 3 ? type.shape[0].value * type.shape[1].value : type.shape[0].value;
  return weight_text(type.dtype, rows, type.cols());
}

/// Matmuls by float weights load four elements of x at once.
std::string GpuChooser::refuses_alignment(const TileDraft& draft) const {
  if (draft.source == ir::kNoNode || !passes::is_matmul(graph_, draft.source)) return {};
  const auto dtype = graph_.type(graph_.operand(draft.source, 1)).dtype;
  const bool aligned = row_floats(draft.input) % 4 == 0 && binding_.rows.columns_of(draft.input).first % 4 == 0;
  return is_float(dtype) && !aligned ? "a matmul's rows are not aligned to 16 bytes" : std::string();
}

EpilogueContext GpuChooser::epilogue_context() const {
  return {[this](ir::Value value) { return binding_.rows.row_elements(value); },
          [this](ir::Value value) { return stored_form(value); },
          [this](ir::Value value) { return rows_of_step(graph_.type(value).shape.front()).bound; },
          binding_.bounds.table_blocks, &kv_};
}

/// True if the last block of a matmul goes on with its rows. Matmuls by matrix instructions have no such block.
bool GpuChooser::has_tail(const TileDraft& draft, const EpilogueShape& shape) const {
  return rows_of_step(draft.rows).bound <= kTailTokensMax && !matmul_tiles(draft, shape);
}
std::optional<TilesConfig> GpuChooser::matmul_tiles(const TileDraft& draft, const EpilogueShape& shape) const {
  return tiles_of(target_, tuning_, graph_, {draft, shape}, binding_.bounds);
}

void GpuChooser::tile(const TileDraft& draft, const EpilogueShape& shape) {
  const auto epilogue = generate_epilogue(graph_, draft, epilogue_context());
  if (draft.source != ir::kNoNode && passes::is_matmul(graph_, draft.source))
    matmul(draft, shape, epilogue);
  else
    rows(draft, shape, epilogue);
}

/// Rows of f32 may be columns of wider rows (a split that is a view).
void GpuChooser::write_stride(const TileDraft& draft, const MatmulWeight& weight, ConfigText& out) const {
  const auto floats = row_floats(draft.input);
  if (is_float(weight.dtype) && weight.experts == 0 && floats != weight.heads * weight.k)
    out.number("kXFloats", floats);
}

/// Steps with many tokens use matrix instructions (matmul_tiles.h, matmul_strips.h) where choose_tiles allows it, all
/// others matmul_rows.h.
void GpuChooser::matmul(const TileDraft& draft, const EpilogueShape& shape, const EpilogueSource& epilogue,
                        const MatmulTail* tail, MatmulUse use, ir::Value shares) {
  const auto weight = weight_of(graph_, draft.source);
  const auto k = weight.k, heads = weight.heads, n = weight.columns * heads;
  const bool experts = weight.experts > 0;
  const auto rows = rows_of_step(draft.rows);
  const bool summed = shares.node != ir::kNoNode;
  const auto bound = rows.bound * (summed ? 1 : draft.slots);
  const auto tiles = summed ? std::nullopt : matmul_tiles(draft, shape);
  const auto terms = activation_terms(graph_.type(draft.input).dtype);
  KernelText text{.header = "kernels/gpu/matmul_rows.h",
                  .kernel = "MatmulRows",
                  .defaults = "MatmulDefaults",
                  .before = epilogue.text + "\n"};
  text.config.use("Weight", weight_type(weight.value))
      .use("Epilogue", "gpu::Epilogue")
      .number("kTokensTotal", bound)
      .number("kCount", rows.count);
  if (tiles) {
    tiles->write_to(text);
    text.config.use("Tile", tile_name(tile_rows_type(target_, weight.dtype, graph_.type(draft.input).dtype)));
    text.lds_bytes = tiles->lds_bytes;
    if (epilogue.squares.node != ir::kNoNode)
      text.config.number("kTotalStride", stored_form(epilogue.squares).total ? row_floats(epilogue.squares) : 1);
    text.blocks = tiles->blocks;
    text.threads = tiles->waves() * target_.wave;
    text.min_blocks = tiles->unit_blocks;
  } else {
    const auto tokens = experts ? 1 : bound;
    const auto tuning = tuning_for(tuning_, n, k, deterministic_ ? 1 : bound);
    // Blocks of experts stay small: each has few rows of a slot.
    auto config = choose_matmul(target_, weight.dtype, n, k, deterministic_ ? 1 : tokens, shape, tuning,
                                experts ? MatmulUse::kSlots : use);
    if (summed) config.sum_slots(target_, draft.slots, shape, tuning);
    if (heads > 1 && n / heads % config.rows_per_team != 0) config.use_small_teams(target_.wave, shape.multiple_of);
    if (deterministic_) config.take_tokens(target_, weight.dtype, tokens, tuning);
    const auto block_rows = config.block_rows(target_.wave);
    config.write_to(text.config);
    text.blocks = (n + block_rows - 1) / block_rows * (bound / config.tokens);
    text.threads = config.waves * target_.wave;
  }
  if (terms > 1 && !tiles) text.config.number("kXTerms", terms);
  if (!tiles) write_stride(draft, weight, text.config);
  if (heads > 1) text.config.number("kHeads", heads).number("kHeadColumns", n / heads);
  std::vector<PointerArgument> arguments{{.kind = Kind::kValue, .value = weight.value},
                                         {.kind = Kind::kValue, .value = draft.input},
                                         input(GpuInput::kCounts)};
  if (experts) {
    text.config.number("kSlots", draft.slots)
        .number("kColumns", n)
        .flag("kSharedX", graph_.type(draft.input).shape.size() < 3);
    arguments.push_back({.kind = Kind::kValue, .value = graph_.operand(draft.source, 2)});
  }
  if (summed) {
    text.config.flag("kSummed", true).number("kShareFloats", row_floats(shares));
    arguments.push_back({.kind = Kind::kValue, .value = shares});
  }
  arguments.insert(arguments.end(), epilogue.pointers.begin(), epilogue.pointers.end());
  if (tail != nullptr) {
    text.header = "kernels/gpu/matmul_norm.h";
    text.kernel = tail->kernel;
    text.before += tail->text + "\n";
    text.config.append(tail->config);
    arguments.insert(arguments.end(), tail->pointers.begin(), tail->pointers.end());
    arguments.push_back(counters(bound * ((n + kResultColumns - 1) / kResultColumns)));
  }
  const auto stem = experts ? fmt::format("{}_{}_{}x{}x{}_t{}", tiles ? "expert_tiles" : "experts",
                                          dtype_name(weight.dtype), weight.experts, n, k, bound)
                            : fmt::format("{}_{}_{}x{}_t{}",
                                          tiles       ? heads > 1 ? "batched_tiles" : "tiles"
                                          : heads > 1 ? "batched"
                                                      : "matmul",
                                          dtype_name(weight.dtype), n, k, bound);
  if (tiles) return launch_tiles(draft, *tiles, epilogue, stem, text, std::move(arguments));
  launch(stem, text, arguments);
  append_totals(draft);
}

/// Tile programs without a matmul: FillRows with one of the sources of kernels/gpu/rows.h.
void GpuChooser::rows(const TileDraft& draft, const EpilogueShape& shape, const EpilogueSource& epilogue) {
  fill_rows(row_source(draft), draft, shape, epilogue);
  append_totals(draft);
}

GpuChooser::RowSource GpuChooser::row_source(const TileDraft& draft) const {
  std::vector<PointerArgument> arguments;
  std::string source, stem;
  const bool loads = draft.source == ir::kNoNode && draft.sections.front().ops.front().kind == plan::TileOpKind::kLoad;
  if (loads && draft.sections.size() == 1) {
    const auto& row = draft.sections[0].ops[0].operand;
    source = fmt::format("LoadedRows<{}>", row_floats(row));
    arguments = {{.kind = Kind::kValue, .value = row}};
    stem = "store_kv";
  } else if (loads) {
    const auto& left = draft.sections[0].ops[0].operand;
    const auto& right = draft.sections[1].ops[0].operand;
    source = fmt::format("TwoRows<{}, {}, {}>", draft.sections[0].end, row_floats(left), row_floats(right));
    arguments = {{.kind = Kind::kValue, .value = left}, {.kind = Kind::kValue, .value = right}};
    stem = "store_kv";
  } else if (draft.source == ir::kNoNode) {
    source = fmt::format("LoadedRows<{}>", row_floats(draft.input) / draft.slots);
    arguments = {{.kind = Kind::kValue, .value = draft.input}};
    stem = "rows";
  } else if (graph_.op(draft.source) == Op::kExpertSum) {
    const auto shares = graph_.operand(draft.source, 1);
    source =
        fmt::format("SummedSlots<{}, {}, {}>", graph_.type(draft.input).shape[1].value, draft.cols, row_floats(shares));
    arguments = {{.kind = Kind::kValue, .value = draft.input}, {.kind = Kind::kValue, .value = shares}};
    stem = "sum_experts";
  } else if (graph_.op(draft.source) == Op::kGatherRows) {
    source = fmt::format("GatheredRows<{}>", row_floats(draft.input));
    arguments = {{.kind = Kind::kValue, .value = draft.input},
                 {.kind = Kind::kValue, .value = graph_.operand(draft.source, 1)}};
    stem = "gather";
  } else {
    const auto table = graph_.operand(draft.source, 0);
    source = fmt::format("EmbeddedRows<{}>", weight_type(table));
    arguments = {{.kind = Kind::kValue, .value = table}, {.kind = Kind::kValue, .value = draft.input}};
    stem = "embed";
  }
  return {std::move(source), std::move(stem), std::move(arguments)};
}

void GpuChooser::fill_rows(const RowSource& source, const TileDraft& draft, const EpilogueShape& shape,
                           const EpilogueSource& epilogue, std::int64_t waves) {
  const auto rows = rows_of_step(draft.rows);
  const auto bound = rows.bound * draft.slots;
  auto arguments = source.pointers;
  // A block has the largest number of columns, up to 256, that the epilogue allows (shape).
  const auto columns = draft.cols;
  std::int64_t block = shape.multiple_of;
  while (shape.norm_columns == 0 && block * 2 <= 256 && block < columns &&
         (shape.divides == 0 || shape.divides % (block * 2) == 0))
    block *= 2;
  const auto wave = target_.wave;
  // More than 256 columns are those of a norm, which one block must have.
  if (waves == 0 || shape.norm_columns == 0)
    waves = std::clamp<std::int64_t>(block / wave, 1, (block > 1024 ? 1024 : 256) / wave);
  KernelText text{.header = "kernels/gpu/rows.h", .kernel = "FillRows", .defaults = {}, .before = epilogue.text + "\n"};
  text.config.use("Source", source.type)
      .use("Epilogue", "gpu::Epilogue")
      .number("kColumns", columns)
      .number("kBlockRows", block)
      .number("kWaves", waves)
      .number("kTokensTotal", bound)
      .number("kCount", rows.count);
  if (draft.slots > 1) text.config.number("kSlots", draft.slots);
  text.blocks = (columns + block - 1) / block * bound;
  text.threads = waves * wave;
  arguments.push_back(input(GpuInput::kCounts));
  arguments.insert(arguments.end(), epilogue.pointers.begin(), epilogue.pointers.end());
  launch(fmt::format("{}_{}_t{}", source.stem, columns, bound), text, arguments);
}

// Pointers that a configuration does not use (no f32 output, no quantised output, no sinks, no values of their own, no
// selected keys) must still be valid addresses, so they point to another operand.
std::vector<PointerArgument> GpuChooser::attention_arguments(std::span<const ir::NodeId> nodes,
                                                             std::int64_t counter_count) {
  const auto node = nodes[0];
  const auto q = graph_.operand(node, 0);
  const bool quantised = nodes.size() > 1, sinks = has_sinks(graph_, node);
  const bool sparse = graph_.attrs_as<ir::AttentionAttrs>(node).selected > 0;
  const bool shared = kv_state_of(graph_, graph_.operand(node, 1)).shared_row == 1;
  const ir::Value result{node, 0};
  return {{.kind = Kind::kValue, .value = q},
          {.kind = Kind::kKeys, .node = node},
          {.kind = shared ? Kind::kKeys : Kind::kValues, .node = node},
          input(InputKind::kPositions),
          input(InputKind::kSequence),
          {.kind = Kind::kBlockTable, .node = node},
          input(GpuInput::kCounts),
          {.kind = Kind::kScratch},
          counters(counter_count),
          {.kind = Kind::kValue, .value = stores_attention(graph_, nodes) ? result : ir::Value{nodes.back(), 0}},
          {.kind = Kind::kValue, .value = quantised ? ir::Value{nodes[1], 0} : result},
          {.kind = Kind::kValue, .value = sinks ? graph_.operand(node, 6) : q},
          {.kind = Kind::kValue, .value = sparse ? graph_.operands(node).back() : q}};
}

void GpuChooser::write_selection(ir::NodeId node, ConfigText& out) const {
  const auto& a = graph_.attrs_as<ir::AttentionAttrs>(node);
  if (a.selected > 0) out.number("kSelected", a.selected).number("kSelectedBlock", a.selected_block);
}

GpuChooser::AttentionOutput GpuChooser::attention_output(std::span<const ir::NodeId> nodes) const {
  const ir::Value last{nodes.back(), 0};
  const auto stored = stored_type(last);
  const bool rows = nodes.size() > 1 || stored != DType::kF32;
  return {.stored = stores_attention(graph_, nodes) && (nodes.size() > 1 || stored == DType::kF32),
          .format = rows ? row_format(stored) : 0};
}

std::string GpuChooser::refuses_query(ir::Value q) const {
  const bool aligned = row_floats(q) % 4 == 0 && binding_.rows.columns_of(q).first % 4 == 0;
  return aligned ? std::string() : "attention's queries are not aligned to 16 bytes";
}

// nodes: the attention, and optionally the quantize of its result, which the kernel then does too.
std::string GpuChooser::attention(std::span<const ir::NodeId> nodes, const HeadsDraft* heads) {
  const auto node = nodes[0];
  const auto& a = graph_.attrs_as<ir::AttentionAttrs>(node);
  const auto& bounds = binding_.bounds;
  const bool prompt = bounds.tokens > bounds.sequences;
  if (prompt && a.selected > 0 && attention_.tiles.value_or(false))
    return "--attention tiles is not possible with sparse attention";
  const AttentionData data{kv_.type, binding_.before_choice[node], heads != nullptr};
  const auto config = deterministic_ ? choose_attention_of_tokens(target_, a, bounds, data, tuning_, attention_)
                                     : choose_attention(target_, a, bounds, data, tuning_, attention_);
  if (auto why = attention_problem(config, a, bounds, attention_); !why.empty()) return why;
  const auto q = graph_.operand(node, 0);
  const auto query_floats = heads != nullptr ? a.heads * a.head_dim : row_floats(q);
  if (heads == nullptr)
    if (auto why = refuses_query(q); !why.empty()) return why;
  const bool quantised = nodes.size() > 1;
  const auto output = attention_output(nodes);
  out_.scratch_bytes = config.scratch_bytes;
  out_.step.label = quantised ? "attention + quantize" : "attention";
  out_.step.reason = config.tiles ? fmt::format("a prompt's queries in tiles of {}", config.tiles->tokens)
                                  : fmt::format("{} blocks share the context of a row", config.workers);
  if (config.short_rows)
    out_.step.reason +=
        fmt::format(", {} that of up to {} tokens", config.short_rows->workers, config.short_rows->tokens);
  if (a.selected > 0) out_.step.reason = "selected keys, " + out_.step.reason;
  if (prompt ? attention_.tiles.has_value() : attention_.split.has_value()) out_.step.reason += ", as requested";
  auto text = config.kernel_text();
  text.config.use("Pool", kv_.pool(a.kv_heads, a.head_dim))
      .number("kHeads", a.heads)
      .number("kTableBlocks", bounds.table_blocks)
      .real("kScale", a.scale)
      .number("kTokensTotal", bounds.tokens)
      .number("kWindow", a.window)
      .number("kChunkedTo", a.chunk)
      .real("kSoftcap", a.softcap)
      .real("kAlibi", a.alibi)
      .flag("kSinks", has_sinks(graph_, node))
      .flag("kStored", output.stored)
      .number("kFormat", output.format);
  if (value_dim_of(a) != a.head_dim) text.config.number("kValueDim", value_dim_of(a));
  if (query_floats != a.heads * a.head_dim) text.config.number("kQueryFloats", query_floats);
  write_selection(node, text.config);
  if (a.selected > 0)
    text.config.number("kSelectedLists", graph_.type(graph_.operands(node).back()).cols() / a.selected);
  text.threads = config.waves * target_.wave;
  auto arguments = attention_arguments(nodes, bounds.tokens * config.counters);
  if (heads != nullptr) add_heads(*heads, q, text, arguments);
  const auto kind = config.tiles ? "_tiles" : config.short_rows ? "_by_length" : config.head_tiles ? "_heads" : "";
  launch(fmt::format("{}attention{}_{}x{}_t{}", heads != nullptr ? "heads_and_" : "", kind, a.heads, a.head_dim,
                     bounds.tokens),
         text, arguments);
  return {};
}

}  // namespace forge::codegen
