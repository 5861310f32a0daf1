#pragma once
// Shapes and types of IR values. A dimension is a constant or a symbol: f32[T,576] has one row for each token of the
// step. A compiled variant binds each symbol to an upper bound (say T = 512), which sizes its buffers.

#include <array>
#include <compare>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/quant/dtype.h"

namespace forge::ir {

/// Extents that differ from step to step:
///   T kTokens       tokens of the step, all sequences together
///   R kRows         tokens whose logits are computed
///   B kSequences    sequences of the step
///   P kTableBlocks  entries in a sequence's row of the block table
enum class Symbol : std::uint8_t { kNone, kTokens, kRows, kSequences, kTableBlocks };
inline constexpr std::array kSymbols{Symbol::kTokens, Symbol::kRows, Symbol::kSequences, Symbol::kTableBlocks};
/// "T", "R", "B", "P"; "" for kNone.
std::string_view symbol_name(Symbol symbol);

/// One dimension: a constant or a symbol.
struct Dim {
  std::int64_t value = 0;  ///< the constant; 0 while `symbol` is set
  Symbol symbol = Symbol::kNone;

  constexpr Dim() = default;
  constexpr Dim(std::int64_t constant) : value(constant) {}  // NOLINT: implicit on purpose: {Symbol::kTokens, 576}
  constexpr Dim(Symbol s) : symbol(s) {}                     // NOLINT
  [[nodiscard]] constexpr bool is_constant() const { return symbol == Symbol::kNone; }
  auto operator<=>(const Dim&) const = default;
};

using Shape = std::vector<Dim>;  ///< row-major, slowest dimension first; empty: a scalar

/// A value for each symbol: the upper bounds of a variant, or the real counts of one step.
struct Bounds {
  std::int64_t tokens = 0, rows = 0, sequences = 0, table_blocks = 0;
  [[nodiscard]] std::int64_t of(Symbol symbol) const;
  auto operator<=>(const Bounds&) const = default;
};

/// Element type and shape of a value. A state (KV cache) has dtype kState and no shape.
struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  bool operator==(const TensorType&) const = default;
  [[nodiscard]] bool is_state() const { return dtype == DType::kState; }
  /// The last dimension; 0 if it is a symbol. Precondition: rank >= 1.
  [[nodiscard]] std::int64_t cols() const { return shape.back().value; }
  /// Product of all dimensions but the last under `bounds`.
  [[nodiscard]] std::int64_t rows(const Bounds& bounds) const;
  [[nodiscard]] std::int64_t elements(const Bounds& bounds) const;
  /// Bytes of the stored value, a multiple of stored_row_bytes(); 0 for a state.
  [[nodiscard]] std::int64_t bytes(const Bounds& bounds) const;
  /// "f32[T,576]"
  [[nodiscard]] std::string text() const;
};

/// Bytes of one stored row of `cols` elements. Rows of quantised activations are padded to a multiple of 64 bytes, all
/// others are dense.
std::int64_t stored_row_bytes(DType dtype, std::int64_t cols);

}  // namespace forge::ir
