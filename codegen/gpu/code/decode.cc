#include "codegen/gpu/code/decode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <tuple>
#include <utility>

namespace forge::codegen {
namespace {

struct ClassRow {
  std::string_view stem;
  InstructionClass is;
};
using enum InstructionClass;
/// The first row whose stem starts the mnemonic holds.
constexpr std::array kClassRows{ClassRow{"v_wmma", kMatrix},
                                ClassRow{"v_swmmac", kMatrix},
                                ClassRow{"v_mfma", kMatrix},
                                ClassRow{"v_smfmac", kMatrix},
                                ClassRow{"v_nop", kWait},
                                ClassRow{"v_", kVector},
                                ClassRow{"ds_", kLds},
                                ClassRow{"global_store", kStore},
                                ClassRow{"flat_store", kStore},
                                ClassRow{"buffer_store", kStore},
                                ClassRow{"scratch_store", kStore},
                                ClassRow{"global_inv", kWait},
                                ClassRow{"global_wb", kWait},
                                ClassRow{"buffer_inv", kWait},
                                ClassRow{"buffer_wb", kWait},
                                ClassRow{"buffer_gl", kWait},
                                ClassRow{"global_", kLoad},
                                ClassRow{"flat_", kLoad},
                                ClassRow{"buffer_", kLoad},
                                ClassRow{"scratch_", kLoad},
                                ClassRow{"image_", kLoad},
                                ClassRow{"s_branch", kBranch},
                                ClassRow{"s_cbranch", kBranch},
                                ClassRow{"s_endpgm", kBranch},
                                ClassRow{"s_setpc", kBranch},
                                ClassRow{"s_swappc", kBranch},
                                ClassRow{"s_call", kBranch},
                                ClassRow{"s_wait", kWait},
                                ClassRow{"s_barrier", kWait},
                                ClassRow{"s_delay_alu", kWait},
                                ClassRow{"s_nop", kWait},
                                ClassRow{"s_clause", kWait},
                                ClassRow{"s_sleep", kWait},
                                ClassRow{"s_sendmsg", kWait},
                                ClassRow{"s_setprio", kWait},
                                ClassRow{"s_set_inst_prefetch", kWait},
                                ClassRow{"s_inst_prefetch", kWait},
                                ClassRow{"s_icache", kWait},
                                ClassRow{"s_dcache", kWait},
                                ClassRow{"s_", kScalar}};
constexpr std::array<std::string_view, kInstructionClasses> kClassNames{"VALU",  "SALU", "matrix", "load",
                                                                        "store", "LDS",  "wait",   "branch"};

std::optional<std::int64_t> integer_of(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const bool hex = text.starts_with("0x");
  if (hex) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (failed != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
}

/// "1.0": the bits of an f32, as an integer instruction reads them.
std::optional<std::int64_t> float_of(std::string_view text) {
  if (text.find('.') == std::string_view::npos) return std::nullopt;
  const std::string copy(text);
  char* end = nullptr;
  const float value = std::strtof(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size()) return std::nullopt;
  return static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(value));
}

DecodedOperand operand_of(std::string_view text) {
  using Kind = DecodedOperand::Kind;
  if (const auto value = integer_of(text))
    return {.kind = Kind::kConstant, .constant = static_cast<std::uint64_t>(*value)};
  if (const auto value = float_of(text))
    return {.kind = Kind::kConstant, .constant = static_cast<std::uint64_t>(*value)};
  if (text.starts_with('-') || text.starts_with('|') || text.starts_with("neg(")) return {};  // floats
  if (const auto scalars = scalar_registers(text); !scalars.empty())
    return {.kind = Kind::kScalar, .at = scalars.front(), .words = static_cast<std::uint16_t>(scalars.size())};
  if (const auto vectors = vector_registers(text))
    return {.kind = Kind::kVector,
            .at = static_cast<std::uint16_t>(vectors->first),
            .words = static_cast<std::uint16_t>(vectors->second - vectors->first + 1)};
  return {};
}

std::int64_t modifier(std::string_view all, std::string_view key) {
  const auto at = (" " + std::string(all)).find(" " + std::string(key));
  if (at == std::string::npos) return 0;
  const auto value = all.substr(at + key.size());
  return integer_of(value.substr(0, value.find_first_of(" \t"))).value_or(0);
}

/// "row_xmask:8 row_mask:0xf bank_mask:0xf", "quad_perm:[1,0,3,2]", "offset:swizzle(SWAP,16)". Moves that leave some
/// rows out, or that have lanes without a source, are unknown.
std::pair<LaneMove, int> lane_move(std::string_view modifiers) {
  const auto after = [&](std::string_view key) -> std::optional<std::string_view> {
    const auto at = modifiers.find(key);
    return at == std::string_view::npos ? std::nullopt : std::optional(modifiers.substr(at + key.size()));
  };
  bool moves = false;
  for (const std::string_view key : {"quad_perm:", "row_", "wave_", "dpp8:", "_sel:", "swizzle("})
    moves |= modifiers.find(key) != std::string_view::npos;
  if (!moves) return {LaneMove::kNone, 0};
  const auto number = [](std::string_view text) {
    return static_cast<int>(integer_of(text.substr(0, text.find_first_of(" ,)"))).value_or(0));
  };
  if (const auto lanes = after("swizzle(SWAP,")) return {LaneMove::kXor, number(*lanes)};
  const bool whole = after("row_mask:0xf") && after("bank_mask:0xf");
  if (!whole) return {LaneMove::kUnknown, 0};
  if (const auto lanes = after("row_xmask:")) return {LaneMove::kXor, number(*lanes)};
  if (const auto lanes = after("row_ror:")) return {LaneMove::kRotate, number(*lanes)};
  if (const auto lanes = after("quad_perm:["); lanes && lanes->size() >= 7) {
    int packed = 0;
    for (std::size_t digit = 0, shift = 0; digit < 7; digit += 2, shift += 2)
      packed |= (((*lanes)[digit] - '0') & 3) << shift;
    return {LaneMove::kQuad, packed};
  }
  if (after("row_half_mirror")) return {LaneMove::kXor, 7};
  if (after("row_mirror")) return {LaneMove::kXor, 15};
  return {LaneMove::kUnknown, 0};
}

std::string without_encoding(std::string_view mnemonic) {
  for (const std::string_view suffix : {"_e32", "_e64", "_dpp", "_sdwa", "_e64_dpp"})
    if (mnemonic.ends_with(suffix)) return std::string(mnemonic.substr(0, mnemonic.size() - suffix.size()));
  return std::string(mnemonic);
}

/// Whether the instruction's constant is a signed 16-bit number, which disassemblers print as an unsigned one:
/// "s_cmpk_gt_i32 s0, 0xffc0" compares with -64.
bool has_signed_constant(std::string_view name) {
  const bool short_form = name.starts_with("s_cmpk_") || name.starts_with("s_movk_") || name.starts_with("s_cmovk_") ||
                          name.starts_with("s_addk_") || name.starts_with("s_mulk_");
  return short_form && name.ends_with("_i32");
}

/// Mnemonic and operands, the last with modifiers attached.
Operation operation_of(std::string_view mnemonic, const std::vector<std::string>& operands) {
  Operation out{.name = without_encoding(mnemonic), .operands = {}, .modifiers = {}};
  if (out.name.starts_with("v_dual_")) out.name = "v_" + out.name.substr(7);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    std::string_view text = operands[i];
    if (i + 1 == operands.size()) {
      const auto space = text.find_first_of(" \t");
      if (space != std::string_view::npos) out.modifiers = text.substr(space + 1);
      text = text.substr(0, space);
    }
    out.operands.push_back(operand_of(text));
  }
  if (has_signed_constant(out.name) && !out.operands.empty() &&
      out.operands.back().kind == DecodedOperand::Kind::kConstant) {
    auto& constant = out.operands.back().constant;
    constant = static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int16_t>(constant)));
  }
  if (out.modifiers.empty()) return out;
  out.offset = modifier(out.modifiers, "offset:");
  out.first_slot = modifier(out.modifiers, "offset0:");
  out.second_slot = modifier(out.modifiers, "offset1:");
  std::tie(out.move, out.move_amount) = lane_move(out.modifiers);
  return out;
}

}  // namespace

int moved_from(LaneMove move, int amount, int lane) {
  switch (move) {
    case LaneMove::kXor:
      return lane ^ amount;
    case LaneMove::kRotate:
      return (lane & ~15) | ((lane - amount) & 15);
    case LaneMove::kQuad:
      return (lane & ~3) | (amount >> (2 * (lane & 3)) & 3);
    case LaneMove::kNone:
    case LaneMove::kUnknown:
      return lane;
  }
  return lane;
}

std::string_view class_name(InstructionClass one) {
  return kClassNames[static_cast<std::size_t>(one)];
}

InstructionClass class_of(std::string_view mnemonic) {
  for (const ClassRow& row : kClassRows)
    if (mnemonic.starts_with(row.stem)) return row.is;
  return kScalar;
}

std::vector<Operation> decode(const Instruction& instruction) {
  constexpr std::string_view kBetween = " :: ";
  const auto middle = instruction.text.find(kBetween);
  if (middle == std::string::npos) return {operation_of(instruction.mnemonic, instruction.operands)};
  std::vector<Operation> both;
  for (const std::string& text :
       {instruction.text.substr(0, middle), instruction.text.substr(middle + kBetween.size())})
    for (const Function& function : parse_listing(text))
      for (const Instruction& one : function.instructions) both.push_back(operation_of(one.mnemonic, one.operands));
  return both;
}

}  // namespace forge::codegen
