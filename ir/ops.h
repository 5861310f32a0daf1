#pragma once
// Private to op.cc and ir/ops/: helpers for shape rules and costs, and one function for each file of ir/ops/ that
// returns its rows of the op table. To add an op: an enumerator in op.h, attributes in attrs.h if it has any, and an
// OpDef in one of these files.

#include <fmt/format.h>

#include <string>

#include "ir/interpreter.h"
#include "ir/op.h"
#include "ir/text/attrs_io.h"
#include "support/error.h"

namespace forge::ir::ops {

std::span<const OpDef> source_defs();
std::span<const OpDef> elementwise_defs();
std::span<const OpDef> matmul_defs();
std::span<const OpDef> norm_defs();
std::span<const OpDef> rope_defs();
std::span<const OpDef> hadamard_defs();
std::span<const OpDef> attention_defs();
std::span<const OpDef> select_keys_defs();
std::span<const OpDef> expert_defs();
std::span<const OpDef> arrange_defs();
std::span<const OpDef> recurrent_defs();
std::span<const OpDef> self_attention_defs();

using Types = std::span<const TensorType>;
using Operands = std::span<const Tensor* const>;
using Results = std::span<Tensor>;

/// Throws the error of a shape rule: "rms_norm: operand 1 is f32[12]: must be f32[576], the attribute dim".
[[noreturn]] void refuse_operand(std::string_view op, std::size_t operand, const TensorType& type,
                                 const std::string& wanted);
/// Throws the error of an invalid attribute: "rope: attribute rotary_dims = 3: must be even".
[[noreturn]] void refuse_attr(std::string_view op, std::string_view attr, const std::string& value,
                              const std::string& wanted);
/// Throws unless `value` lies in [low, high].
void attr_between(std::string_view op, std::string_view attr, std::int64_t value, std::int64_t low, std::int64_t high);
/// Throws unless the operand is f32, has `rank` dimensions and a constant last one.
void require_f32(std::string_view op, Types operands, std::size_t operand, std::size_t rank);
/// Throws unless the operand is f32 [M,N] or [M,U,N].
void require_rows(std::string_view op, Types operands, std::size_t operand);
/// Throws unless the operand is i32 of exactly `shape`.
void require_i32(std::string_view op, Types operands, std::size_t operand, const Shape& shape);
/// Throws unless the operand is a state.
void require_state(std::string_view op, Types operands, std::size_t operand);

/// True for element types of matrices and embedding tables in model files.
bool is_weight_dtype(DType type);
/// True for element types of activations that a matmul takes: f32, q8a_32, q8a_16, q16a_16.
bool is_activation_dtype(DType type);

/// Upper limit of attributes that count elements, heads or layers: the product of two of them fits into 64 bits.
inline constexpr std::int64_t kCountMax = std::int64_t{1} << 31;

/// Cost of an op that reads all its operands and writes all its results, `flops_per_element` for each result element.
Cost streaming_cost(Types operands, Types results, const Bounds& bounds, std::int64_t flops_per_element);
Cost no_cost(const Attrs&, Types, Types, const Bounds&);

/// Column of the whole at which column `column` of part `part` lies (PartsAttrs). The rows of a concatenated weight
/// follow the same rule. `offsets` are part_offsets(parts).
std::int64_t part_position(const PartsAttrs& parts, std::span<const std::int64_t> offsets, std::size_t part,
                           std::int64_t column);
/// First column of each part when parts follow one another: the running sums of the sizes.
std::vector<std::int64_t> part_offsets(const PartsAttrs& parts);
/// Checks `parts` and returns the sum of its sizes. Throws unless there are `count` positive sizes and, with a unit,
/// all are equal multiples of it.
std::int64_t parts_total(std::string_view op, const PartsAttrs& parts, std::size_t count);

}  // namespace forge::ir::ops
