// Scalar operations. Bits that are known stay so through logic; arithmetic needs all bits of both sides.
#include <array>
#include <bit>

#include "codegen/gpu/code/wave_rules.h"

namespace forge::codegen {
namespace {
namespace scalar_operations {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

/// scc = result != 0, as logic sets it.
void set_nonzero(Wave& wave, Known result, int bits) {
  wave.scc = any(result, bits);
}

// ---- logic on masks and words: F(a, b) of known bits ----
template <int Bits, auto F>
void logic(Wave& wave, const Operation& op) {
  const Known result = F(wave.uniform(op, 1, Bits), wave.uniform(op, 2, Bits));
  wave.write_uniform(op, 0, result, Bits);
  set_nonzero(wave, result, Bits);
}
/// to = exec; exec = F(source, exec)
template <int Bits, auto F>
void save_exec(Wave& wave, const Operation& op) {
  const Known old = wave.exec(), result = F(wave.uniform(op, 1, Bits), old);
  wave.write_uniform(op, 0, old, Bits);
  wave.set_mask(kExecLow, result);
  set_nonzero(wave, result, Bits);
}
constexpr auto kAnd = [](Known a, Known b) { return a & b; };
constexpr auto kOr = [](Known a, Known b) { return a | b; };
constexpr auto kXor = [](Known a, Known b) { return a ^ b; };
constexpr auto kAndNot = [](Known a, Known b) { return a & ~b; };
constexpr auto kOrNot = [](Known a, Known b) { return a | ~b; };
constexpr auto kNand = [](Known a, Known b) { return ~(a & b); };
constexpr auto kNor = [](Known a, Known b) { return ~(a | b); };
constexpr auto kXnor = [](Known a, Known b) { return ~(a ^ b); };
constexpr auto kNotAnd = [](Known a, Known b) { return ~a & b; };

template <int Bits>
void move(Wave& wave, const Operation& op) {
  wave.write_uniform(op, 0, wave.uniform(op, 1, Bits), Bits);
}
template <int Bits>
void invert(Wave& wave, const Operation& op) {
  const Known result = ~wave.uniform(op, 1, Bits);
  wave.write_uniform(op, 0, result, Bits);
  set_nonzero(wave, result, Bits);
}
template <int Bits>
void select(Wave& wave, const Operation& op) {
  const Known yes = wave.uniform(op, 1, Bits), no = wave.uniform(op, 2, Bits);
  const auto same = yes.known & no.known & ~(yes.value ^ no.value);
  wave.write_uniform(op, 0,
                     wave.scc == Maybe::kYes  ? yes
                     : wave.scc == Maybe::kNo ? no
                                              : Known{yes.value & same, same},
                     Bits);
}

// ---- arithmetic: a result and perhaps scc ----
struct Sum {
  u64 value;
  bool scc;
};
/// For operations that leave scc alone. First: as below.
template <int Bits, auto F, std::size_t First = 1>
void arithmetic(Wave& wave, const Operation& op) {
  const Known a = wave.uniform(op, First, Bits), b = wave.uniform(op, First + 1, Bits);
  const bool known = a.has(Bits) && (b.has(Bits) || op.operands.size() < First + 2);
  wave.write_uniform(op, 0, known ? Known::of(F(a.value, b.value)) : Known{}, Bits);
}
/// For operations that say in scc whether they carried, or which one was chosen; those that carry take scc too. First:
/// the first source, which is 0 where the result replaces it ("s_addk_i32 s0, 5").
template <auto F, std::size_t First = 1, bool Carries = false>
void with_scc(Wave& wave, const Operation& op) {
  const Known a = wave.uniform(op, First), b = wave.uniform(op, First + 1);
  const bool known = a.has(32) && b.has(32) && (!Carries || wave.scc != Maybe::kUnknown);
  const Sum sum = F(a.value, b.value, Carries && wave.scc == Maybe::kYes ? 1 : 0);
  wave.write_uniform(op, 0, known ? Known::of(sum.value) : Known{});
  wave.scc = known ? maybe(sum.scc) : Maybe::kUnknown;
}
/// For shifts, fields and others that set scc if the result is not zero. The second operand has 32 bits.
template <int Bits, auto F>
void shift(Wave& wave, const Operation& op) {
  const Known a = wave.uniform(op, 1, Bits), b = wave.uniform(op, 2);
  const bool known = a.has(Bits) && (b.has(32) || op.operands.size() < 3);
  const Known result = known ? Known::of(F(a.value, static_cast<u32>(b.value))).low(Bits) : Known{};
  wave.write_uniform(op, 0, result, Bits);
  set_nonzero(wave, result, Bits);
}
constexpr auto kAdd = [](u64 a, u64 b, u64 carry) {
  const u64 sum = static_cast<u32>(a) + u64{static_cast<u32>(b)} + carry;
  return Sum{static_cast<u32>(sum), sum >> 32 != 0};
};
constexpr auto kSubtract = [](u64 a, u64 b, u64 borrow) {
  const u64 taken = u64{static_cast<u32>(b)} + borrow;
  return Sum{static_cast<u32>(a - taken), taken > static_cast<u32>(a)};
};
constexpr auto kAddSigned = [](u64 a, u64 b, u64) {
  const i64 sum = i64{static_cast<i32>(a)} + static_cast<i32>(b);
  return Sum{static_cast<u32>(sum), sum != static_cast<i32>(sum)};
};
constexpr auto kSubtractSigned = [](u64 a, u64 b, u64) {
  const i64 sum = i64{static_cast<i32>(a)} - static_cast<i32>(b);
  return Sum{static_cast<u32>(sum), sum != static_cast<i32>(sum)};
};
constexpr auto kMinSigned = [](u64 a, u64 b, u64) {
  return static_cast<i32>(a) < static_cast<i32>(b) ? Sum{a, true} : Sum{b, false};
};
constexpr auto kMaxSigned = [](u64 a, u64 b, u64) {
  return static_cast<i32>(a) > static_cast<i32>(b) ? Sum{a, true} : Sum{b, false};
};
constexpr auto kMinUnsigned = [](u64 a, u64 b, u64) { return a < b ? Sum{a, true} : Sum{b, false}; };
constexpr auto kMaxUnsigned = [](u64 a, u64 b, u64) { return a > b ? Sum{a, true} : Sum{b, false}; };
constexpr auto kMultiply = [](u64 a, u64 b) { return a * b; };
constexpr auto kMultiplyHigh = [](u64 a, u64 b) { return (a * b >> 32); };
constexpr auto kMultiplyHighSigned = [](u64 a, u64 b) {
  return static_cast<u64>(i64{static_cast<i32>(a)} * static_cast<i32>(b) >> 32);
};
template <int Bits>
constexpr auto kFieldSigned = [](u64 a, u32 b) {
  const u32 from = b & (Bits - 1), width = std::min<u32>(b >> 16 & 127, Bits);
  if (width == 0) return u64{0};
  const u64 field = a >> from & Known::low_mask(static_cast<int>(width));
  return (field >> (width - 1) & 1) != 0 ? field | ~Known::low_mask(static_cast<int>(width)) : field;
};
template <int Bits>
constexpr auto kField = [](u64 a, u32 b) {
  return a >> (b & (Bits - 1)) & Known::low_mask(static_cast<int>(std::min<u32>(b >> 16 & 127, Bits)));
};
// ---- comparisons ----
template <int Bits, auto F>
void compare(Wave& wave, const Operation& op) {
  const Known a = wave.uniform(op, 0, Bits), b = wave.uniform(op, 1, Bits);
  wave.scc = a.has(Bits) && b.has(Bits) ? maybe(F(a.value, b.value)) : Maybe::kUnknown;
}
template <auto F>
constexpr auto kSigned = [](u64 a, u64 b) {  // comparing offset numbers is comparing signed ones
  constexpr u64 kSign = 0x80000000U;
  return F((a ^ kSign) & 0xffffffffU, (b ^ kSign) & 0xffffffffU);
};
template <bool Wanted>
void test_bit(Wave& wave, const Operation& op) {
  const Known a = wave.uniform(op, 0), b = wave.uniform(op, 1);
  const auto bit = b.value & 31;
  wave.scc = b.has(32) && (a.known >> bit & 1) != 0 ? maybe((a.value >> bit & 1) == (Wanted ? 1 : 0)) : Maybe::kUnknown;
}

constexpr std::array kRules{
    Rule{"s_mov_b32", move<32>},
    Rule{"s_mov_b64", move<64>},
    Rule{"s_movk_i32", move<32>},
    Rule{"s_not_b32", invert<32>},
    Rule{"s_not_b64", invert<64>},
    Rule{"s_cselect_b32", select<32>},
    Rule{"s_cselect_b64", select<64>},
    Rule{"s_and_b32", logic<32, kAnd>},
    Rule{"s_and_b64", logic<64, kAnd>},
    Rule{"s_or_b32", logic<32, kOr>},
    Rule{"s_or_b64", logic<64, kOr>},
    Rule{"s_xor_b32", logic<32, kXor>},
    Rule{"s_xor_b64", logic<64, kXor>},
    Rule{"s_and_not1_b32", logic<32, kAndNot>},
    Rule{"s_and_not1_b64", logic<64, kAndNot>},
    Rule{"s_or_not1_b32", logic<32, kOrNot>},
    Rule{"s_or_not1_b64", logic<64, kOrNot>},
    Rule{"s_nand_b32", logic<32, kNand>},
    Rule{"s_nand_b64", logic<64, kNand>},
    Rule{"s_nor_b32", logic<32, kNor>},
    Rule{"s_nor_b64", logic<64, kNor>},
    Rule{"s_xnor_b32", logic<32, kXnor>},
    Rule{"s_xnor_b64", logic<64, kXnor>},
    Rule{"s_and_saveexec_b32", save_exec<32, kAnd>},
    Rule{"s_and_saveexec_b64", save_exec<64, kAnd>},
    Rule{"s_or_saveexec_b32", save_exec<32, kOr>},
    Rule{"s_or_saveexec_b64", save_exec<64, kOr>},
    Rule{"s_xor_saveexec_b32", save_exec<32, kXor>},
    Rule{"s_xor_saveexec_b64", save_exec<64, kXor>},
    Rule{"s_and_not1_saveexec_b32", save_exec<32, kAndNot>},
    Rule{"s_and_not1_saveexec_b64", save_exec<64, kAndNot>},
    Rule{"s_and_not0_saveexec_b32", save_exec<32, kNotAnd>},
    Rule{"s_and_not0_saveexec_b64", save_exec<64, kNotAnd>},
    Rule{"s_add_u32", with_scc<kAdd>},
    Rule{"s_addc_u32", with_scc<kAdd, 1, true>},
    Rule{"s_sub_u32", with_scc<kSubtract>},
    Rule{"s_subb_u32", with_scc<kSubtract, 1, true>},
    Rule{"s_add_i32", with_scc<kAddSigned>},
    Rule{"s_sub_i32", with_scc<kSubtractSigned>},
    Rule{"s_addk_i32", with_scc<kAddSigned, 0>},
    Rule{"s_mulk_i32", arithmetic<32, kMultiply, 0>},
    Rule{"s_min_i32", with_scc<kMinSigned>},
    Rule{"s_max_i32", with_scc<kMaxSigned>},
    Rule{"s_min_u32", with_scc<kMinUnsigned>},
    Rule{"s_max_u32", with_scc<kMaxUnsigned>},
    Rule{"s_mul_i32", arithmetic<32, kMultiply>},
    Rule{"s_mul_u64", arithmetic<64, kMultiply>},
    Rule{"s_mul_hi_u32", arithmetic<32, kMultiplyHigh>},
    Rule{"s_mul_hi_i32", arithmetic<32, kMultiplyHighSigned>},
    Rule{"s_add_nc_u64", arithmetic<64, [](u64 a, u64 b) { return a + b; }>},
    Rule{"s_sub_nc_u64", arithmetic<64, [](u64 a, u64 b) { return a - b; }>},
    Rule{"s_sext_i32_i16", arithmetic<32, [](u64 a, u64) { return static_cast<u64>(static_cast<std::int16_t>(a)); }>},
    Rule{"s_sext_i32_i8", arithmetic<32, [](u64 a, u64) { return static_cast<u64>(static_cast<std::int8_t>(a)); }>},
    Rule{"s_brev_b32", arithmetic<32,
                                  [](u64 a, u64) {
                                    u64 out = 0;
                                    for (int i = 0; i < 32; ++i) out |= ((a >> i & 1) << (31 - i));
                                    return out;
                                  }>},
    Rule{"s_ctz_i32_b32", arithmetic<32, [](u64 a, u64) { return a == 0 ? ~u64{0} : u64(std::countr_zero(a)); }>},
    Rule{"s_ff1_i32_b32", arithmetic<32, [](u64 a, u64) { return a == 0 ? ~u64{0} : u64(std::countr_zero(a)); }>},
    Rule{"s_lshl_b32", shift<32, [](u64 a, u32 b) { return a << (b & 31); }>},
    Rule{"s_lshl_b64", shift<64, [](u64 a, u32 b) { return a << (b & 63); }>},
    Rule{"s_lshr_b32", shift<32, [](u64 a, u32 b) { return (a >> (b & 31)); }>},
    Rule{"s_lshr_b64", shift<64, [](u64 a, u32 b) { return (a >> (b & 63)); }>},
    Rule{"s_ashr_i32", shift<32, [](u64 a, u32 b) { return (static_cast<u64>(static_cast<i32>(a) >> (b & 31))); }>},
    Rule{"s_ashr_i64", shift<64, [](u64 a, u32 b) { return (static_cast<u64>(static_cast<i64>(a) >> (b & 63))); }>},
    Rule{"s_bfe_u32", shift<32, kField<32>>},
    Rule{"s_bfe_i32", shift<32, kFieldSigned<32>>},
    Rule{"s_bfe_u64", shift<64, kField<64>>},
    Rule{"s_bfe_i64", shift<64, kFieldSigned<64>>},
    Rule{"s_abs_i32", shift<32, [](u64 a, u32) { return static_cast<i32>(a) < 0 ? u64{0} - a : a; }>},
    Rule{"s_bcnt1_i32_b32", shift<32, [](u64 a, u32) { return u64(std::popcount(a)); }>},
    Rule{"s_lshl1_add_u32", arithmetic<32, [](u64 a, u64 b) { return (a << 1) + b; }>},
    Rule{"s_lshl2_add_u32", arithmetic<32, [](u64 a, u64 b) { return (a << 2) + b; }>},
    Rule{"s_lshl3_add_u32", arithmetic<32, [](u64 a, u64 b) { return (a << 3) + b; }>},
    Rule{"s_lshl4_add_u32", arithmetic<32, [](u64 a, u64 b) { return (a << 4) + b; }>},
    Rule{"s_cmp_eq_u64", compare<64, kEqual>},
    Rule{"s_cmp_lg_u64", compare<64, kUnequal>},
    Rule{"s_bitcmp0_b32", test_bit<false>},
    Rule{"s_bitcmp1_b32", test_bit<true>},
    Rule{"s_cmp_eq_u32", compare<32, kEqual>},
    Rule{"s_cmp_lg_u32", compare<32, kUnequal>},
    Rule{"s_cmp_lt_u32", compare<32, kLess>},
    Rule{"s_cmp_le_u32", compare<32, kAtMost>},
    Rule{"s_cmp_gt_u32", compare<32, kGreater>},
    Rule{"s_cmp_ge_u32", compare<32, kAtLeast>},
    Rule{"s_cmp_eq_i32", compare<32, kEqual>},
    Rule{"s_cmp_lg_i32", compare<32, kUnequal>},
    Rule{"s_cmp_lt_i32", compare<32, kSigned<kLess>>},
    Rule{"s_cmp_le_i32", compare<32, kSigned<kAtMost>>},
    Rule{"s_cmp_gt_i32", compare<32, kSigned<kGreater>>},
    Rule{"s_cmp_ge_i32", compare<32, kSigned<kAtLeast>>}};

}  // namespace scalar_operations
}  // namespace

std::span<const Rule> scalar_rules() {
  return scalar_operations::kRules;
}

}  // namespace forge::codegen
