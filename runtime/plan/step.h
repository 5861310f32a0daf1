#pragma once
// Helpers for plan steps (tables of plan.fbs) that code generation, executors and tools share.

#include <cstdint>
#include <string_view>

#include "runtime/plan/plan_generated.h"

namespace forge::plan {

/// Value of a role whose operand is absent.
inline constexpr std::uint16_t kNoOperand = 65535;
/// Operand::value of an operand that is not a value of the graph.
inline constexpr std::uint32_t kNoValue = 4294967295;

/// An operand at a fixed address: `offset` bytes into `space`. row_bytes: distance of rows, 0 if there are none. dtype:
/// number of a DType (0 is F32).
inline Operand operand_at(Space space, std::uint16_t index, std::uint64_t offset, std::uint32_t row_bytes = 0,
                          std::uint8_t dtype = 0) {
  return {space, dtype, index, row_bytes, offset, kNoValue, 0};
}

/// An operand that refers to a value of the graph by its number, before it has an address. Its offset is relative to
/// the value's start; space and row distance are filled in when the arena is packed.
inline Operand operand_of(std::uint32_t value, std::uint8_t dtype) {
  return {Space::None, dtype, 0, 0, 0, value, 0};
}

/// The operand moved by `bytes`.
inline Operand moved(const Operand& from, std::int64_t bytes) {
  return {from.space(), from.dtype(), from.index(), from.row_bytes(), from.offset() + static_cast<std::uint64_t>(bytes),
          from.value(), from.layout()};
}
/// The operand with another distance between rows.
inline Operand with_row_bytes(const Operand& from, std::uint32_t row_bytes) {
  return {from.space(), from.dtype(), from.index(), row_bytes, from.offset(), from.value(), from.layout()};
}

/// True if all fields are equal.
inline bool same(const Operand& a, const Operand& b) {
  return a.space() == b.space() && a.dtype() == b.dtype() && a.index() == b.index() && a.row_bytes() == b.row_bytes() &&
         a.offset() == b.offset() && a.value() == b.value() && a.layout() == b.layout();
}

/// The name of a step's kernel in profiles and forge-inspect: "tile", "attention", ..., or the code object's name for a
/// launch ("?" if it is missing).
std::string_view kernel_name(const ProgramT& program, const StepT& step);

}  // namespace forge::plan
