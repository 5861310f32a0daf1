#include "codegen/cpu/lower_cpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "codegen/cpu/cpu_target.h"
#include "codegen/describe_step.h"
#include "codegen/tile_draft.h"
#include "codegen/value_places.h"
#include "kernels/cpu/tile.h"
#include "passes/give_hidden.h"
#include "runtime/plan/tile_ops.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

using ir::Op;
using plan::Ref;
using plan::Space;
using plan::TileOpKind;

class CpuLowering {
 public:
  CpuLowering(const passes::Program& program, const ModelFile& model, DType kv_type)
      : program_(program),
        graph_(program.graph),
        model_(model),
        places_(program, model, quant::Layout::kX16),
        kv_type_(kv_type) {}

  std::unique_ptr<plan::ProgramT> run(const passes::Program* hidden) {
    auto out = std::make_unique<plan::ProgramT>();
    places_.place_all();
    out->kv_groups = places_.kv_groups(static_cast<std::int64_t>(cpu::kKvBlockTokens),
                                       [&](const auto& kv) { return kv_block_bytes_of(kv); });
    for (const auto& variant : program_.variants) out->variants.push_back(lower_variant(variant));
    out->arena_bytes = program_.arena_bytes;
    out->arena_bound_bytes = program_.arena_bound_bytes;
    if (hidden != nullptr) CpuLowering(*hidden, model_, kv_type_).add_hidden(places_, *out);
    places_.take(*out);
    for (std::size_t i = 0; i < out->weights.size(); ++i) out->load_steps.push_back(load_step(*out->weights[i], i));
    return out;
  }

 private:
  /// This program's variants, on the weights of the one that `places` is of; its constants join that one's.
  void add_hidden(ValuePlaces& places, plan::ProgramT& out) {
    places_.place_beside(places);
    const auto& outputs = graph_.outputs();
    const auto hidden = std::ranges::find(outputs, passes::kHiddenOutput, &ir::Graph::Output::name);
    invariant(hidden != outputs.end(), "CG-006", "a program for embeddings gives hidden rows");
    for (const auto& variant : program_.variants) {
      out.variants.push_back(lower_variant(variant));
      out.variants.back()->hidden_width = graph_.type(hidden->value).cols();
    }
    places.take_constants(places_);
    if (program_.arena_bytes <= out.arena_bytes) return;
    out.arena_bytes = program_.arena_bytes;
    out.arena_bound_bytes = program_.arena_bound_bytes;
  }

  std::int64_t kv_block_bytes_of(const ir::KvStateAttrs& kv) const {
    const auto head_dim = static_cast<std::size_t>(kv.head_dim);
    if (!cpu::kv_type_fits(kv_type_, head_dim))
      throw Error(ErrorCode::kModelUnsupported, fmt::format("no KV cache in {} for this model", dtype_name(kv_type_)),
                  fmt::format("its heads have {} columns, no multiple of {}", head_dim, cpu::kKvScaleColumns),
                  "compile it with --kv-type f16");
    return static_cast<std::int64_t>(cpu::kv_block_bytes({kv_type_, static_cast<std::size_t>(kv.kv_heads), head_dim}));
  }

  Ref kv_ref(ir::Value state, std::int64_t layer) const {
    return {Space::Kv, static_cast<std::uint16_t>(kv_state_of(graph_, state).group), static_cast<std::uint64_t>(layer)};
  }

  /// Rows of [T, U, N] are its T * U slots.
  Rows rows_of(ir::Value value) const {
    auto rows = places_.rows_of(value);
    if (graph_.type(value).shape.size() == 3) rows.row_floats = graph_.type(value).cols();
    return rows;
  }

  // ---- steps ----

  std::unique_ptr<plan::VariantT> lower_variant(const passes::Variant& variant) {
    places_.enter(variant);
    auto out = describe_variant(variant);
    for (const auto& step : variant.steps) out->steps.push_back(lower_step(step));
    return out;
  }

  std::unique_ptr<plan::StepT> lower_step(const passes::Step& step) {
    auto out = describe_step(step);
    const auto node = step.nodes.front();
    switch (graph_.op(node)) {
      case Op::kAttention:
        lower_attention(step, *out);
        break;
      case Op::kRmsNorm:
        if (step.nodes.size() > 1)
          lower_tile(step.nodes, *out);
        else
          lower_rms_norm(node, *out);
        break;
      case Op::kRoute:
        lower_route(node, *out);
        break;
      case Op::kArrange:
        lower_arrange(node, *out);
        break;
      case Op::kRopeFreqs:
        lower_rope_freqs(node, *out);
        break;
      case Op::kRopeTable:
        lower_rope_table(node, *out);
        break;
      case Op::kSplit:
        if (step.nodes.size() == 1 && graph_.attrs_as<ir::PartsAttrs>(node).unit > 0) {
          lower_interleaved_split(node, *out);
          break;
        }
        [[fallthrough]];
      default:
        lower_tile(step.nodes, *out);
    }
    return out;
  }

  static std::int64_t rows_symbol(const ir::Dim& rows) { return rows.symbol == ir::Symbol::kRows ? 1 : 0; }

  void lower_tile(std::span<const ir::NodeId> nodes, plan::StepT& out) {
    const auto draft = draft_tile_program(graph_, nodes);
    if (!draft) throw Error(ErrorCode::kInternal, "a step is no tile program", draft.error());
    out.kernel = draft->source != ir::kNoNode && graph_.op(draft->source) == Op::kExpertMatmul ? "experts" : "tile";
    out.ints = {rows_symbol(draft->rows), draft->cols, draft->slots};
    for (const auto& section : draft->sections) {
      if (section.ops.empty() || section.ops.front().kind != TileOpKind::kLoad)
        out.ops.push_back(source_op(*draft, section));
      for (const auto& op : section.ops) out.ops.push_back(tile_op(*draft, section, op));
    }
  }

  static std::unique_ptr<plan::TileOpT> new_op(const DraftSection& section, TileOpKind kind) {
    auto op = std::make_unique<plan::TileOpT>();
    op->kind = static_cast<std::uint16_t>(kind);
    op->column_begin = section.begin;
    op->column_end = section.end;
    return op;
  }

  std::unique_ptr<plan::TileOpT> source_op(const TileDraft& draft, const DraftSection& section) {
    if (draft.source == ir::kNoNode) return load_op(section, draft.input, 0);
    const auto node = draft.source;
    if (graph_.op(node) == Op::kExpertSum) {
      auto op = new_op(section, TileOpKind::kExpertRows);
      const auto from = rows_of(draft.input);
      op->refs = {moved(from.ref, section.begin * kFloatBytes), rows_of(graph_.operand(node, 1)).ref};
      op->ints = {from.row_floats, graph_.type(draft.input).shape[1].value};
      return op;
    }
    if (const bool experts = graph_.op(node) == Op::kExpertMatmul; experts || graph_.op(node) == Op::kMatmul) {
      auto op = new_op(section, experts ? TileOpKind::kExpertMatmul : TileOpKind::kMatmul);
      const auto weight = graph_.operand(node, 1);
      const auto& type = graph_.type(weight);
      const auto at = places_.weights().at(weight, WeightUse::kMatmul).ref;
      op->refs = {rows_of(draft.input).ref,
                  moved(at, static_cast<std::int64_t>(packed_offset(graph_, weight, section.begin)))};
      op->ints = {static_cast<std::int64_t>(type.dtype), type.cols(), x_row_bytes(draft.input), section.unit};
      if (experts) {
        op->refs.push_back(rows_of(graph_.operand(node, 2)).ref);
        for (const std::int64_t number :
             {type.shape[0].value, draft.slots, static_cast<std::int64_t>(packed_slice_bytes(graph_, weight)),
              std::int64_t{graph_.type(draft.input).shape.size() == 2}})
          op->ints.push_back(number);
      }
      return op;
    }
    if (graph_.op(node) == Op::kEmbed) {
      auto op = new_op(section, TileOpKind::kEmbed);
      const auto table = graph_.operand(node, 0);
      const auto place = places_.weights().at(table, WeightUse::kEmbedding);
      op->refs = {place.ref, rows_of(draft.input).ref};
      op->ints = {static_cast<std::int64_t>(graph_.type(table).dtype), place.packed ? 1 : 0, graph_.type(table).cols(),
                  graph_.type(table).shape[0].value, section.end - section.begin};
      return op;
    }
    auto op = new_op(section, TileOpKind::kGather);
    const auto from = rows_of(draft.input);
    op->refs = {moved(from.ref, section.begin * kFloatBytes), rows_of(graph_.operand(node, 1)).ref};
    op->ints = {from.row_floats, section.unit};
    return op;
  }

  std::int64_t x_row_bytes(ir::Value x) const {
    const auto& type = graph_.type(x);
    return type.dtype == DType::kQ8A ? ir::stored_row_bytes(DType::kQ8A, type.cols())
                                     : rows_of(x).row_floats * kFloatBytes;
  }

  std::unique_ptr<plan::TileOpT> load_op(const DraftSection& section, ir::Value value, std::int64_t origin) {
    auto op = new_op(section, TileOpKind::kLoad);
    const auto from = rows_of(value);
    op->refs = {moved(from.ref, (section.begin - origin) * kFloatBytes)};
    op->ints = {from.row_floats, section.unit};
    return op;
  }

  std::unique_ptr<plan::TileOpT> tile_op(const TileDraft&, const DraftSection& section, const DraftOp& draft) {
    const std::int64_t first = section.begin - draft.origin;  // the section's first column as the operand counts
    auto op = new_op(section, draft.kind);
    switch (draft.kind) {
      case TileOpKind::kLoad:
        return load_op(section, draft.operand, draft.origin);
      case TileOpKind::kInvRms: {
        const auto& norm = graph_.attrs_as<ir::NormAttrs>(draft.node);
        const auto squares = rows_of(draft.operand);
        op->refs = {squares.ref};
        const auto& shape = graph_.type({draft.node, 0}).shape;
        op->ints = {squares.row_floats, norm.dim, shape.size() == 3 ? shape[1].value : 1};
        op->floats = {norm.eps};
        break;
      }
      case TileOpKind::kAddVector:
      case TileOpKind::kMulVector:
        op->refs = {moved(rows_of(draft.operand).ref, first * kFloatBytes)};
        break;
      case TileOpKind::kAddExpertVector: {
        const auto& shape = graph_.type(draft.operand).shape;
        op->refs = {moved(rows_of(draft.operand).ref, first * kFloatBytes), rows_of(graph_.operand(draft.node, 2)).ref};
        op->ints = {shape[1].value, shape[0].value};
        break;
      }
      case TileOpKind::kSumExperts:
        op->refs = {rows_of(draft.operand).ref};
        break;
      case TileOpKind::kAddTensor:
      case TileOpKind::kMulTensor:
      case TileOpKind::kStore: {
        const auto rows = rows_of(draft.operand);
        op->refs = {moved(rows.ref, first * kFloatBytes)};
        op->ints = {rows.row_floats};
        break;
      }
      case TileOpKind::kScale:
        op->floats = {graph_.attrs_as<ir::ScaleAttrs>(draft.node).factor};
        break;
      case TileOpKind::kGlu:
        op->ints = {static_cast<std::int64_t>(graph_.attrs_as<ir::GluAttrs>(draft.node).activation),
                    graph_.attrs_as<ir::PartsAttrs>(draft.operand.node).unit};
        break;
      case TileOpKind::kGluTensor: {
        const auto rows = rows_of(draft.operand);
        op->refs = {moved(rows.ref, first * kFloatBytes)};
        op->ints = {static_cast<std::int64_t>(graph_.attrs_as<ir::GluAttrs>(draft.node).activation), rows.row_floats};
        break;
      }
      case TileOpKind::kActivate:
        op->ints = {static_cast<std::int64_t>(graph_.attrs_as<ir::GluAttrs>(draft.node).activation)};
        break;
      case TileOpKind::kSoftcap:
        op->floats = {graph_.attrs_as<ir::SoftcapAttrs>(draft.node).cap};
        break;
      case TileOpKind::kRmsNorm:
      case TileOpKind::kLayerNorm:
        lower_norm(draft, first, *op);
        break;
      case TileOpKind::kRope: {
        const auto& rope = graph_.attrs_as<ir::RopeAttrs>(draft.node);
        op->refs = {rows_of(draft.operand).ref};
        op->ints = {rope.head_dim, rope.rotary_dims, static_cast<std::int64_t>(rope.mode)};
        break;
      }
      case TileOpKind::kSumSquares: {
        const auto rows = rows_of(draft.operand);
        op->refs = {moved(rows.ref, first / ir::kSquareBlock * kFloatBytes)};
        op->ints = {rows.row_floats};
        break;
      }
      case TileOpKind::kQuantize:
        op->refs = {rows_of(draft.operand).ref};
        op->ints = {graph_.type(draft.operand).cols(), first / kActivationBlock};
        break;
      case TileOpKind::kStoreK:
      case TileOpKind::kStoreV: {
        const auto state = graph_.operand(draft.node, 0);
        const auto kv = kv_ref(state, graph_.attrs_as<ir::KvStoreAttrs>(draft.node).layer);
        op->refs = {kv};
        op->ints = {first};
        break;
      }
      default:
        throw Error(ErrorCode::kInternal, "a draft holds a source where a tile op belongs");
    }
    return op;
  }

  /// Gains and offsets that all runs share begin at their first; others at the section's column.
  void lower_norm(const DraftOp& draft, std::int64_t first, plan::TileOpT& op) const {
    const auto& norm = graph_.attrs_as<ir::NormAttrs>(draft.node);
    const bool shared = graph_.type(draft.operand).shape.size() == 1;
    for (const auto vector : graph_.operands(draft.node).subspan(1))
      op.refs.push_back(moved(rows_of(vector).ref, shared ? 0 : first * kFloatBytes));
    op.ints = {norm.dim, shared ? 1 : 0};
    op.floats = {norm.eps};
  }

  void lower_attention(const passes::Step& step, plan::StepT& out) {
    const auto node = step.nodes[0];
    const auto& a = graph_.attrs_as<ir::AttentionAttrs>(node);
    const auto q = rows_of(graph_.operand(node, 0));
    out.kernel = "attention";
    out.refs = {q.ref, kv_ref(graph_.operand(node, 1), a.layer),
                Ref(Space::Arena, 0, static_cast<std::uint64_t>(step.scratch_offset))};
    out.ints = {a.heads,
                a.kv_heads,
                a.head_dim,
                a.window,
                q.row_floats,
                step.kernel.scratch_bytes,
                split_attention_tokens(places_.variant().bounds)};
    out.floats = {a.scale, a.softcap};
    if (graph_.operands(node).size() > 6) out.refs.push_back(rows_of(graph_.operand(node, 6)).ref);
    const ir::Value result{node, 0};
    const DraftSection section{.begin = 0, .end = a.heads * a.head_dim};
    const bool quantized = step.nodes.size() > 1;
    const auto& uses = graph_.uses(result);
    const bool stored =
        !quantized || graph_.is_output(result) ||
        std::any_of(uses.begin(), uses.end(), [&](const auto& use) { return use.node != step.nodes[1]; });
    if (stored) out.ops.push_back(tile_op({}, section, {TileOpKind::kStore, node, result, 0}));
    if (quantized)
      out.ops.push_back(tile_op({}, section, {TileOpKind::kQuantize, step.nodes[1], {step.nodes[1], 0}, 0}));
  }

  void lower_rms_norm(ir::NodeId node, plan::StepT& out) {
    const auto x = rows_of(graph_.operand(node, 0)), y = rows_of({node, 0});
    const auto& norm = graph_.attrs_as<ir::NormAttrs>(node);
    out.kernel = "rms_norm";
    out.refs = {x.ref, rows_of(graph_.operand(node, 1)).ref, y.ref};
    out.ints = {rows_symbol(graph_.type({node, 0}).shape[0]), graph_.type({node, 0}).cols(), norm.dim, x.row_floats,
                y.row_floats};
    out.floats = {norm.eps};
  }

  void lower_route(ir::NodeId node, plan::StepT& out) {
    const auto& route = graph_.attrs_as<ir::RouteAttrs>(node);
    const auto logits = rows_of(graph_.operand(node, 0));
    out.kernel = "route";
    out.refs = {logits.ref, rows_of({node, 0}).ref, rows_of({node, 1}).ref};
    if (graph_.operands(node).size() > 1) out.refs.push_back(rows_of(graph_.operand(node, 1)).ref);
    const auto& type = graph_.type(graph_.operand(node, 0));
    out.ints = {rows_symbol(type.shape[0]),
                type.cols(),
                logits.row_floats,
                route.used,
                static_cast<std::int64_t>(route.gate),
                static_cast<std::int64_t>(route.share),
                route.groups,
                route.groups_used,
                route.group_top};
    out.floats = {route.scale};
  }

  void lower_rope_freqs(ir::NodeId node, plan::StepT& out) {
    const auto& rope = graph_.attrs_as<ir::RopeFreqsAttrs>(node);
    out.kernel = "rope_freqs";
    out.refs = {rows_of({node, 0}).ref};
    if (!graph_.operands(node).empty()) out.refs.push_back(rows_of(graph_.operand(node, 0)).ref);
    out.ints = {rope.dims, static_cast<std::int64_t>(rope.scaling), rope.original_context};
    out.floats = {rope.base, rope.factor, rope.ext_factor, rope.beta_fast, rope.beta_slow};
  }

  void lower_rope_table(ir::NodeId node, plan::StepT& out) {
    out.kernel = "rope_table";
    out.refs = {rows_of(graph_.operand(node, 1)).ref, rows_of({node, 0}).ref};
    out.ints = {2 * graph_.type(graph_.operand(node, 1)).cols()};
    const auto& table = graph_.attrs_as<ir::RopeTableAttrs>(node);
    out.floats = {table.magnitude};
    if (table.temperature == 0) return;
    out.kernel = "rope_table_tempered";
    out.ints.push_back(table.temperature_length);
    out.floats.push_back(table.temperature);
  }

  void lower_interleaved_split(ir::NodeId node, plan::StepT& out) {
    const auto& parts = graph_.attrs_as<ir::PartsAttrs>(node);
    const auto x = rows_of(graph_.operand(node, 0));
    out.kernel = "split_interleaved";
    out.refs = {x.ref};
    out.ints = {rows_symbol(graph_.type(graph_.operand(node, 0)).shape[0]), parts.unit, parts.sizes[0], x.row_floats};
    for (std::uint32_t i = 0; i < parts.sizes.size(); ++i) {
      const auto part = rows_of({node, i});
      out.refs.push_back(part.ref);
      out.ints.push_back(part.row_floats);
    }
    const auto& shape = graph_.type({node, 0}).shape;
    out.ints.push_back(shape.size() == 3 ? shape[1].value : 1);
  }

  /// Rows of [T, U, N] that lie one behind the other are one row of T.
  void lower_arrange(ir::NodeId node, plan::StepT& out) {
    const auto& arrange = graph_.attrs_as<ir::ArrangeAttrs>(node);
    const auto row_floats = [&](ir::Value value) {
      const auto& shape = graph_.type(value).shape;
      return rows_of(value).row_floats * (shape.size() == 3 ? shape[1].value : 1);
    };
    out.kernel = "arrange";
    out.refs = {rows_of({node, 0}).ref};
    out.ints = {rows_symbol(graph_.type({node, 0}).shape[0]), arrange.heads, row_floats({node, 0})};
    for (std::size_t i = 0; i < arrange.sources.size(); ++i) {
      std::int64_t operand = 0, floats = 1;
      if (arrange.sources[i] >= 0) {
        const auto value = graph_.operand(node, static_cast<std::size_t>(arrange.sources[i]));
        operand = static_cast<std::int64_t>(out.refs.size());
        floats = row_floats(value);
        out.refs.push_back(rows_of(value).ref);
      }
      out.ints.insert(out.ints.end(), {operand, floats, arrange.begins[i], arrange.strides[i], arrange.widths[i]});
    }
  }

  static std::unique_ptr<plan::StepT> load_step(const plan::WeightT& weight, std::size_t index) {
    auto step = std::make_unique<plan::StepT>();
    step->kernel = weight.layout == 1 ? "pack_x16" : "copy";
    step->label = weight.name;
    step->refs = {Ref(Space::Weights, 0, weight.offset)};
    step->ints = {static_cast<std::int64_t>(index)};
    step->weight_bytes = static_cast<std::int64_t>(weight.bytes);
    return step;
  }

  const passes::Program& program_;
  const ir::Graph& graph_;
  const ModelFile& model_;
  ValuePlaces places_;
  DType kv_type_;
};

}  // namespace

std::unique_ptr<plan::ProgramT> lower_cpu(const passes::Program& program, const ModelFile& model, DType kv_type,
                                          const passes::Program* hidden) {
  return CpuLowering(program, model, kv_type).run(hidden);
}

}  // namespace forge::codegen
