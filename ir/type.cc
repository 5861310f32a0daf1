#include "ir/type.h"

#include <fmt/format.h>

namespace forge::ir {

std::string_view symbol_name(Symbol symbol) {
  switch (symbol) {
    case Symbol::kNone:
      return "";
    case Symbol::kTokens:
      return "T";
    case Symbol::kRows:
      return "R";
    case Symbol::kSequences:
      return "B";
    case Symbol::kTableBlocks:
      return "P";
  }
  return "";
}

std::int64_t Bounds::of(Symbol symbol) const {
  switch (symbol) {
    case Symbol::kNone:
      return 0;
    case Symbol::kTokens:
      return tokens;
    case Symbol::kRows:
      return rows;
    case Symbol::kSequences:
      return sequences;
    case Symbol::kTableBlocks:
      return table_blocks;
  }
  return 0;
}

namespace {

/// The number that a dimension stands for under `bounds`.
std::int64_t extent(const Dim& dim, const Bounds& bounds) {
  return dim.is_constant() ? dim.value : bounds.of(dim.symbol);
}

}  // namespace

std::int64_t TensorType::rows(const Bounds& bounds) const {
  std::int64_t product = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) product *= extent(shape[i], bounds);
  return product;
}

std::int64_t TensorType::elements(const Bounds& bounds) const {
  if (is_state()) return 0;
  return shape.empty() ? 1 : rows(bounds) * extent(shape.back(), bounds);
}

std::int64_t TensorType::bytes(const Bounds& bounds) const {
  if (is_state()) return 0;
  const std::int64_t cols_here = shape.empty() ? 1 : extent(shape.back(), bounds);
  return rows(bounds) * stored_row_bytes(dtype, cols_here);
}

std::string TensorType::text() const {
  std::string out(dtype_name(dtype));
  if (is_state()) return out;
  out += '[';
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ',';
    if (shape[i].is_constant())
      out += fmt::to_string(shape[i].value);
    else
      out += symbol_name(shape[i].symbol);
  }
  return out + ']';
}

std::int64_t stored_row_bytes(DType dtype, std::int64_t cols) {
  const auto bytes = static_cast<std::int64_t>(row_bytes(dtype, static_cast<std::size_t>(cols)));
  if (!is_quantized_activation(dtype)) return bytes;
  const int terms = activation_terms(dtype);
  return (bytes / terms + 63) / 64 * 64 * terms;
}

}  // namespace forge::ir
