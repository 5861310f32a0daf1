#pragma once
// What everybody who writes or reads steps shares: operands, roles, names. The steps themselves are plan.fbs.

#include <cstdint>
#include <string_view>

#include "runtime/plan/plan_generated.h"

namespace forge::plan {

/// A role that no operand has.
inline constexpr std::uint16_t kNoOperand = 65535;

/// An operand at `offset` bytes into a space. row_bytes: from row to row, 0 where there are no rows. dtype: a DType's
/// number; F32's is 0.
inline Operand operand_at(Space space, std::uint16_t index, std::uint64_t offset, std::uint32_t row_bytes = 0,
                          std::uint8_t dtype = 0) {
  return {space, dtype, index, row_bytes, offset};
}

/// The same operand, so many bytes further.
inline Operand moved(const Operand& from, std::int64_t bytes) {
  return {from.space(), from.dtype(), from.index(), from.row_bytes(),
          from.offset() + static_cast<std::uint64_t>(bytes)};
}
/// The same operand with its rows so many bytes apart.
inline Operand with_row_bytes(const Operand& from, std::uint32_t row_bytes) {
  return {from.space(), from.dtype(), from.index(), row_bytes, from.offset()};
}

inline bool same(const Operand& a, const Operand& b) {
  return a.space() == b.space() && a.dtype() == b.dtype() && a.index() == b.index() && a.row_bytes() == b.row_bytes() &&
         a.offset() == b.offset();
}

/// The name of what runs a step, as profiles and forge-inspect show it: "tile", "attention"; of a launch the kernel's,
/// "?" where its code object is missing.
std::string_view kernel_name(const ProgramT& program, const StepT& step);

}  // namespace forge::plan
