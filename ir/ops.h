#pragma once
// Private to ops_*.cc, op.cc: what op definitions are written with. One function a file hands over its rows of the
// table.

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
std::span<const OpDef> attention_defs();
std::span<const OpDef> expert_defs();
std::span<const OpDef> arrange_defs();

using Types = std::span<const TensorType>;
using Operands = std::span<const Tensor* const>;
using Results = std::span<Tensor>;

/// Throws the error of a shape rule: "rms_norm: operand 1 (weight) is f32[12]: must be f32[576], the attribute dim".
[[noreturn]] void refuse_operand(std::string_view op, std::size_t operand, const TensorType& type,
                                 const std::string& wanted);
/// Throws the error of an attribute that makes no sense: "rope: attribute head_dim = 0: must be positive".
[[noreturn]] void refuse_attr(std::string_view op, std::string_view attr, const std::string& value,
                              const std::string& wanted);
/// Throws unless `value` lies in [low, high].
void attr_between(std::string_view op, std::string_view attr, std::int64_t value, std::int64_t low, std::int64_t high);
/// Throws unless the operand is f32, has `rank` dimensions and a constant last one.
void want_f32(std::string_view op, Types operands, std::size_t operand, std::size_t rank);
/// Throws unless the operand is f32 rows: [M,N], or [M,U,N] where each of M rows has one for each of U experts.
void want_rows(std::string_view op, Types operands, std::size_t operand);
/// Throws unless the operand is i32 of exactly `shape`.
void want_i32(std::string_view op, Types operands, std::size_t operand, const Shape& shape);
/// Throws unless the operand is a state.
void want_state(std::string_view op, Types operands, std::size_t operand);

/// Is it an element type that a matrix or an embedding table of a model file has?
bool is_weight_dtype(DType type);
/// A type of what is multiplied with a weight.
bool is_product_dtype(DType type);

/// Largest attribute that counts elements, heads, layers: keeps every product of two of them inside 64 bits.
inline constexpr std::int64_t kCountMax = std::int64_t{1} << 31;

/// Cost of an op that reads all its operands and writes all its results, `flops_per_element` for each result element.
Cost streaming_cost(Types operands, Types results, const Bounds& bounds, std::int64_t flops_per_element);
Cost no_cost(const Attrs&, Types, Types, const Bounds&);

/// Where column `column` of part `part` lies in the whole (PartsAttrs); a weight's rows follow the same rule.
std::int64_t part_position(const PartsAttrs& parts, std::span<const std::int64_t> offsets, std::size_t part,
                           std::int64_t column);
/// Running sums of the sizes.
std::vector<std::int64_t> part_offsets(const PartsAttrs& parts);
/// Throws unless sizes are positive, one each of `count` (where given), and equal multiples of a unit above 0; their
/// sum.
std::int64_t parts_total(std::string_view op, const PartsAttrs& parts, std::size_t count);

}  // namespace forge::ir::ops
