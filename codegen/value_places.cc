#include "codegen/value_places.h"

#include <fmt/format.h>

#include <cstring>

#include "passes/give_hidden.h"
#include "passes/passes.h"
#include "support/error.h"

namespace forge::codegen {
namespace {

using ir::Op;
using plan::Operand;
using plan::Space;

std::int64_t tail_elements(const ir::TensorType& type) {
  std::int64_t count = 1;
  for (std::size_t i = 1; i < type.shape.size(); ++i) count *= type.shape[i].value;
  return count;
}

}  // namespace

std::uint32_t row_bytes_of(DType type, std::int64_t cols) {
  return static_cast<std::uint32_t>(type == DType::kQ8A ? ir::stored_row_bytes(type, cols) : cols * kFloatBytes);
}

void ValuePlaces::place_all() {
  declare_weights();
  weights_.place();
  place_constants();
}

void ValuePlaces::place_beside(const ValuePlaces& others) {
  weights_.place_like(others.weights_);
  constants_ = others.constants_;
  place_constants();
}

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

Operand ValuePlaces::add_constant(std::span<const float> values) {
  constants_.resize((constants_.size() + 63) / 64 * 64);
  const auto at = plan::operand_at(Space::Constants, 0, constants_.size());
  constants_.resize(constants_.size() + values.size_bytes());
  std::memcpy(constants_.data() + at.offset(), values.data(), values.size_bytes());
  return at;
}

void ValuePlaces::place_constants() {
  for (const auto node : graph_.topological_order())
    if (graph_.op(node) == Op::kConstant)
      constant_at_.emplace(node, add_constant(graph_.attrs_as<ir::ConstantAttrs>(node).values));
}

std::vector<plan::KvGroup> ValuePlaces::kv_groups(
    std::int64_t block_tokens, const std::function<std::int64_t(const ir::KvStateAttrs&)>& block_bytes) const {
  std::vector<plan::KvGroup> out;
  for (const auto node : graph_.topological_order()) {
    if (graph_.op(node) != Op::kKvState) continue;
    const auto& kv = graph_.attrs_as<ir::KvStateAttrs>(node);
    const auto groups = static_cast<std::size_t>(kv.group) + 1;
    if (out.size() < groups) out.resize(groups);
    out[groups - 1] = plan::KvGroup(static_cast<std::int32_t>(kv.layers), static_cast<std::int32_t>(kv.kv_heads),
                                    static_cast<std::int32_t>(kv.head_dim), static_cast<std::int32_t>(block_tokens),
                                    static_cast<std::int32_t>(kv.window), block_bytes(kv));
  }
  return out;
}

Rows ValuePlaces::rows_of(ir::Value value) const {
  const auto& type = graph_.type(value);
  const std::int64_t width = type.shape.empty() ? 1 : type.shape.size() == 1 ? type.cols() : tail_elements(type);
  const auto rows_at = [&](const Operand& place) {
    return Rows{{place.space(), static_cast<std::uint8_t>(type.dtype), place.index(), row_bytes_of(type.dtype, width),
                 place.offset()},
                width};
  };
  switch (graph_.op(value.node)) {
    case Op::kInput:
      return rows_at(plan::operand_at(Space::Input,
                                      static_cast<std::uint16_t>(graph_.attrs_as<ir::InputAttrs>(value.node).kind), 0));
    case Op::kConstant:
      return rows_at(constant_at_.at(value.node));
    case Op::kWeight:
    case Op::kConcatRows:
    case Op::kSliceRows:
      return rows_at(weights_.at(value, WeightUse::kVector).ref);
    default:
      break;
  }
  for (const auto& output : graph_.outputs())
    if (output.value == value && (output.name == "logits" || output.name == passes::kHiddenOutput))
      return rows_at(plan::operand_at(Space::Output, 0, 0));
  const auto* buffer = variant_->buffer_of(value);
  if (graph_.op(value.node) == Op::kSplit && graph_.attrs_as<ir::PartsAttrs>(value.node).unit == 0) {
    const auto whole = graph_.operand(value.node, 0);
    if (buffer == nullptr || buffer == variant_->buffer_of(whole)) {  // a view into the rows that were split
      auto place = rows_of(whole);
      const auto& sizes = graph_.attrs_as<ir::PartsAttrs>(value.node).sizes;
      for (std::uint32_t i = 0; i < value.result; ++i) place.ref = moved(place.ref, sizes[i] * kFloatBytes);
      return place;
    }
  }
  invariant(buffer != nullptr, "CG-004",
            fmt::format("%{} of {} has no place", value.node, ir::op_def(graph_.op(value.node)).name));
  return rows_at(plan::operand_at(Space::Arena, 0, static_cast<std::uint64_t>(buffer->offset)));
}

void ValuePlaces::take(plan::ProgramT& out) {
  out.weights_bytes = weights_.bytes();
  out.weights = weights_.take();
  out.constants = std::move(constants_);
}

}  // namespace forge::codegen
