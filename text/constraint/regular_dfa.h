#pragma once
// The automaton of a RegularPool's expressions: the derivatives by each class of bytes, computed when they are first
// asked for and kept in a table.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "text/constraint/regular.h"

namespace forge::text::constraint {

/// States are expressions. RegularPool::kEmpty is the only dead state: a step into a language without words gives it,
/// so every other state can still reach an end. Not thread-safe.
class RegularDfa {
 public:
  /// `pool` must outlive this.
  explicit RegularDfa(RegularPool& pool) : pool_(pool), classes_(pool.byte_classes()) {}

  /// The state after `byte`. Errors: kMemory (see RegularPool); also kMemory where emptiness cannot be decided.
  [[nodiscard]] Expr step(Expr state, std::uint8_t byte) {
    if (state < rows_.size() && rows_[state] != kNoRow) {
      const auto next = table_[rows_[state] + classes_.of[byte]];
      if (next != kUnknown) return next;
    }
    return compute(state, byte);
  }
  [[nodiscard]] RegularPool& pool() { return pool_; }

 private:
  static constexpr std::uint32_t kNoRow = UINT32_MAX, kUnknown = UINT32_MAX;
  static constexpr std::size_t kTableMax = std::size_t{1} << 20;  // entries; then it is emptied and filled again

  Expr compute(Expr state, std::uint8_t byte);

  RegularPool& pool_;
  RegularPool::ByteClasses classes_;
  std::vector<std::uint32_t> rows_;   // where each state's row begins
  std::vector<std::uint32_t> table_;  // [rows, classes]
};

}  // namespace forge::text::constraint
