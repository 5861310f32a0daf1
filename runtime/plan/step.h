#pragma once
// What everybody who writes or reads steps shares: operands, roles, names. The steps themselves are plan.fbs.

#include <cstdint>
#include <string_view>

#include "runtime/plan/plan_generated.h"

namespace forge::plan {

/// A role that no operand has.
inline constexpr std::uint16_t kNoOperand = 65535;
/// Of an operand that is no value of the graph.
inline constexpr std::uint32_t kNoValue = 4294967295;

/// An operand at `offset` bytes into a space. row_bytes: from row to row, 0 where there are no rows. dtype: a DType's
/// number; F32's is 0.
inline Operand operand_at(Space space, std::uint16_t index, std::uint64_t offset, std::uint32_t row_bytes = 0,
                          std::uint8_t dtype = 0) {
  return {space, dtype, index, row_bytes, offset, kNoValue, 0};
}

/// A value of the graph, by its number, before it has an address: the offset counts from the value's start, and rows
/// are as far apart as they will lie.
inline Operand operand_of(std::uint32_t value, std::uint8_t dtype) {
  return {Space::None, dtype, 0, 0, 0, value, 0};
}

/// The same operand, so many bytes further.
inline Operand moved(const Operand& from, std::int64_t bytes) {
  return {from.space(), from.dtype(), from.index(), from.row_bytes(), from.offset() + static_cast<std::uint64_t>(bytes),
          from.value(), from.layout()};
}
/// The same operand with its rows so many bytes apart.
inline Operand with_row_bytes(const Operand& from, std::uint32_t row_bytes) {
  return {from.space(), from.dtype(), from.index(), row_bytes, from.offset(), from.value(), from.layout()};
}

inline bool same(const Operand& a, const Operand& b) {
  return a.space() == b.space() && a.dtype() == b.dtype() && a.index() == b.index() && a.row_bytes() == b.row_bytes() &&
         a.offset() == b.offset() && a.value() == b.value() && a.layout() == b.layout();
}

/// The name of what runs a step, as profiles and forge-inspect show it: "tile", "attention"; of a launch the kernel's,
/// "?" where its code object is missing.
std::string_view kernel_name(const ProgramT& program, const StepT& step);

}  // namespace forge::plan
