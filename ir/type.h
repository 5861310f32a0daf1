#pragma once
// Shapes and types of IR values. A dimension is a constant or a bounded symbol; a variant later binds each symbol to
// its bound, so that kernels only ever see constants.

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/quant/dtype.h"

namespace forge::ir {

/// T: tokens of this step; R: rows whose logits are wanted; B: sequences; P: entries of a sequence's block table.
enum class Symbol : std::uint8_t { kNone, kTokens, kRows, kSequences, kTableBlocks };
inline constexpr std::array kSymbols{Symbol::kTokens, Symbol::kRows, Symbol::kSequences, Symbol::kTableBlocks};
/// "T", "R", "B", "P"; "" for kNone.
std::string_view symbol_name(Symbol symbol);

struct Dim {
  std::int64_t value = 0;  ///< the constant; 0 while `symbol` is set
  Symbol symbol = Symbol::kNone;

  constexpr Dim() = default;
  constexpr Dim(std::int64_t constant) : value(constant) {}  // NOLINT: a number is a dimension
  constexpr Dim(Symbol s) : symbol(s) {}                     // NOLINT
  [[nodiscard]] constexpr bool is_constant() const { return symbol == Symbol::kNone; }
  auto operator<=>(const Dim&) const = default;
};

using Shape = std::vector<Dim>;  ///< row-major, slowest first; empty is a scalar

/// What each symbol is bound to in one variant (upper bounds of the counts that a step really has).
struct Bounds {
  std::int64_t tokens = 0, rows = 0, sequences = 0, table_blocks = 0;
  [[nodiscard]] std::int64_t of(Symbol symbol) const;
  auto operator<=>(const Bounds&) const = default;
};

struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  bool operator==(const TensorType&) const = default;
  [[nodiscard]] bool is_state() const { return dtype == DType::kState; }
  /// The last dimension; it is always a constant. Precondition: rank >= 1.
  [[nodiscard]] std::int64_t cols() const { return shape.back().value; }
  /// Product of all dimensions but the last under `bounds`.
  [[nodiscard]] std::int64_t rows(const Bounds& bounds) const;
  [[nodiscard]] std::int64_t elements(const Bounds& bounds) const;
  /// Bytes of the value stored densely (rows of quantised activations padded to 64 bytes); a state has none.
  [[nodiscard]] std::int64_t bytes(const Bounds& bounds) const;
  /// "f32[T,576]"
  [[nodiscard]] std::string text() const;
};

/// Bytes of one stored row of `cols` elements: those of quantised activations are padded to 64 bytes, others are
/// dense.
std::int64_t stored_row_bytes(DType dtype, std::int64_t cols);

}  // namespace forge::ir
