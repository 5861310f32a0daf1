#include "codegen/gpu/lower_gpu.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/describe_step.h"
#include "codegen/gpu/epilogue_source.h"
#include "codegen/gpu/gpu_lowering.h"
#include "codegen/gpu/kernel_text.h"
#include "codegen/gpu/matmul_config.h"
#include "codegen/gpu/tuning.h"
#include "codegen/tile_draft.h"
#include "codegen/value_places.h"
#include "kernels/quant/planes.h"
#include "passes/passes.h"
#include "runtime/plan/gpu_io.h"
#include "support/error.h"

namespace forge::codegen {

using ir::InputKind;
using ir::Op;
using plan::GpuInput;
using plan::Operand;
using plan::Space;
using Kind = PointerArgument::Kind;

GpuLowering::GpuLowering(const passes::Program& program, const ModelFile& model, const GpuTargetModel& target)
    : program_(program),
      graph_(program.graph),
      target_(target),
      model_(model),
      places_(program, model, quant::Layout::kPlanes),
      kernels_(target.target()) {}

std::unique_ptr<plan::ProgramT> GpuLowering::run(KernelCompiler& compiler) {
  auto out = std::make_unique<plan::ProgramT>();
  places_.place_all();
  out->kv_groups = places_.kv_groups(kGpuKvBlockTokens, [](const ir::KvStateAttrs& kv) {
    return 2 * kv.kv_heads * kGpuKvBlockTokens * kv.head_dim * static_cast<std::int64_t>(sizeof(std::uint16_t));
  });
  arena_bytes_ = program_.arena_bytes;
  for (const auto& variant : program_.variants) out->variants.push_back(lower_variant(variant));
  places_.take(*out);
  for (std::size_t i = 0; i < out->weights.size(); ++i) lower_load(*out->weights[i], i, out->load_steps);
  out->arena_bytes = arena_bytes_;
  out->arena_bound_bytes = std::max(program_.arena_bound_bytes, sampling_bytes_);
  out->counter_bytes = counter_bytes_;
  compile(compiler, *out);
  return out;
}

void GpuLowering::compile(KernelCompiler& compiler, plan::ProgramT& out) {
  auto compiled = compiler.compile(std::string(target_.name()), kernels_.sources());
  invariant(compiled.size() == kernels_.sources().size(), "CG-020", "the compiler lost a kernel");
  for (std::size_t i = 0; i < compiled.size(); ++i) {
    auto object = std::make_unique<plan::CodeObjectT>();
    object->name = kernels_.sources()[i].entry;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(compiled[i].code.data());
    object->bytes.assign(bytes, bytes + compiled[i].code.size());
    object->registers = compiled[i].facts.registers;
    object->scalar_registers = compiled[i].facts.scalar_registers;
    object->spill_bytes = compiled[i].facts.spill_bytes;
    object->lds_bytes = compiled[i].facts.lds_bytes;
    object->occupancy = compiled[i].facts.occupancy;
    object->compiler = compiled[i].compiler;
    out.code_objects.push_back(std::move(object));
  }
}

std::unique_ptr<plan::VariantT> GpuLowering::lower_variant(const passes::Variant& variant) {
  places_.enter(variant);
  auto out = describe_variant(variant);
  for (const auto& step : variant.steps)
    if (has_launch(graph_, step)) out->steps.push_back(lower_step(step));
  lower_sampling(out->sample_steps);
  return out;
}

std::unique_ptr<plan::StepT> GpuLowering::lower_step(const passes::Step& step) {
  auto out = describe_step(step);
  scratch_offset_ = step.scratch_offset;
  const auto node = step.nodes.front();
  if (graph_.op(node) == Op::kAttention) {
    lower_attention(step, *out);
  } else if (step.nodes.size() == 1 && stands_alone(graph_, node)) {
    lower_alone(node, *out);
  } else {
    const auto draft = draft_tile_program(graph_, step.nodes);
    if (!draft) throw Error(ErrorCode::kInternal, "a step is no tile program", draft.error());
    lower_tile(*draft, *out);
  }
  return out;
}

void GpuLowering::finish_step(std::string_view stem, const KernelText& text, std::span<const PointerArgument> arguments,
                              plan::StepT& out) {
  plan::LaunchT launch;
  launch.code = kernels_.add(stem, text);
  launch.blocks = text.blocks;
  launch.threads = text.threads;
  launch.waits_itself = true;
  out.body.Set(std::move(launch));
  for (const auto& argument : arguments) out.operands.push_back(operand_of(argument));
}

Operand GpuLowering::operand_of(const PointerArgument& argument) const {
  switch (argument.kind) {
    case Kind::kValue:
      return places_.rows_of(argument.value).ref;
    case Kind::kKeys:
    case Kind::kValues: {
      const auto layer = graph_.op(argument.node) == Op::kKvStore
                             ? graph_.attrs_as<ir::KvStoreAttrs>(argument.node).layer
                             : graph_.attrs_as<ir::AttentionAttrs>(argument.node).layer;
      return plan::operand_at(Space::Kv, static_cast<std::uint16_t>(kv_group_of(argument.node)),
                              static_cast<std::uint64_t>(2 * layer + (argument.kind == Kind::kValues ? 1 : 0)));
    }
    case Kind::kBlockTable:
      return plan::operand_at(Space::Input, static_cast<std::uint16_t>(InputKind::kBlockTable),
                              static_cast<std::uint64_t>(kv_group_of(argument.node)));
    case Kind::kPackedWeight: {
      const auto use = graph_.op(argument.node) == Op::kEmbed ? WeightUse::kEmbedding : WeightUse::kMatmul;
      return places_.weights().at(argument.value, use).ref;
    }
    case Kind::kInput:
      return plan::operand_at(Space::Input, static_cast<std::uint16_t>(argument.input), 0);
    case Kind::kScratch:
      return plan::operand_at(Space::Arena, 0, static_cast<std::uint64_t>(scratch_offset_ + argument.input));
    case Kind::kCounters:
      return plan::operand_at(Space::Counters, 0, static_cast<std::uint64_t>(argument.input));
    case Kind::kLogits:
      return plan::operand_at(Space::Output, 0, 0);
  }
  throw Error(ErrorCode::kInternal, "a pointer argument of an unknown kind");
}

/// Of a KV store or an attention.
std::int64_t GpuLowering::kv_group_of(ir::NodeId node) const {
  return kv_state_of(graph_, graph_.operand(node, graph_.op(node) == Op::kKvStore ? 0 : 1)).group;
}

PointerArgument GpuLowering::input(InputKind kind) {
  return {.kind = Kind::kInput, .input = static_cast<std::int64_t>(kind)};
}
PointerArgument GpuLowering::input(GpuInput kind) {
  return {.kind = Kind::kInput, .input = static_cast<std::int64_t>(kind)};
}

PointerArgument GpuLowering::counters(std::int64_t count) {
  counter_bytes_ = std::max<std::int64_t>(counter_bytes_, count * static_cast<std::int64_t>(sizeof(std::uint32_t)));
  return {.kind = Kind::kCounters};
}

GpuLowering::RowCount GpuLowering::rows_of_step(const ir::Dim& rows) const {
  const auto& bounds = places_.variant().bounds;
  if (rows.symbol == ir::Symbol::kRows) return {bounds.rows, 1};
  if (rows.symbol == ir::Symbol::kTokens) return {bounds.tokens, 0};
  return {rows.is_constant() ? rows.value : bounds.of(rows.symbol), 0};
}

std::string block_type(DType type) {
  std::string name(dtype_name(type));
  for (char& letter : name)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  return "quant::Block" + name;
}

std::string weight_text(DType type, std::int64_t rows, std::int64_t k) {
  if (quant::is_plane_codes(type)) return fmt::format("WeightCodes<{}, {}, {}>", block_type(type), rows, k);
  std::string_view name;
  switch (type) {
    case DType::kF32:
      name = "WeightF32";
      break;
    case DType::kF16:
      name = "WeightF16";
      break;
    case DType::kBF16:
      name = "WeightBf16";
      break;
    case DType::kQ8_0:
      name = "WeightQ8_0";
      break;
    case DType::kQ4_0:
      name = "WeightQ4_0";
      break;
    case DType::kQ4_1:
      name = "WeightQ4_1";
      break;
    default:
      throw Error(ErrorCode::kInternal, "a weight type without a GPU kernel got through");
  }
  return fmt::format("{}<{}, {}>", name, rows, k);
}

std::string GpuLowering::weight_type(ir::Value weight) const {
  const auto& type = graph_.type(weight);
  const auto rows = type.shape.size() == 3 ? type.shape[0].value * type.shape[1].value : type.shape[0].value;
  return weight_text(type.dtype, rows, type.cols());
}

void GpuLowering::lower_tile(const TileDraft& draft, plan::StepT& out) {
  const EpilogueContext context{[this](ir::Value value) { return places_.rows_of(value).row_floats; },
                                places_.variant().bounds.table_blocks, kGpuKvBlockTokens};
  const auto shape = epilogue_shape(graph_, draft);
  if (!shape) throw Error(ErrorCode::kInternal, "a step has no epilogue", shape.error());
  const auto epilogue = generate_epilogue(graph_, draft, context);
  if (draft.source != ir::kNoNode && passes::is_matmul(graph_, draft.source))
    lower_matmul(draft, *shape, epilogue, out);
  else
    lower_rows(draft, *shape, epilogue, out);
}

void GpuLowering::lower_matmul(const TileDraft& draft, const EpilogueShape& shape, const EpilogueSource& epilogue,
                               plan::StepT& out) {
  const auto weight = graph_.operand(draft.source, 1);
  const auto& type = graph_.type(weight);
  const bool experts = graph_.op(draft.source) == Op::kExpertMatmul;
  const auto n = type.shape[experts ? 1 : 0].value, k = type.cols();
  const auto rows = rows_of_step(draft.rows);
  const auto bound = rows.bound * draft.slots;
  const auto tuning = tuning_for(target_.tuning(), fmt::format("{}x{}", n, k));
  const auto count = experts ? type.shape[0].value : 0;
  const auto tiles =
      rows.count != 0 ? std::nullopt
                      : choose_tiles(target_.target(), type.dtype, n, k, rows.bound, draft.slots, count, shape, tuning);
  KernelText text{.header = tiles ? "kernels/gpu/matmul_tiles.h" : "kernels/gpu/matmul_rows.h",
                  .kernel = tiles ? "MatmulTiles" : "MatmulRows",
                  .defaults = tiles ? "TilesDefaults" : "MatmulDefaults",
                  .before = epilogue.text + "\n"};
  text.config.use("Weight", weight_type(weight))
      .use("Epilogue", "gpu::Epilogue")
      .number("kTokensTotal", bound)
      .number("kCount", rows.count);
  if (tiles) {
    tiles->write_to(text.config);
    if (type.dtype == DType::kF16) text.config.use("Tile", "NativeTile");
    text.blocks = tiles->blocks;
    text.threads = tiles->waves() * target_.target().wave;
    text.min_blocks = tiles->unit_blocks;
  } else {
    const auto config = choose_matmul(target_.target(), type.dtype, n, k, experts ? 1 : bound, shape, tuning);
    const auto block_rows = config.block_rows(target_.target().wave);
    config.write_to(text.config);
    text.blocks = (n + block_rows - 1) / block_rows * (bound / config.tokens);
    text.threads = config.waves * target_.target().wave;
  }
  std::vector<PointerArgument> arguments{{.kind = Kind::kPackedWeight, .value = weight, .node = draft.source},
                                         {.kind = Kind::kValue, .value = draft.input},
                                         input(GpuInput::kCounts)};
  if (experts) {
    text.config.number("kSlots", draft.slots)
        .number("kColumns", n)
        .flag("kSharedX", graph_.type(draft.input).shape.size() < 3);
    arguments.push_back({.kind = Kind::kValue, .value = graph_.operand(draft.source, 2)});
  }
  arguments.insert(arguments.end(), epilogue.pointers.begin(), epilogue.pointers.end());
  const auto stem =
      experts ? fmt::format("{}_{}_{}x{}x{}_t{}", tiles ? "expert_tiles" : "experts", dtype_name(type.dtype), count, n,
                            k, bound)
              : fmt::format("{}_{}_{}x{}_t{}", tiles ? "tiles" : "matmul", dtype_name(type.dtype), n, k, bound);
  finish_step(stem, text, arguments, out);
}

void GpuLowering::lower_rows(const TileDraft& draft, const EpilogueShape& shape, const EpilogueSource& epilogue,
                             plan::StepT& out) {
  const auto rows = rows_of_step(draft.rows);
  std::vector<PointerArgument> arguments;
  std::string source, stem;
  if (draft.source == ir::kNoNode && draft.sections.front().ops.front().kind == plan::TileOpKind::kLoad) {
    const auto& left = draft.sections[0].ops[0].operand;
    const auto& right = draft.sections[1].ops[0].operand;
    source = fmt::format("TwoRows<{}, {}, {}>", draft.sections[0].end, places_.rows_of(left).row_floats,
                         places_.rows_of(right).row_floats);
    arguments = {{.kind = Kind::kValue, .value = left}, {.kind = Kind::kValue, .value = right}};
    stem = "store_kv";
  } else if (draft.source == ir::kNoNode) {
    source = fmt::format("LoadedRows<{}>", places_.rows_of(draft.input).row_floats);
    arguments = {{.kind = Kind::kValue, .value = draft.input}};
    stem = "rows";
  } else if (graph_.op(draft.source) == Op::kExpertSum) {
    source = fmt::format("SummedSlots<{}, {}>", graph_.type(draft.input).shape[1].value, draft.cols);
    arguments = {{.kind = Kind::kValue, .value = draft.input},
                 {.kind = Kind::kValue, .value = graph_.operand(draft.source, 1)}};
    stem = "sum_experts";
  } else if (graph_.op(draft.source) == Op::kGatherRows) {
    source = fmt::format("GatheredRows<{}>", places_.rows_of(draft.input).row_floats);
    arguments = {{.kind = Kind::kValue, .value = draft.input},
                 {.kind = Kind::kValue, .value = graph_.operand(draft.source, 1)}};
    stem = "gather";
  } else {
    const auto table = graph_.operand(draft.source, 0);
    source = fmt::format("EmbeddedRows<{}>", weight_type(table));
    arguments = {{.kind = Kind::kPackedWeight, .value = table, .node = draft.source},
                 {.kind = Kind::kValue, .value = draft.input}};
    stem = "embed";
  }
  // A block has at most 256 columns: the largest multiple that the parts' borders allow.
  const auto columns = draft.cols;
  std::int64_t block = shape.multiple_of;
  while (block * 2 <= 256 && block < columns && (shape.divides == 0 || shape.divides % (block * 2) == 0)) block *= 2;
  const auto wave = target_.target().wave;
  const auto waves = std::max<std::int64_t>(1, std::min<std::int64_t>(block, 256) / wave);
  KernelText text{.header = "kernels/gpu/rows.h", .kernel = "FillRows", .defaults = {}, .before = epilogue.text + "\n"};
  text.config.use("Source", source)
      .use("Epilogue", "gpu::Epilogue")
      .number("kColumns", columns)
      .number("kBlockRows", block)
      .number("kWaves", waves)
      .number("kTokensTotal", rows.bound)
      .number("kCount", rows.count);
  text.blocks = (columns + block - 1) / block * rows.bound;
  text.threads = waves * wave;
  arguments.push_back(input(GpuInput::kCounts));
  arguments.insert(arguments.end(), epilogue.pointers.begin(), epilogue.pointers.end());
  finish_step(fmt::format("{}_{}_t{}", stem, columns, rows.bound), text, arguments, out);
}

void GpuLowering::lower_attention(const passes::Step& step, plan::StepT& out) {
  const auto node = step.nodes[0];
  const auto& a = graph_.attrs_as<ir::AttentionAttrs>(node);
  const auto& bounds = places_.variant().bounds;
  const auto config = choose_attention(target_.target(), a, bounds, target_.tuning());
  const auto q = graph_.operand(node, 0);
  if (places_.rows_of(q).row_floats != a.heads * a.head_dim)
    throw Error(ErrorCode::kModelUnsupported, "attention's queries do not stand alone in their rows", {},
                "do not skip fusion passes for a GPU, or run it on the CPU: --device cpu");
  const bool quantised = step.nodes.size() > 1, sinks = graph_.operands(node).size() > 6;
  const ir::Value result{node, 0};
  const bool stored = stores_attention(graph_, step.nodes);
  KernelText text{.header = config.tiles ? "kernels/gpu/attention_tiles.h" : "kernels/gpu/attention.h",
                  .kernel = config.tiles ? "AttentionTiles" : "Attention",
                  .defaults = config.tiles ? "AttentionTilesDefaults" : "AttentionDefaults",
                  .before = {}};
  text.config.use("Pool", fmt::format("KvPool<{}, {}, {}>", a.kv_heads, a.head_dim, kGpuKvBlockTokens))
      .number("kHeads", a.heads)
      .number("kTableBlocks", bounds.table_blocks)
      .real("kScale", a.scale)
      .number("kTokensTotal", bounds.tokens)
      .number("kWindow", a.window)
      .real("kSoftcap", a.softcap)
      .flag("kSinks", sinks)
      .flag("kStored", stored)
      .flag("kQuantised", quantised);
  config.write_to(text.config);
  text.blocks = config.blocks;
  text.threads = config.waves * target_.target().wave;
  const PointerArgument f32{.kind = Kind::kValue, .value = stored ? result : ir::Value{step.nodes.back(), 0}};
  const PointerArgument q8{.kind = Kind::kValue, .value = quantised ? ir::Value{step.nodes[1], 0} : result};
  const std::vector<PointerArgument> arguments{{.kind = Kind::kValue, .value = q},
                                               {.kind = Kind::kKeys, .node = node},
                                               {.kind = Kind::kValues, .node = node},
                                               input(InputKind::kPositions),
                                               input(InputKind::kSequence),
                                               {.kind = Kind::kBlockTable, .node = node},
                                               input(GpuInput::kCounts),
                                               {.kind = Kind::kScratch},
                                               counters(bounds.tokens * a.heads / config.heads_per_block),
                                               f32,
                                               q8,
                                               {.kind = Kind::kValue, .value = sinks ? graph_.operand(node, 6) : q}};
  finish_step(fmt::format("attention{}_{}x{}_t{}", config.tiles ? "_tiles" : "", a.heads, a.head_dim, bounds.tokens),
              text, arguments, out);
}

std::unique_ptr<plan::ProgramT> lower_gpu(const passes::Program& program, const ModelFile& model,
                                          const GpuTargetModel& target, KernelCompiler& compiler) {
  return GpuLowering(program, model, target).run(compiler);
}

}  // namespace forge::codegen
