#include "ir/op.h"

#include <array>

#include "ir/ops.h"

namespace forge::ir {
namespace {

constexpr auto kOpCount = static_cast<std::size_t>(Op::kCount_);
// Limits on results and attributes; no real model comes near them.
constexpr std::size_t kRankMax = 4;
constexpr std::size_t kPartsMax = 4096;
constexpr std::int64_t kElementsMax = std::int64_t{1} << 40;

/// Collects the definitions of ir/ops/ into an array indexed by Op and checks that each op has exactly one (IR-000).
std::array<OpDef, kOpCount> make_table() {
  std::array<OpDef, kOpCount> table{};
  std::size_t count = 0;
  for (const auto defs : {ops::source_defs(), ops::elementwise_defs(), ops::matmul_defs(), ops::norm_defs(),
                          ops::rope_defs(), ops::hadamard_defs(), ops::attention_defs(), ops::select_keys_defs(),
                          ops::expert_defs(), ops::arrange_defs(), ops::recurrent_defs(), ops::self_attention_defs()})
    for (const OpDef& def : defs) {
      table[static_cast<std::size_t>(def.op)] = def;
      ++count;
    }
  bool complete = count == kOpCount;
  for (const OpDef& def : table) complete = complete && !def.name.empty();
  invariant(complete, "IR-000", "the op table has exactly one definition an op");
  return table;
}

const std::array<OpDef, kOpCount>& table() {
  static const auto kTable = make_table();
  return kTable;
}

/// Limits every result, so that later size arithmetic cannot overflow even when the attributes come from a hostile plan
/// file.
void check_result(const OpDef& def, const TensorType& type) {
  const auto refuse = [&](const char* why) {
    throw Error(ErrorCode::kInternal, fmt::format("{}: a result would be {}", def.name, type.text()), why);
  };
  if (type.is_state()) {
    if (!type.shape.empty()) refuse("a state has no shape");
    return;
  }
  if (type.shape.size() > kRankMax) refuse("at most 4 dimensions");
  std::int64_t elements = 1;
  for (const Dim& dim : type.shape) {
    if (!dim.is_constant()) continue;
    if (dim.value < 1) refuse("dimensions are positive");
    if (dim.value > kElementsMax / elements) refuse("at most 2^40 elements");
    elements *= dim.value;
  }
  const auto block = dtype_info(type.dtype).block_elems;
  if (block > 1 && (type.shape.empty() || !type.shape.back().is_constant() || type.cols() % block != 0))
    refuse("a row is whole blocks of the element type");
}

}  // namespace

const OpDef& op_def(Op op) {
  invariant(static_cast<std::size_t>(op) < kOpCount, "IR-000", "an op number outside the table");
  return table()[static_cast<std::size_t>(op)];
}

const OpDef* find_op(std::string_view name) {
  for (const OpDef& def : table())
    if (def.name == name) return &def;
  return nullptr;
}

std::vector<TensorType> infer_types(Op op, const Attrs& attrs, std::span<const TensorType> operands) {
  const OpDef& def = op_def(op);
  if (attrs.index() != def.attrs_index)
    throw Error(ErrorCode::kInternal, fmt::format("{}: wrong kind of attributes", def.name),
                fmt::format("alternative {} instead of {}", attrs.index(), def.attrs_index));
  if (operands.size() < def.operands_min || (def.operands_max != 255 && operands.size() > def.operands_max))
    throw Error(ErrorCode::kInternal, fmt::format("{}: {} operands", def.name, operands.size()),
                def.operands_max == 255 ? fmt::format("takes at least {}", def.operands_min)
                                        : fmt::format("takes {} to {}", int{def.operands_min}, int{def.operands_max}));
  auto results = def.infer(attrs, operands);
  for (const TensorType& type : results) check_result(def, type);
  return results;
}

namespace ops {

void refuse_operand(std::string_view op, std::size_t operand, const TensorType& type, const std::string& wanted) {
  throw Error(ErrorCode::kInternal, fmt::format("{}: operand {} is {}", op, operand, type.text()), "must be " + wanted);
}

void refuse_attr(std::string_view op, std::string_view attr, const std::string& value, const std::string& wanted) {
  throw Error(ErrorCode::kInternal, fmt::format("{}: attribute {} = {}", op, attr, value), "must be " + wanted);
}

void attr_between(std::string_view op, std::string_view attr, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) refuse_attr(op, attr, fmt::to_string(value), fmt::format("in {}..{}", low, high));
}

void require_f32(std::string_view op, Types operands, std::size_t operand, std::size_t rank) {
  const TensorType& type = operands[operand];
  if (type.dtype != DType::kF32 || type.shape.size() != rank || !type.shape.back().is_constant())
    refuse_operand(op, operand, type, fmt::format("f32 with {} dimensions, the last one a constant", rank));
}

void require_rows(std::string_view op, Types operands, std::size_t operand) {
  const std::size_t rank = operands[operand].shape.size();
  require_f32(op, operands, operand, rank == 3 ? 3 : 2);
}

void require_i32(std::string_view op, Types operands, std::size_t operand, const Shape& shape) {
  const TensorType wanted{DType::kI32, shape};
  if (operands[operand] != wanted) refuse_operand(op, operand, operands[operand], wanted.text());
}

void require_state(std::string_view op, Types operands, std::size_t operand) {
  if (!operands[operand].is_state()) refuse_operand(op, operand, operands[operand], "state");
}

/// Excluded are the types of activations, states and integers, and f64, which no matmul takes.
bool is_weight_dtype(DType type) {
  switch (type) {
    case DType::kQ8A_32:
    case DType::kQ8A_16:
    case DType::kQ16A_16:
    case DType::kF16A:
    case DType::kFp8:
    case DType::kState:
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
    case DType::kF64:
      return false;
    default:
      return true;
  }
}

bool is_activation_dtype(DType type) {
  return type == DType::kF32 || is_quantized_activation(type);
}

Cost streaming_cost(Types operands, Types results, const Bounds& bounds, std::int64_t flops_per_element) {
  Cost cost;
  for (const TensorType& type : operands) cost.activation_bytes += type.bytes(bounds);
  for (const TensorType& type : results) {
    cost.activation_bytes += type.bytes(bounds);
    cost.flops += flops_per_element * type.elements(bounds);
  }
  return cost;
}

Cost no_cost(const Attrs&, Types, Types, const Bounds&) {
  return {};
}

std::vector<std::int64_t> part_offsets(const PartsAttrs& parts) {
  std::vector<std::int64_t> offsets(parts.sizes.size());
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < parts.sizes.size(); ++i) {
    offsets[i] = offset;
    offset += parts.sizes[i];
  }
  return offsets;
}

/// With a unit u and n parts, column c lies in run c / u of its part; that run is number (c / u) * n + part of the
/// whole.
std::int64_t part_position(const PartsAttrs& parts, std::span<const std::int64_t> offsets, std::size_t part,
                           std::int64_t column) {
  if (parts.unit == 0) return offsets[part] + column;
  const auto count = static_cast<std::int64_t>(parts.sizes.size());
  const std::int64_t unit = parts.unit;
  return (column / unit * count + static_cast<std::int64_t>(part)) * unit + column % unit;
}

std::int64_t parts_total(std::string_view op, const PartsAttrs& parts, std::size_t count) {
  if (parts.sizes.empty() || parts.sizes.size() != count)
    refuse_attr(op, "sizes", fmt::format("({} of them)", parts.sizes.size()), "one size a part");
  if (parts.sizes.size() > kPartsMax)
    refuse_attr(op, "sizes", fmt::format("({} of them)", parts.sizes.size()), fmt::format("{} at most", kPartsMax));
  attr_between(op, "unit", parts.unit, 0, kCountMax);
  std::int64_t total = 0;
  for (const std::int64_t size : parts.sizes) {
    attr_between(op, "sizes", size, 1, kCountMax);
    if (parts.unit > 0 && (size != parts.sizes[0] || size % parts.unit != 0))
      refuse_attr(op, "sizes", fmt::to_string(size),
                  fmt::format("equal and multiples of the unit {} where parts alternate", parts.unit));
    total += size;
    attr_between(op, "sizes", total, 1, kCountMax);
  }
  return total;
}

}  // namespace ops
}  // namespace forge::ir
