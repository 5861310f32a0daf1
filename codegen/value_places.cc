#include "codegen/value_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "codegen/describe_buffers.h"
#include "passes/passes.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

using ir::Op;
using plan::Operand;
using plan::Space;

/// The plan's variant without its steps.
std::unique_ptr<plan::VariantT> describe(const passes::Variant& variant) {
  auto out = std::make_unique<plan::VariantT>();
  const auto& bounds = variant.bounds;
  out->name = variant.name;
  out->bounds = plan::Bounds(bounds.tokens, bounds.rows, bounds.sequences, bounds.table_blocks);
  out->arena_bytes = variant.arena_bytes;
  out->arena_bound_bytes = variant.arena_bound_bytes;
  return out;
}

/// Columns of the rows that the graph outputs instead of logits; 0 if it outputs logits.
std::int64_t hidden_width_of(const ir::Graph& graph) {
  const auto& outputs = graph.outputs();
  const auto hidden = std::ranges::find(outputs, ir::kHiddenOutput, &ir::Graph::Output::name);
  return hidden == outputs.end() ? 0 : graph.type(hidden->value).cols();
}

}  // namespace

void ValuePlaces::place_all() {
  declare_weights();
  weights_.place();
  place_constants();
}

void ValuePlaces::place_with_weights_of(const ValuePlaces& others) {
  weights_.share_offsets(others.weights_);
  constants_ = others.constants_;
  choice_constants_ = others.choice_constants_;
  place_constants();
}

/// Declares each use of a weight by a node that runs in a step, in topological order, which is the order of placement.
void ValuePlaces::declare_weights() {
  for (const auto node : graph_.topological_order()) {
    const auto op = graph_.op(node);
    if (!passes::runs_in_step(graph_, node)) continue;
    for (std::size_t i = 0; i < graph_.operands(node).size(); ++i) {
      const auto value = graph_.operand(node, i);
      if (!passes::is_weight(graph_, value)) continue;
      weights_.declare(value, passes::is_matmul(graph_, node) ? WeightUse::kMatmul
                              : op == Op::kEmbed              ? WeightUse::kEmbedding
                                                              : WeightUse::kVector);
    }
  }
}

/// Appends values at a multiple of 64 bytes.
Operand ValuePlaces::add_constants(std::span<const float> values) {
  constants_.resize((constants_.size() + 63) / 64 * 64);
  const auto at = plan::operand_at(Space::Constants, 0, constants_.size());
  constants_.resize(constants_.size() + values.size_bytes());
  std::memcpy(constants_.data() + at.offset(), values.data(), values.size_bytes());
  return at;
}

void ValuePlaces::place_constants() {
  for (const auto node : graph_.topological_order())
    if (graph_.op(node) == Op::kConstant)
      constant_at_.emplace(node, add_constants(graph_.attrs_as<ir::ConstantAttrs>(node).values));
}

// Groups are numbered in the graph and may come in any order, so the lists grow as needed.
void ValuePlaces::place_states(std::int64_t block_tokens, DType kv_type, const BlockBytes& block_bytes,
                               plan::ProgramT& out) const {
  const auto number = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  const auto put = [](auto& groups, std::int64_t at, const auto& group) {
    if (groups.size() <= static_cast<std::size_t>(at)) groups.resize(static_cast<std::size_t>(at) + 1);
    groups[static_cast<std::size_t>(at)] = group;
  };
  for (const auto node : graph_.topological_order())
    if (graph_.op(node) == Op::kKvState) {
      const auto& kv = graph_.attrs_as<ir::KvStateAttrs>(node);
      put(out.kv_groups, kv.group,
          plan::KvGroup(number(kv.layers), number(kv.kv_heads), number(kv.head_dim), number(value_dim_of(kv)),
                        number(block_tokens), number(kv.window), block_bytes(kv), static_cast<std::uint8_t>(kv_type),
                        kv.shared_row == 1));
    } else if (graph_.op(node) == Op::kRecurrentState) {
      const auto& state = graph_.attrs_as<ir::RecurrentStateAttrs>(node);
      put(out.recurrent_groups, state.group, plan::RecurrentGroup(number(state.layers), state.floats * kFloatBytes));
    }
}

// The addresses depend on the variant's arena (rows_ and variant_), so these are set first.
std::unique_ptr<plan::VariantT> ValuePlaces::lower(passes::Variant& variant, const Finish& finish) {
  variant_ = &variant;
  rows_.emplace(graph_, variant.buffers);
  auto out = describe(variant);
  out->buffers = describe_buffers(graph_, numbers_, variant);
  out->steps = lower(std::span(variant.steps), finish);
  out->sample_steps = lower(std::span(variant.sample_steps), finish);
  return out;
}

std::vector<std::unique_ptr<plan::StepT>> ValuePlaces::lower(std::span<passes::Step> steps, const Finish& finish) {
  std::vector<std::unique_ptr<plan::StepT>> out;
  for (auto& [nodes, choice, scratch_offset] : steps) {
    if (choice.step.body.type == plan::Body::NONE) continue;
    const auto add = [&](passes::Choice& one) {
      out.push_back(std::make_unique<plan::StepT>(std::move(one.step)));
      for (auto& operand : out.back()->operands) operand = address_of(operand, one, scratch_offset);
      if (finish) finish(one, *out.back());
    };
    add(choice);
    for (auto& next : choice.then) add(next);
  }
  return out;
}

/// The final form of an operand of a choice (passes::Choice says what its offset is relative to): of a value, the
/// address of the value plus the offset; else scratch of the step, constants of the choice, or final already.
Operand ValuePlaces::address_of(const Operand& operand, const passes::Choice& choice, std::int64_t scratch_offset) {
  const auto further = static_cast<std::int64_t>(operand.offset());
  if (operand.value() != plan::kNoValue) {
    const auto place = moved(place_of(numbers_.value(operand.value())), further);
    const auto row_bytes = operand.row_bytes() != 0 ? operand.row_bytes() : place.row_bytes();
    return {place.space(), operand.dtype(), place.index(), row_bytes, place.offset(), operand.value(), place.layout()};
  }
  if (operand.space() == Space::Arena) return moved(operand, scratch_offset);
  if (operand.space() != Space::Constants) return operand;
  auto found = choice_constants_.find(choice.constants);
  if (found == choice_constants_.end())
    found = choice_constants_.emplace(choice.constants, add_constants(choice.constants)).first;
  return moved(found->second, further);
}

/// The address of a value. A value may be a range of columns of another (RowLayout); then it has that one's rows.
Operand ValuePlaces::place_of(ir::Value value) const {
  const auto [of, first] = rows_->columns_of(value);
  const auto& type = graph_.type(of);
  const auto base = base_of(of);
  const bool has_rows =
      base.layout() == static_cast<std::uint8_t>(quant::Layout::kNative) && base.space() != Space::File;
  const auto stored = variant_->stored.find(of);
  const auto dtype = stored != variant_->stored.end() ? stored->second.dtype : type.dtype;
  const auto row_bytes = has_rows ? row_bytes_of(dtype, rows_->row_elements(of)) : 0;
  return moved(with_row_bytes(base, row_bytes), first * kFloatBytes);
}

/// The address of a value that has rows of its own, without row_bytes: input, constant, weight, output or arena.
Operand ValuePlaces::base_of(ir::Value value) const {
  switch (graph_.op(value.node)) {
    case Op::kInput:
      return plan::operand_at(Space::Input,
                              static_cast<std::uint16_t>(graph_.attrs_as<ir::InputAttrs>(value.node).kind), 0);
    case Op::kConstant:
      return constant_at_.at(value.node);
    case Op::kWeight:
    case Op::kConcatRows:
    case Op::kSliceRows:
      return weights_.at(value);
    default:
      break;
  }
  for (const auto& output : graph_.outputs())
    if (output.value == value && (output.name == "logits" || output.name == ir::kHiddenOutput))
      return plan::operand_at(Space::Output, 0, 0);
  const auto buffer = rows_->buffer_of(value);
  invariant(buffer >= 0, "CG-004",
            fmt::format("%{} of {} has no place", numbers_.of(value), ir::op_def(graph_.op(value.node)).name));
  return plan::operand_at(Space::Arena, 0,
                          static_cast<std::uint64_t>(variant_->buffers[static_cast<std::size_t>(buffer)].offset));
}

/// Columns of the embeddings that steps take as input; 0 if they take token ids.
std::int64_t ValuePlaces::input_width() const {
  for (const auto node : graph_.nodes())
    if (graph_.op(node) == Op::kInput) {
      const auto& input = graph_.attrs_as<ir::InputAttrs>(node);
      if (input.kind == ir::InputKind::kEmbeddings) return input.width;
    }
  return 0;
}

void ValuePlaces::take(plan::ProgramT& out) {
  out.input_width = input_width();
  out.weights_bytes = weights_.bytes();
  out.weights = weights_.take();
  out.constants = std::move(constants_);
}

void lower_variants(passes::Program& program, ValuePlaces& places, const ValuePlaces::Finish& finish,
                    plan::ProgramT& out) {
  for (auto& variant : program.variants) {
    out.variants.push_back(places.lower(variant, finish));
    out.variants.back()->hidden_width = hidden_width_of(program.graph);
  }
  if (program.arena_bytes <= out.arena_bytes) return;
  out.arena_bytes = program.arena_bytes;
  out.arena_bound_bytes = program.arena_bound_bytes;
}

void lower_beside(passes::Program& hidden, ValuePlaces& places, ValuePlaces& beside, const ValuePlaces::Finish& finish,
                  plan::ProgramT& out) {
  invariant(hidden_width_of(hidden.graph) > 0, "CG-006", "a program for embeddings has no output of hidden rows");
  beside.place_with_weights_of(places);
  lower_variants(hidden, beside, finish, out);
  places.take_constants(beside);
}

}  // namespace forge::codegen
