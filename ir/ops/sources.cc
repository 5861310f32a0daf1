// Ops without operands: step inputs, weights, constants and states before the step; and embed and gather_rows, which
// select rows of an operand.

#include <algorithm>
#include <array>

#include "ir/ops.h"

namespace forge::ir::ops {
namespace {

constexpr std::int64_t kEmbeddingWidthMax = 1 << 24;

/// Inputs have symbolic shapes; all symbols of a graph originate here.
std::vector<TensorType> infer_input(const Attrs& attrs, Types) {
  const auto& input = std::get<InputAttrs>(attrs);
  switch (input.kind) {
    case InputKind::kIds:
    case InputKind::kPositions:
    case InputKind::kSequence:
      return {{DType::kI32, {Symbol::kTokens}}};
    case InputKind::kRows:
      return {{DType::kI32, {Symbol::kRows}}};
    case InputKind::kKvLength:
    case InputKind::kStateRead:
    case InputKind::kStateWrite:
      return {{DType::kI32, {Symbol::kSequences}}};
    case InputKind::kBlockTable:
      return {{DType::kI32, {Symbol::kSequences, Symbol::kTableBlocks}}};
    case InputKind::kEmbeddings:
      attr_between("input", "width", input.width, 1, kEmbeddingWidthMax);
      return {{DType::kF32, {Symbol::kTokens, input.width}}};
  }
  refuse_attr("input", "kind", "?", "one of the step's inputs");
}

void require_constant_shape(std::string_view op, const TensorType& type) {
  if (type.shape.empty() || !std::ranges::all_of(type.shape, &Dim::is_constant))
    refuse_attr(op, "type", type.text(), "a tensor of constant dimensions");
}

std::vector<TensorType> infer_weight(const Attrs& attrs, Types) {
  const auto& weight = std::get<WeightAttrs>(attrs);
  if (weight.name.empty()) refuse_attr("weight", "name", "\"\"", "the name of a tensor");
  if (is_quantized_activation(weight.type.dtype) || weight.type.dtype == DType::kFp8 || weight.type.is_state())
    refuse_attr("weight", "type", weight.type.text(), "an element type that model files have");
  require_constant_shape("weight", weight.type);
  return {weight.type};
}

std::vector<TensorType> infer_constant(const Attrs& attrs, Types) {
  const auto& constant = std::get<ConstantAttrs>(attrs);
  if (constant.type.dtype != DType::kF32) refuse_attr("constant", "type", constant.type.text(), "f32");
  require_constant_shape("constant", constant.type);
  // Dividing the number of values by each dimension cannot overflow, as the product of hostile dimensions could.
  std::int64_t left = static_cast<std::int64_t>(constant.values.size());
  for (const Dim& dim : constant.type.shape) left = dim.value > 0 && left % dim.value == 0 ? left / dim.value : -1;
  if (left != 1)
    refuse_attr("constant", "values", fmt::format("({} of them)", constant.values.size()),
                "one value for each element of " + constant.type.text());
  return {constant.type};
}

std::vector<TensorType> infer_kv_state(const Attrs& attrs, Types) {
  const auto& kv = std::get<KvStateAttrs>(attrs);
  constexpr std::int64_t kMax = 1 << 16;
  attr_between("kv_state", "group", kv.group, 0, kMax);
  attr_between("kv_state", "layers", kv.layers, 1, kMax);
  attr_between("kv_state", "kv_heads", kv.kv_heads, 1, kMax);
  attr_between("kv_state", "head_dim", kv.head_dim, 1, kMax);
  attr_between("kv_state", "window", kv.window, 0, kCountMax);
  attr_between("kv_state", "value_dim", kv.value_dim, 0, kv.shared_row == 1 ? kv.head_dim : kMax);
  attr_between("kv_state", "shared_row", kv.shared_row, 0, 1);
  return {{DType::kState, {}}};
}

std::vector<TensorType> infer_recurrent_state(const Attrs& attrs, Types) {
  const auto& state = std::get<RecurrentStateAttrs>(attrs);
  constexpr std::int64_t kMax = 1 << 16;
  attr_between("recurrent_state", "group", state.group, 0, kMax);
  attr_between("recurrent_state", "layers", state.layers, 1, kMax);
  attr_between("recurrent_state", "floats", state.floats, 1, kCountMax);
  return {{DType::kState, {}}};
}

/// Throws unless operand 1 is a vector of i32 row numbers.
void require_indices(std::string_view op, Types operands) {
  const TensorType& type = operands[1];
  if (type.dtype != DType::kI32 || type.shape.size() != 1) refuse_operand(op, 1, type, "i32 with 1 dimension");
}

std::vector<TensorType> infer_embed(const Attrs&, Types operands) {
  const TensorType& table = operands[0];
  if (table.shape.size() != 2 || !table.shape[0].is_constant() || !table.shape[1].is_constant() ||
      !is_weight_dtype(table.dtype))
    refuse_operand("embed", 0, table, "a table [V,D] of constant dimensions");
  require_indices("embed", operands);
  return {{DType::kF32, {operands[1].shape[0], table.shape[1]}}};
}

std::vector<TensorType> infer_gather(const Attrs&, Types operands) {
  require_f32("gather_rows", operands, 0, 2);
  require_indices("gather_rows", operands);
  return {{DType::kF32, {operands[1].shape[0], operands[0].shape[1]}}};
}

/// embed reads one row of the table for each token.
Cost embed_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  const std::int64_t rows = results[0].rows(bounds);
  return {.weight_bytes = rows * stored_row_bytes(operands[0].dtype, operands[0].cols()),
          .activation_bytes = operands[1].bytes(bounds) + results[0].bytes(bounds)};
}

Cost gather_cost(const Attrs&, Types operands, Types results, const Bounds& bounds) {
  return {.activation_bytes = operands[1].bytes(bounds) + 2 * results[0].bytes(bounds)};
}

/// The reference of both embed and gather_rows.
void pick_rows(const Attrs&, Operands operands, Results results, EvalContext&) {
  const Tensor& table = *operands[0];
  const std::int64_t cols = table.cols();
  const std::int64_t rows = table.rows();
  for (std::size_t i = 0; i < operands[1]->i32.size(); ++i) {
    const std::int32_t row = operands[1]->i32[i];
    if (row < 0 || row >= rows)
      throw Error(ErrorCode::kInternal, fmt::format("row {} of a table of {} rows", row, rows),
                  "an id or row number of the step is out of range");
    std::copy_n(table.f32.begin() + row * cols, cols, results[0].f32.begin() + static_cast<std::int64_t>(i) * cols);
  }
}

}  // namespace

std::span<const OpDef> source_defs() {
  static constexpr std::array kDefs{
      OpDef{.op = Op::kInput,
            .name = "input",
            .attrs_index = attrs_index<InputAttrs>(),
            .infer = infer_input,
            .cost = no_cost},
      OpDef{.op = Op::kWeight,
            .name = "weight",
            .attrs_index = attrs_index<WeightAttrs>(),
            .infer = infer_weight,
            .cost = no_cost},
      OpDef{.op = Op::kConstant,
            .name = "constant",
            .attrs_index = attrs_index<ConstantAttrs>(),
            .infer = infer_constant,
            .cost = no_cost},
      OpDef{.op = Op::kKvState,
            .name = "kv_state",
            .attrs_index = attrs_index<KvStateAttrs>(),
            .infer = infer_kv_state,
            .cost = no_cost},
      OpDef{.op = Op::kRecurrentState,
            .name = "recurrent_state",
            .attrs_index = attrs_index<RecurrentStateAttrs>(),
            .infer = infer_recurrent_state,
            .cost = no_cost},
      OpDef{.op = Op::kEmbed,
            .name = "embed",
            .operands_min = 2,
            .operands_max = 2,
            .infer = infer_embed,
            .cost = embed_cost,
            .reference = pick_rows},
      OpDef{.op = Op::kGatherRows,
            .name = "gather_rows",
            .operands_min = 2,
            .operands_max = 2,
            .infer = infer_gather,
            .cost = gather_cost,
            .reference = pick_rows},
  };
  return kDefs;
}

}  // namespace forge::ir::ops
